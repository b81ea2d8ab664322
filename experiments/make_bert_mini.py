"""Makes bert-mini: its tokenizer and initial weights, then, after the training run, the embedded checkpoint.

    python -m experiments.make_bert_mini start ~/.cache/lpe/bert-mini-start
    python -m lpe.main --config=configs/bert_mini.py --workdir=$HOME/.cache/lpe/bert-mini
    python -m experiments.make_bert_mini publish ~/.cache/lpe/bert-mini

Tokenizer: BERT's own, over single characters of the training speeches ("the" is t ##h ##e).

Initial weights: MLM from plain random weights stays for thousands of steps on a plateau where order is not used. So the run
starts with order in place: sinusoidal position rows, and in the first two layers heads whose queries and keys are rotations of
each other, so that head h looks at the token `OFFSETS[h]` places away. Everything is trained from there on.
"""

import shutil
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from tokenizers import BertWordPieceTokenizer
from transformers import BertTokenizer

from lpe import assets, model
from lpe.data import sources
from lpe.models.bert import BertConfig

ROWS = 128
VOCABULARY = 512
OFFSETS = ((-1, 1, -2, 2), (-3, 3, -4, 4))  # per layer and head
CONTRAST = 8.0  # attention logit of the token looked at, above the average
POSITION_SIZE, WORD_STD = 0.06, 0.04


def tokenizer() -> BertTokenizer:
    """A stock BertTokenizer with a small vocabulary of word pieces, learned from the training speeches.

    The pieces are the same each time, their numbers are not: the tokenizers library keeps its alphabet in a hash table.
    """
    trainer = BertWordPieceTokenizer()
    texts = (doc.text for doc in sources.documents({"source": "sotu"})["train"])
    trainer.train_from_iterator(texts, vocab_size=VOCABULARY, min_frequency=20, limit_alphabet=100, show_progress=False)
    return BertTokenizer(vocab=trainer.get_vocab())


def weights(params: dict, cfg: BertConfig, rng: np.random.Generator) -> dict:
    """`params` with the structured start described above."""
    d, f, h, layers = cfg.hidden_size, cfg.intermediate_size, cfg.head_dim, cfg.num_hidden_layers
    pairs = h // 2
    omega = np.pi * (np.arange(pairs) + rng.uniform(0.1, 0.9, pairs)) / pairs  # spread over (0, π): a peak at one offset only
    angle = np.arange(ROWS)[:, None] * omega
    wave = np.zeros((ROWS, d))
    wave[:, 0:h:2], wave[:, 1:h:2] = np.cos(angle), np.sin(angle)
    table = rng.normal(0, 0.02, (ROWS, d)) + POSITION_SIZE * wave
    word = rng.normal(0, WORD_STD, (cfg.vocab_size, d))
    word[:, :h] *= 0.1  # the first h dimensions belong to the position

    def noise(shape: tuple[int, ...], std: float) -> np.ndarray:
        return rng.normal(0, std, shape)

    n = cfg.num_attention_heads
    query, key = noise((layers, d, n, h), 0.02), noise((layers, d, n, h), 0.02)
    value, out = noise((layers, d, n, h), d**-0.5), noise((layers, n, h, d), d**-0.5)
    up, down = noise((layers, d, f), d**-0.5), noise((layers, f, d), 0.5 * f**-0.5)
    for layer in range(len(OFFSETS) - 1):  # the layers below leave the position dimensions alone
        out[layer, :, :, :h] *= 0.1
        down[layer, :, :h] *= 0.1
    x = table[None] + word[:, None]
    x = (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True)
    amplitude = np.sqrt(2 * np.square(x[..., :h]).mean())
    for layer, offsets in enumerate(OFFSETS):
        scale = np.sqrt(CONTRAST * np.sqrt(h) / pairs) / amplitude * 1.4**layer  # residual sums shrink the position part
        for head, offset in enumerate(offsets):
            for k, w in enumerate(omega):
                turn = np.asarray([[np.cos(w * offset), -np.sin(w * offset)], [np.sin(w * offset), np.cos(w * offset)]])
                at = slice(2 * k, 2 * k + 2)
                query[layer, at, head, at] += scale * turn.T
                key[layer, at, head, at] += scale * np.eye(2)
    attention = {
        name: {**params["layers"]["attention"][name], "kernel": kernel}
        for name, kernel in (("query", query), ("key", key), ("value", value), ("output", out))
    }
    new = {
        **params,
        "embeddings": {**params["embeddings"], "word": word, "token_type": np.zeros((cfg.type_vocab_size, d))},
        "position": {"table": table},
        "layers": {
            **params["layers"],
            "attention": attention,
            "intermediate": {**params["layers"]["intermediate"], "kernel": up},
            "output": {**params["layers"]["output"], "kernel": down},
        },
    }
    new["mlm_head"] = {**new["mlm_head"], "transform": {**new["mlm_head"]["transform"], "kernel": noise((d, d), d**-0.5)}}
    return {k: _float32(v) for k, v in new.items()}


def _float32(tree):
    return {k: _float32(v) for k, v in tree.items()} if isinstance(tree, dict) else jnp.asarray(tree, jnp.float32)


def start(folder: Path) -> None:
    tok = tokenizer()
    cfg = BertConfig(
        vocab_size=len(tok), hidden_size=128, num_hidden_layers=4, num_attention_heads=4, intermediate_size=512,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, max_position_embeddings=ROWS,
    )  # fmt: skip
    fresh = model.initialise(cfg, ("mlm",), seed=0, tokenizer=tok)
    new = weights(fresh.params, cfg, np.random.default_rng(0))
    model.Model(new, fresh.recipe, fresh.companions).save_pretrained(folder)
    print(f"{folder}: {len(tok)} pieces")


def publish(workdir: Path) -> None:
    """Copies model (16 bit), config, log and report of the run into the package."""
    target = assets.CHECKPOINTS["bert-mini"]
    shutil.rmtree(target, ignore_errors=True)
    (run,) = [p.parent for p in workdir.glob("*/model")]
    trained = model.from_pretrained(run / "model")
    trained.save_pretrained(target, dtype="float16")
    log = target / "training"
    log.mkdir()
    for name in ("config.json", "versions.json", "report.md", "curve.png", "places.png"):
        shutil.copy(workdir / name, log)
    shutil.copy(run / "metrics.jsonl", log)
    print(f"{target}: {sum(f.stat().st_size for f in target.rglob('*') if f.is_file()):,} bytes")


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("start", "publish"):
        sys.exit(__doc__)
    {"start": start, "publish": publish}[sys.argv[1]](Path(sys.argv[2]).expanduser())
