"""Sizes of block for windowed attention: milliseconds of one attention, forward and with gradient, on this machine.

    python -m experiments.bench_blocks --out=experiments/results/bench_attention

12 heads of 64, 4,096 tokens, float32, no global tokens. All sizes of a window run in turn in every round; figures are medians.
lpe/attention/window.py has the choice that was made from it.
"""

import timeit
from pathlib import Path
from statistics import median

import jax
import jax.numpy as jnp
from absl import app, flags

from lpe import linear, registry, tokens
from lpe.attention import window
from lpe.attention.base import Call
from lpe.models.bert import BertConfig
from lpe.positions.base import Bound, PositionMethod

flags.DEFINE_integer("tokens", 4096, "Length.", lower_bound=1)
flags.DEFINE_integer("rounds", 5, "Each median is over so many rounds.", lower_bound=1)
flags.DEFINE_string("out", None, "A folder for blocks.md.")
flags.DEFINE_bool("debug", False, "64 tokens, 2 narrow heads, one round.")
FLAGS = flags.FLAGS


def table(length: int, heads: int, head_dim: int, rounds: int) -> str:
    """Milliseconds of one attention, forward and with gradient, for windows and sizes of block."""
    cfg = BertConfig(hidden_size=heads * head_dim, num_attention_heads=heads, num_hidden_layers=1)
    x = [jax.random.normal(k, (1, length, heads, head_dim)) for k in jax.random.split(jax.random.key(0), 3)]
    tok = tokens.from_batch({"input_ids": jnp.zeros((1, length), jnp.int32)})
    wide = jnp.zeros((1, length, cfg.hidden_size))
    lines, chosen = ["| window | block | forward ms | with gradient ms |", "|---|---|---|---|"], window.BLOCK
    for w in (32, 128, 512, 1024):
        runs = {}
        for size in (32, 64, 128, 256, 512):
            window.BLOCK = (size, size)
            pattern = registry.make("attention", {"name": "window", "attention_window": w}, cfg)

            def attend(q, k, v, pattern=pattern):
                bound, drop = Bound({}, PositionMethod({})), linear.Dropout()
                call = Call(wide, wide, q, k, v, tok, tok, head_dim**-0.5, bound, jnp.int32(0), drop)
                return (pattern.attend or pattern.reference)({}, call)

            forward = jax.jit(attend)
            both = jax.jit(jax.grad(lambda *x, f=attend: f(*x).sum(), (0, 1, 2)))
            jax.block_until_ready((forward(*x), both(*x)))
            runs[size] = forward, both
        times = {size: ([], []) for size in runs}
        for _ in range(rounds):
            for size, pair in runs.items():
                for found, run in zip(times[size], pair, strict=True):
                    found.append(timeit.timeit(lambda run=run: jax.block_until_ready(run(*x)), number=1))
        lines += [f"| {w} | {s} | {1e3 * median(f):.0f} | {1e3 * median(b):.0f} |" for s, (f, b) in times.items()]
    window.BLOCK = chosen
    return "\n".join(lines) + "\n"


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"{argv[1:]}: there are only flags")
    text = table(*(64, 2, 8, 1) if FLAGS.debug else (FLAGS.tokens, 12, 64, FLAGS.rounds))
    print(text)
    if FLAGS.out:
        Path(FLAGS.out).mkdir(parents=True, exist_ok=True)
        (Path(FLAGS.out) / "blocks.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    app.run(main)
