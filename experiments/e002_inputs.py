"""What e002_oracle.py reads: checkpoints with long trained tables, and inputs for them that no one typed in.

Text models read held-out State of the Union speeches, one half of the speeches for development, the other for the report.

The chemical and the antibody packages bring a handful of sequences (4 reactions, 5 variable domains), which are read out of
their own files. Reactions: three of the four joined into one, so that it reaches beyond 128 tokens, the molecules of either
side in an order drawn anew: real molecules, a valid reaction, but run by no chemist. Both halves draw from the same four.
Antibodies: the real ones, and the model's own samples, which are no independent evidence of accuracy: starting from a real
sequence, 15 % of the tokens are masked and drawn anew from the untouched model's scores, ROUNDS times. The halves start from
different sequences, but the two light chains that there are differ by two inserted residues only, so sapiens gets heavy ones
alone. n′ = 128 suits neither antibodies, which are shorter, nor bert-mini, which has 128 rows.
"""

import dataclasses
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

import lpe
from experiments import convert_sapiens
from lpe.data import sources, windows
from lpe.data.windows import Windows
from lpe.tasks import mlm
from tests import assets

HALVES = ("develop", "report")
ROUNDS = 15
RATE = 0.15
RESIDUES = "ACDEFGHIKLMNPQRSTVWY"
SPECIALS = {"unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "pad": "[PAD]", "mask": "[MASK]"}
OTHER_HEADS = ("cls.species.", "cls.chain.", "cls.graft.")  # AntiBERTy's


class Case(NamedTuple):
    """A checkpoint: model with tokenizer, tokens of an input, inputs of a half, the n′ to try, where its inputs start."""

    load: Callable[[], lpe.Model]
    length: int
    count: int
    rows: tuple[int, ...]
    start: Callable[[str, int, np.random.Generator], list[str]] | None = None  # None: the speeches
    heads: bool = True  # an MLM head


def _from_vocabulary(folder: Path, vocabulary: Path, ignore: tuple[str, ...] = ()) -> lpe.Model:
    """With a tokenizer that takes the longest word of vocab.txt at each place, which is how SMILES and residues are split."""
    model = lpe.from_pretrained(folder, ignore=ignore)
    words = vocabulary.read_text(encoding="utf-8").splitlines()
    backend = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    longest = sorted((w for w in words if w), key=len, reverse=True)
    backend.pre_tokenizer = pre_tokenizers.Split(Regex("|".join(map(re.escape, longest))), "isolated")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, **{f"{k}_token": v for k, v in SPECIALS.items()})
    return dataclasses.replace(model, companions=type(model.companions)(tokenizer=tokenizer, source=str(folder)))


def _rxnfp() -> lpe.Model:
    folder = assets.path("rxnfp") / "bert_pretrained"
    return _from_vocabulary(folder, folder / "vocab.txt")


def _rxnmapper() -> lpe.Model:
    folder = assets.path("rxnmapper")
    return _from_vocabulary(folder, folder / "vocab.txt")


def _antiberty() -> lpe.Model:
    folder = assets.path("antiberty")
    return _from_vocabulary(folder, folder.parent / "vocab.txt", OTHER_HEADS)


def _sapiens() -> lpe.Model:
    with tempfile.TemporaryDirectory() as folder:
        convert_sapiens.convert(assets.path("sapiens") / "checkpoint_vh.pt", Path(folder))
        return lpe.from_pretrained(folder)


def found_in(names: tuple[str, ...], pattern: str) -> list[str]:
    """Sequences in the text files of installed packages, each once, in the order of the files' names."""
    out: dict[str, None] = {}
    for name in names:
        root = assets.FOLDER / assets.PACKAGES[name][0]
        for path in sorted(p for p in root.rglob("*") if p.suffix == ".py" or p.name == "METADATA"):
            out |= dict.fromkeys(re.findall(pattern, path.read_text(encoding="utf-8")))
    return list(out)


def reactions(half: str, count: int, rng: np.random.Generator) -> list[str]:
    """Three of the reactions without atom maps that the packages ship, joined into one; `count` choices and orders."""
    real = found_in(("rxnfp", "rxnmapper"), r"[\"']([^\"'\s~:>]{30,}>>[^\"'\s~:>]{10,})[\"']")
    out = []
    for _ in range(count):
        chosen = [real[i].split(">>") for i in rng.permutation(len(real))[:3]]
        sides = [[m for reaction in chosen for m in reaction[k].split(".")] for k in (0, 1)]
        out.append(">>".join(".".join(side[i] for i in rng.permutation(len(side))) for side in sides))
    return out


