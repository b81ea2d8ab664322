"""The encoder's speed against transformers on torch and against the matrix products that it consists of.

    python -m experiments.bench_encode --out=experiments/results/bench_encode

Batch 1, float32, two models: BERT-base's shape with random weights, and MiniLM. Two passes: `forward` gives the last hidden
states; `train` is their mean squared distance to fixed random targets and its gradient to every parameter, without dropout and
without an optimiser. lpe and torch have the same weights and inputs, and the outputs are compared before anything is timed.
In every round each of them runs in turn, each framework's bare matrix products too; the figures are medians over the rounds.

floor: seconds that a framework needs for the pass's matrix products alone (linear maps, attention scores and sums; in `train`
also the two products of each one's gradient), each of its own shape, timed one by one in the same run.
"""

import json
import os
import platform
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch
import transformers
from absl import app, flags
from torch import nn

import lpe
from tests import assets

flags.DEFINE_list("models", ["bert-base", "minilm"], "Which of bert-base, minilm.")
flags.DEFINE_integer("rounds", 5, "Each median is over so many rounds.", lower_bound=1)
flags.DEFINE_integer("length", 512, "Tokens.", lower_bound=1)
flags.DEFINE_integer("threads", os.cpu_count(), "torch's threads; JAX takes one per core.", lower_bound=1)
flags.DEFINE_string("out", None, "A folder for results.json and table.md.")
flags.DEFINE_bool("debug", False, "Two narrow layers, 16 tokens, one round.")
FLAGS = flags.FLAGS

SECONDS = 0.3  # at least, per timing
TOLERANCE = {"hidden states": 1e-4, "gradients": 1e-4}  # absolute; relative to the largest gradient


class Product(NamedTuple):
    """A matrix product of the pass: how often, as einsum, and its operands' shapes."""

    count: int
    form: str
    a: tuple[int, ...]
    b: tuple[int, ...]

    @property
    def flops(self) -> int:
        """A multiplication and an addition for every value of every letter."""
        letters = dict(zip(self.form.replace(",", "").split("->")[0], self.a + self.b, strict=True))
        return 2 * self.count * int(np.prod(list(letters.values())))


def linear_products(cfg, length: int, train: bool, forward: int = 1) -> list[Product]:
    """y = x W of the encoder's layers, `forward` times, and with `train` their gradients."""
    layers, found = cfg.num_hidden_layers, []
    for i, o, each in (
        (cfg.hidden_size, cfg.hidden_size, 4),
        (cfg.hidden_size, cfg.intermediate_size, 1),
        (cfg.intermediate_size, cfg.hidden_size, 1),
    ):
        x, w, y = (length, i), (i, o), (length, o)
        found.append(Product(layers * each * forward, "ti,io->to", x, w))
        if train:
            found += [Product(layers * each, "to,io->ti", y, w), Product(layers * each, "ti,to->io", x, y)]
    return found


def products(cfg, length: int, train: bool) -> list[Product]:
    """The matrix products of the encoder's layers: y = x W, scores = q kᵀ, sums = w v, and with `train` their gradients."""
    layers, heads, h = cfg.num_hidden_layers, cfg.num_attention_heads, cfg.head_dim
    found = linear_products(cfg, length, train)
    w, v = (heads, length, length), (heads, length, h)
    found.append(Product(layers * (2 if train else 1), "nth,nsh->nts", v, v))  # scores; gradient of w
    found.append(Product(layers * (2 if train else 1), "nts,nsh->nth", w, v))  # sums; gradient of q
    if train:
        found.append(Product(layers * 2, "nts,nth->nsh", w, v))  # gradients of k and v
    return found


def floors(todo: list[Product]) -> dict[str, Callable[[], list[float]]]:
    """For each framework, what measures the seconds of every product."""
    rng = np.random.default_rng(0)
    arrays = [[rng.standard_normal(shape, dtype=np.float32) for shape in (p.a, p.b)] for p in todo]
    in_jax = [[jnp.asarray(x) for x in pair] for pair in arrays]
    in_torch = [[torch.from_numpy(x) for x in pair] for pair in arrays]
    multiply = jax.jit(jnp.einsum, static_argnums=0)

    def with_jax() -> list[float]:
        return [
            p.count * seconds(lambda p=p, x=x: multiply(p.form, *x).block_until_ready())
            for p, x in zip(todo, in_jax, strict=True)
        ]

    def with_torch() -> list[float]:
        with torch.inference_mode():
            return [p.count * seconds(lambda p=p, x=x: torch.einsum(p.form, *x)) for p, x in zip(todo, in_torch, strict=True)]

    return {"jax": with_jax, "torch": with_torch}


