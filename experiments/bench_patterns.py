"""What attention patterns cost: one attention beside dense attention, and whole models beside transformers on torch.

    python -m experiments.bench_patterns --out=experiments/results/bench_patterns

12 heads of 64, batch 1, float32, no positions in the first table; base-size layers in the second, same weights and inputs,
checked to 1e-4. All contestants run in turn in every round; figures are medians, and ratios are of the medians. About ten
minutes on two cores.
"""

import tempfile
import timeit
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
import transformers
from absl import app, flags

import lpe
from lpe import linear, registry, tokens
from lpe.attention.base import Call
from lpe.models.bert import BertConfig
from lpe.positions.base import Bound, PositionMethod

flags.DEFINE_multi_integer("lengths", [512, 4096], "Tokens of an input.", lower_bound=1)
flags.DEFINE_integer("rounds", 5, "Each median is over so many rounds.", lower_bound=1)
flags.DEFINE_string("out", None, "A folder for table.md.")
flags.DEFINE_bool("debug", False, "64 tokens, 2 narrow heads, one round.")
FLAGS = flags.FLAGS

PATTERNS = {
    "full": {"name": "full"},
    "window, 512": {"name": "window", "attention_window": 512},
    "chunked, 512": {"name": "chunked"},
    "bigbird": {"name": "bigbird"},
    "bigbird, ETC": {
        "name": "bigbird", "global_blocks": False, "num_random_blocks": 0, "global_tokens": "cls",
    },
    "star": {"name": "star"},
    "linear": {"name": "linear"},
    "linear, causal": {"name": "linear", "causal": True},
}  # fmt: skip
SPECIAL: dict[str, Any] = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}


def attentions(length: int, heads: int, head_dim: int) -> dict[tuple[str, str], Callable[[], object]]:
    """One attention of each pattern, forward and with the gradient of q, k, v."""
    cfg = BertConfig(hidden_size=heads * head_dim, num_attention_heads=heads, num_hidden_layers=1)
    x = [jax.random.normal(k, (1, length, heads, head_dim)) for k in jax.random.split(jax.random.key(0), 3)]
    batch, wide = {"input_ids": jnp.zeros((1, length), jnp.int32)}, jnp.zeros((1, length, cfg.hidden_size))
    runs: dict[tuple[str, str], Callable[[], object]] = {}
    for title, spec in PATTERNS.items():
        pattern = registry.make("attention", spec, cfg)
        tok = pattern.mark(batch, tokens.from_batch(batch))

        def attend(q, k, v, pattern=pattern, tok=tok):
            bound, drop = Bound({}, PositionMethod({})), linear.Dropout()
            return (pattern.attend or pattern.reference)(
                {}, Call(wide, wide, q, k, v, tok, tok, head_dim**-0.5, bound, jnp.int32(0), drop)
            )

        forward = jax.jit(attend)
        gradient = jax.jit(jax.grad(lambda *x, f=attend: f(*x).sum(), (0, 1, 2)))
        runs[title, "forward"] = lambda f=forward: f(*x)
        runs[title, "with gradient"] = lambda f=gradient: f(*x)
    return runs


def models(length: int, layers: int, wide: bool, folder: Path) -> dict[tuple[str, str], Callable[[], object]]:
    """Encoders of lpe and of transformers on torch, forward; each pair gives equal outputs."""
    size: dict[str, Any] = {"hidden_size": 768, "num_attention_heads": 12}
    size |= {} if wide else {"hidden_size": 32, "num_attention_heads": 4}
    size |= dict(num_hidden_layers=layers, vocab_size=1000, max_position_embeddings=length)
    block: dict[str, Any] = {} if wide else {"block_size": 4}
    chosen = {
        "BigBird": transformers.BigBirdModel(
            transformers.BigBirdConfig(**size, **block, intermediate_size=4 * size["hidden_size"], sep_token_id=2)
        ),
        "ModernBERT": transformers.ModernBertModel(
            transformers.ModernBertConfig(**size, **SPECIAL, intermediate_size=3 * size["hidden_size"] // 2)
        ),
    }
    ids = np.random.default_rng(0).integers(5, 1000, (1, length))
    runs: dict[tuple[str, str], Callable[[], object]] = {}
    for name, other in chosen.items():
        other.eval().save_pretrained(folder / name)
        model = lpe.from_pretrained(folder / name)
        own = dict(model.recipe.attention)
        same = model.extend(attention={**own, "hf_compat": True}) if registry.takes("attention", own, "hf_compat") else model

        @torch.inference_mode()
        def theirs(other=other) -> torch.Tensor:
            return other(torch.from_numpy(ids))[0]

        difference = np.abs(np.asarray(same.encode({"input_ids": ids})) - theirs().numpy()).max()
        if difference > 1e-4:
            raise SystemExit(f"{name}: lpe and torch differ by {difference:.1e}")
        runs[name, "torch"] = theirs
        runs[name, "lpe"] = lambda m=same: m.encode({"input_ids": ids})
        if same is not model:
            runs[name, "lpe, with random blocks"] = lambda m=model: m.encode({"input_ids": ids})
    return runs


def timed(runs: dict, rounds: int) -> dict:
    """Median seconds of each; the first run of each, which compiles, is not counted."""
    for run in runs.values():
        jax.block_until_ready(run())
    found = {key: [] for key in runs}
    for _ in range(rounds):
        for key, run in runs.items():
            found[key].append(timeit.timeit(lambda run=run: jax.block_until_ready(run()), number=1))
    return {key: median(times) for key, times in found.items()}


def tables(lengths: list[int], rounds: int, *, debug: bool) -> str:
    shape = (2, 8) if debug else (12, 64)
    columns = {n: timed(attentions(n, *shape), rounds) for n in lengths}
    passes = ("forward", "with gradient")
    head = [f"{what}, {n:,}" for n in lengths for what in passes]
    lines = [f"| pattern | {' | '.join(head)} |", "|---" * (1 + len(head)) + "|"]
    for title in PATTERNS:
        ratios = [columns[n][title, what] / columns[n]["full", what] for n in lengths for what in passes]
        lines.append(f"| {title} | {' | '.join(f'{r:.2f}' for r in ratios)} |")
    longest = lengths[-1]
    with tempfile.TemporaryDirectory() as folder:
        found = timed(models(longest, 3, not debug, Path(folder)), rounds)
    lines += ["", f"| 3 layers, {longest:,} tokens | seconds | torch's time / its own |", "|---|---|---|"]
    for (name, side), s in found.items():
        lines.append(f"| {name}, {side} | {s:.2f} | {found[name, 'torch'] / s:.2f} |")
    return "\n".join(lines) + "\n"


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"{argv[1:]}: there are only flags")
    text = tables([64, 128], 1, debug=True) if FLAGS.debug else tables(FLAGS.lengths, FLAGS.rounds, debug=False)
    print(text)
    if FLAGS.out:
        Path(FLAGS.out).mkdir(parents=True, exist_ok=True)
        (Path(FLAGS.out) / "table.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    app.run(main)