def antibodies(kinds: tuple[bool, ...]) -> Callable[[str, int, np.random.Generator], list[str]]:
    """The variable domains that the packages ship, heavy (True) or light chains, every second one for a half."""

    def start(half: str, count: int, rng: np.random.Generator) -> list[str]:
        real = [s for s in found_in(("antiberty", "sapiens"), rf"(?<![\w*])([{RESIDUES}]{{100,}})\b") if ("WGQG" in s) in kinds]
        own = real[HALVES.index(half) :: 2] or real
        return [own[i % len(own)] for i in range(count)]

    return start


CASES: dict[str, Case] = {
    "bert-mini": Case(lambda: lpe.from_pretrained("bert-mini"), 128, 32, (32, 64)),
    "rxnfp": Case(_rxnfp, 256, 12, (64, 128), reactions),
    "rxnmapper": Case(_rxnmapper, 256, 12, (64, 128), reactions),
    "antiberty": Case(_antiberty, 124, 12, (32, 64), antibodies((True, False))),
    "sapiens vh": Case(_sapiens, 124, 32, (32, 64), antibodies((True,))),
    "minilm": Case(lambda: lpe.from_pretrained(assets.path("minilm")), 512, 8, (64, 256), None, False),
}


def inputs(case: Case, model: lpe.Model, half: str, count: int, content: int, kept: dict[str, list[str]]) -> Windows:
    """`count` windows of at most `content` tokens of a half.

    Args:
      kept: samples by half, as words with spaces between; those missing are drawn and added.
    """
    tok = model.tokenizer
    if case.start is None:
        docs = sources.documents({"source": "sotu"})["heldout"]
        cut = windows.cut(docs[HALVES.index(half) :: 2], tok, content)
        whole = cut.real == content
        return cut._replace(tokens=cut.tokens[whole], real=cut.real[whole], document=cut.document[whole]).take(count)
    if half not in kept:
        rng = np.random.default_rng(HALVES.index(half))
        starts = case.start(half, count, rng)
        ids = [tok(s, add_special_tokens=False)["input_ids"] for s in starts]
        real = len(set(starts))
        ids = ids[:real] + (sample(model, ids[real:], rng) if real < count else [])
        kept[half] = [" ".join(tok.convert_ids_to_tokens(x)) for x in ids]
    rows = [np.asarray(tok.convert_tokens_to_ids(s.split(" ")), np.int32)[:content] for s in kept[half][:count]]
    padded = np.stack([np.pad(x, (0, content - len(x))) for x in rows])
    return Windows(padded, np.asarray([len(x) for x in rows], np.int32), np.arange(len(rows), dtype=np.int32))


def sample(model: lpe.Model, starts: list[list[int]], rng: np.random.Generator) -> list[list[int]]:
    """Draws RATE of the places of each sequence anew from the model's scores, ROUNDS times; lengths stay."""
    tok, width = model.tokenizer, max(map(len, starts))
    framed = [mlm.frame(np.pad(np.asarray(s, np.int32), (0, width - len(s))), len(s), tok) for s in starts]
    ids, real = np.stack([f[0] for f in framed]), np.stack([f[1] for f in framed])
    inside = real.astype(bool) & ~np.isin(ids, [tok.cls_token_id, tok.sep_token_id])
    words = tok.convert_ids_to_tokens(range(model.config.vocab_size))
    allowed = np.asarray([w not in tok.all_special_tokens and not w.startswith("[unused") for w in words])
    for _ in range(ROUNDS):
        hidden = inside & (rng.random(ids.shape) < RATE)
        batch = {"input_ids": np.where(hidden, tok.mask_token_id, ids), "attention_mask": real}
        scores = np.where(allowed, np.asarray(model.mlm_logits(batch)), -np.inf)
        drawn = (scores + rng.gumbel(size=scores.shape)).argmax(-1)
        ids = np.where(hidden, drawn, ids)
    return [row[keep].tolist() for row, keep in zip(ids, inside, strict=True)]