def seconds(run: Callable[[], object]) -> float:
    """The mean of one call, over as many as fill SECONDS, after one that is not timed."""
    start = time.perf_counter()
    run()
    repeat = max(1, round(SECONDS / (time.perf_counter() - start)))
    start = time.perf_counter()
    for _ in range(repeat):
        run()
    return (time.perf_counter() - start) / repeat


def checkpoint(name: str, folder: Path) -> Path:
    """The folder that both sides load."""
    if name == "minilm":
        return assets.path(name)
    if name not in ("bert-base", "debug"):
        raise ValueError(f"--models: {name!r} is not known; there are bert-base and minilm")
    tiny: dict[str, Any] = dict(vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32)
    torch.manual_seed(0)
    model = transformers.BertModel(transformers.BertConfig(**tiny if name == "debug" else {}))
    with torch.no_grad():
        for p in model.parameters():  # no bias is 0 and no scale 1, so that the comparison sees them all
            p.add_(0.02 * torch.randn(p.shape))
    model.save_pretrained(folder / name)
    return folder / name


class Sides(NamedTuple):
    """The same pass in lpe and torch; each runs to its end."""

    lpe: Callable[[], object]
    torch: Callable[[], object]


def sides(folder: Path, length: int) -> tuple[lpe.Model, dict[str, Sides], dict[str, float]]:
    """Both models with their passes, and how far apart their outputs are. Raises ValueError where that is too far."""
    ours = lpe.from_pretrained(folder)
    theirs = transformers.AutoModel.from_pretrained(folder, attn_implementation="sdpa", dtype=torch.float32).eval()
    if hasattr(theirs, "pooler"):
        theirs.pooler = None  # not part of what is timed
    rng = np.random.default_rng(0)
    ids = rng.integers(5, ours.config.vocab_size, (1, length))
    target = rng.standard_normal((1, length, ours.config.hidden_size), dtype=np.float32)
    batch, target_jax = {"input_ids": jnp.asarray(ids, jnp.int32)}, jnp.asarray(target)
    ids_torch, target_torch = torch.from_numpy(ids), torch.from_numpy(target)

    encode = jax.jit(lambda model, batch: model.encode(batch))
    gradient = jax.jit(jax.grad(lambda model, batch, target: jnp.square(model.encode(batch) - target).mean()))

    @torch.inference_mode()
    def forward() -> torch.Tensor:
        return theirs(input_ids=ids_torch).last_hidden_state

    def backward() -> torch.Tensor:
        theirs.zero_grad(set_to_none=True)
        nn.functional.mse_loss(theirs(input_ids=ids_torch).last_hidden_state, target_torch).backward()
        return theirs.embeddings.position_embeddings.weight.grad

    apart = {"hidden states": float(np.abs(np.asarray(encode(ours, batch)) - forward().numpy()).max())}
    table = np.asarray(gradient(ours, batch, target_jax).params["position"]["table"])
    want = backward().numpy()
    apart["gradients"] = float(np.abs(table - want).max() / np.abs(want).max())
    for what, found in apart.items():
        if not found < TOLERANCE[what]:
            raise ValueError(f"{folder}: lpe's and torch's {what} differ by {found:.1e}; nothing is timed")
    passes = {
        "forward": Sides(lambda: encode(ours, batch).block_until_ready(), forward),
        "train": Sides(lambda: jax.block_until_ready(gradient(ours, batch, target_jax)), backward),
    }
    return ours, passes, apart


