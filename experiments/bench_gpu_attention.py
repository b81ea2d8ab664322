"""One windowed attention on an accelerator: lpe's blocks against jax.nn.dot_product_attention, XLA's and cuDNN's.

    python -m experiments.bench_gpu_attention --out=experiments/results/bench_gpu_attention

12 heads of 64, bfloat16, batch 4, window 512 without global tokens, forward and with gradients. Before anything is timed all
are compared with lpe's dense reference. cuDNN is left out where there is no GPU.
"""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags
from jax import Array

from lpe import linear, registry, tokens
from lpe.attention import window
from lpe.attention.base import Call
from lpe.models.bert import BertConfig
from lpe.positions.base import Bound, PositionMethod

flags.DEFINE_list("lengths", ["4096", "16384", "65536"], "Tokens.")
flags.DEFINE_list("blocks", ["128", "256", "512", "1024"], "Sizes of lpe's blocks.")
flags.DEFINE_integer("window", 512, "attention_window.", lower_bound=1)
flags.DEFINE_integer("batch", 4, "Rows.", lower_bound=1)
flags.DEFINE_integer("rounds", 10, "Each median is over so many.", lower_bound=1)
flags.DEFINE_string("out", None, "A folder for table.md.")
FLAGS = flags.FLAGS
HEADS, HEAD_DIM = 12, 64
TOLERANCE = 0.05  # of the largest value; bfloat16 has 8 bits


def lpe_window(size: int | None, q: Array, k: Array, v: Array) -> Array:
    """lpe with blocks of `size`; the dense reference for None."""
    cfg = BertConfig(hidden_size=HEADS * HEAD_DIM, num_attention_heads=HEADS, num_hidden_layers=1)
    window.BLOCK = (size or 64, size or 64)
    pattern = registry.make("attention", {"name": "window", "attention_window": FLAGS.window}, cfg)
    tok = tokens.from_batch({"input_ids": jnp.zeros(q.shape[:2], jnp.int32)})
    wide = jnp.zeros((*q.shape[:2], cfg.hidden_size), q.dtype)
    bound, drop = Bound({}, PositionMethod({})), linear.Dropout()
    call = Call(wide, wide, q, k, v, tok, tok, HEAD_DIM**-0.5, bound, jnp.int32(0), drop)
    return (pattern.attend if size and pattern.attend else pattern.reference)({}, call)


def jax_window(implementation: Literal["xla", "cudnn"], q: Array, k: Array, v: Array) -> Array:
    half = FLAGS.window // 2
    return jax.nn.dot_product_attention(q, k, v, local_window_size=(half, half), implementation=implementation)


def both(attend: Callable) -> dict[str, Callable]:
    loss = lambda *x: jnp.square(attend(*x).astype(jnp.float32)).sum()  # noqa: E731
    return {"forward": jax.jit(attend), "with gradients": jax.jit(jax.grad(loss, (0, 1, 2)))}


def apart(found, wanted) -> float:
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True)
    return max(float(np.abs(np.float32(a) - np.float32(b)).max() / np.abs(np.float32(b)).max()) for a, b in pairs)


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"{argv[1:]}: there are only flags")
    ways = {f"lpe, blocks of {n}": partial(lpe_window, int(n)) for n in FLAGS.blocks}
    ways |= {"jax, XLA (dense)": partial(jax_window, "xla")}
    if jax.default_backend() == "gpu":
        ways |= {"jax, cuDNN": partial(jax_window, "cudnn")}
    lines = [f"{jax.devices()[0].device_kind}, window {FLAGS.window}, batch {FLAGS.batch}, bfloat16", ""]
    lines += ["| tokens | way | forward ms | with gradients ms |", "|---|---|---|---|"]
    for n, length in enumerate(map(int, FLAGS.lengths)):
        shape = (FLAGS.batch, length, HEADS, HEAD_DIM)
        x = [jax.random.normal(k, shape, jnp.bfloat16) for k in jax.random.split(jax.random.key(0), 3)]
        wanted = {what: run(*x) for what, run in both(partial(lpe_window, None)).items()} if n == 0 else {}
        for way, attend in ways.items():
            if n and "dense" in way:
                continue  # of the size length × length
            cells = []
            for what, run in both(attend).items():
                found = jax.block_until_ready(run(*x))
                if what in wanted and not apart(found, wanted[what]) < TOLERANCE:
                    raise ValueError(f"{way}, {what}: {apart(found, wanted[what]):.1e} from the reference; nothing is timed")
                times = []
                for _ in range(FLAGS.rounds):
                    start = time.perf_counter()
                    jax.block_until_ready(run(*x))
                    times.append(time.perf_counter() - start)
                cells.append(f"{1e3 * median(times):.2f}")
            lines.append(f"| {length} | {way} | {' | '.join(cells)} |")
    text = "\n".join(lines) + "\n"
    print(text)
    if FLAGS.out:
        Path(FLAGS.out).mkdir(parents=True, exist_ok=True)
        (Path(FLAGS.out) / "table.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    app.run(main)