def measure(name: str, folder: Path, length: int, rounds: int) -> list[dict]:
    """A row for each pass of a model, all timed in turn in every round."""
    ours, passes, apart = sides(checkpoint(name, folder), length)
    todo = {p: products(ours.config, length, p == "train") for p in passes}
    bare = {p: floors(todo[p]) for p in passes}
    times: dict = {p: {"lpe": [], "torch": [], "jax_floor": [], "torch_floor": []} for p in passes}
    for _ in range(rounds):
        for p, side in passes.items():
            times[p]["lpe"].append(seconds(side.lpe))
            times[p]["torch"].append(seconds(side.torch))
            times[p]["jax_floor"].append(bare[p]["jax"]())
            times[p]["torch_floor"].append(bare[p]["torch"]())
    return [{"model": name, "pass": p, "tokens": length, "apart": apart, **row(todo[p], times[p])} for p in passes]


def row(todo: list[Product], times: dict[str, list]) -> dict:
    """Medians, rates in GFLOP/s and ratios."""
    flops = sum(p.flops for p in todo)
    mid: dict[str, float] = {who: median(times[who]) for who in ("lpe", "torch")}
    shapes = {}
    for who in ("jax_floor", "torch_floor"):
        each = [median(column) for column in zip(*times[who], strict=True)]
        mid[who] = sum(each)
        shapes[who] = {f"{p.form} {p.a} {p.b}": p.flops / s / 1e9 for p, s in zip(todo, each, strict=True)}
    return {
        "gflop": flops / 1e9,
        "seconds": mid,
        "gflop_per_second": {who: flops / s / 1e9 for who, s in mid.items()},
        "lpe_of_jax_floor": mid["jax_floor"] / mid["lpe"],
        "torch_of_torch_floor": mid["torch_floor"] / mid["torch"],
        "lpe_over_torch": mid["lpe"] / mid["torch"],
        "gflop_per_second_by_product": shapes,
        "all_seconds": {who: times[who] for who in ("lpe", "torch")},
    }


def table(rows: list[dict]) -> str:
    """The results as Markdown."""
    lines = [
        "| model | pass | tokens | lpe / its floor | torch / its floor | lpe's time / torch's | lpe ms | torch ms "
        "| JAX products GFLOP/s | torch products GFLOP/s |",
        "|" + "---|" * 10,
    ]
    for r in rows:
        ms, rate = {k: 1e3 * v for k, v in r["seconds"].items()}, r["gflop_per_second"]
        lines.append(
            f"| {r['model']} | {r['pass']} | {r['tokens']} | {r['lpe_of_jax_floor']:.2f} | {r['torch_of_torch_floor']:.2f} "
            f"| {r['lpe_over_torch']:.2f} | {ms['lpe']:.1f} | {ms['torch']:.1f} "
            f"| {rate['jax_floor']:.0f} | {rate['torch_floor']:.0f} |"
        )
    return "\n".join(lines) + "\n"


def settings() -> dict:
    """What the figures hold for."""
    return {
        "machine": {"cores": os.cpu_count(), "processor": platform.processor() or platform.machine()},
        "versions": {p: version(p) for p in ("jax", "jaxlib", "torch", "transformers", "numpy")},
        "jax": {"XLA_FLAGS": os.environ.get("XLA_FLAGS", ""), "threads": os.cpu_count()},
        "GLIBC_TUNABLES": os.environ.get("GLIBC_TUNABLES", ""),
        "torch": {
            "threads": torch.get_num_threads(),
            "attn_implementation": "sdpa",
            "forward": "inference_mode, eval, no attention_mask, no pooler",
            "train": "eval (no dropout), zero_grad(set_to_none=True), no optimiser",
            "mkl": torch.backends.mkl.is_available(),
            "mkldnn": torch.backends.mkldnn.is_available(),
        },
        "rounds": FLAGS.rounds,
    }


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"{argv[1:]}: there are only flags")
    torch.set_num_threads(FLAGS.threads)
    models, length, rounds = FLAGS.models, FLAGS.length, FLAGS.rounds
    if FLAGS.debug:
        models, length, rounds = ["debug"], 16, 1
    with tempfile.TemporaryDirectory() as folder:
        rows = [row for name in models for row in measure(name, Path(folder), length, rounds)]
    print(table(rows))
    if FLAGS.out:
        out = Path(FLAGS.out)
        out.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"settings": settings(), "rows": rows}, indent=2) + "\n"
        (out / "results.json").write_text(text, encoding="utf-8")
        (out / "table.md").write_text(table(rows), encoding="utf-8")


if __name__ == "__main__":
    app.run(main)
