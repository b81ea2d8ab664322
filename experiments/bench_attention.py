"""Windows against the peers: speed, memory and growth of Longformer's attention at BERT-base's shape.

    python -m experiments.bench_attention --out=experiments/results/bench_attention

Batch 1, float32, random weights that both sides load, window 512 with [CLS] global. Passes as in bench_encode: `forward` gives
the last hidden states, `train` the gradient of their mean squared distance to fixed targets to every parameter, without dropout
and optimiser. The outputs are compared before anything is timed. In every round each contestant runs in turn, then JAX's bare
matrix products; ratios are taken within a round, figures are medians over rounds.

windows: lpe (without remat, and with remat="full") and transformers' LongformerModel on torch.
dense: lpe with full attention and transformers' BertModel with sdpa, at several lengths, beside lpe's windows.
floor: seconds of the matrix products that the pass does, each of its own shape: linear maps, every block of queries with the
  keys of its window, and what the backward pass makes anew; not the global token's, which are .2 % of them.
memory: the highest resident size of a process of its own that makes one such pass, everything included.
"""

import gc
import json
import resource
import subprocess
import sys
import tempfile
import timeit
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
import transformers
from absl import app, flags
from torch import nn

import lpe
from experiments import bench_encode
from experiments.bench_encode import Product
from lpe.attention import window

flags.DEFINE_integer("window", 512, "attention_window.", lower_bound=1)
flags.DEFINE_integer("tokens", 4096, "Length of the comparison with Longformer.", lower_bound=8)
flags.DEFINE_list("dense", ["512", "1024", "2048", "4096"], "Lengths of the comparison with dense attention.")
flags.DEFINE_integer("growth", 4, "The last length is so many times --tokens.", lower_bound=1)
flags.DEFINE_string("memory_of", None, "Internal: make one pass, print the peak memory. SIDE:PASS:REMAT:FOLDER")
FLAGS = flags.FLAGS


def config(**changes: Any) -> dict:
    small = dict(vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32)
    return {**(small if FLAGS.debug else {"vocab_size": 30522}), "type_vocab_size": 2, **changes}


def save(model: transformers.PreTrainedModel, folder: Path) -> Path:
    with torch.no_grad():
        for p in model.parameters():  # no bias is 0 and no scale 1, so that the comparison sees them all
            p.add_(0.02 * torch.randn(p.shape))
    model.save_pretrained(folder)
    return folder


def batch(model_config, length: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """One row of ids whose first token is global, and the targets of `train`."""
    rng = np.random.default_rng(0)
    ids = rng.integers(5, model_config.vocab_size, (1, length))
    return {"input_ids": ids}, rng.standard_normal((1, length, model_config.hidden_size), dtype=np.float32)


def ours(folder: Path, length: int, what: str, remat: str = "none", attention: dict | None = None) -> Callable[[], np.ndarray]:
    """A pass of lpe. Returns what is compared: hidden states, or the gradient of the position table."""
    model = lpe.from_pretrained(folder, remat=remat, attention=attention, position={"name": "learned"})
    inputs, target = batch(model.config, length)
    inputs = {k: jnp.asarray(v, jnp.int32) for k, v in inputs.items()}
    if what == "forward":
        encode = jax.jit(lambda model, inputs: model.encode(inputs))
        return lambda: np.asarray(encode(model, inputs))
    loss = lambda model, inputs, target: jnp.square(model.encode(inputs) - target).mean()  # noqa: E731
    gradient = jax.jit(jax.grad(loss))
    target = jnp.asarray(target)
    return lambda: np.asarray(jax.block_until_ready(gradient(model, inputs, target)).params["position"]["table"])


def theirs(folder: Path, length: int, what: str) -> Callable[[], np.ndarray]:
    """A pass of transformers on torch."""
    kind = {} if "longformer" in (folder / "config.json").read_text(encoding="utf-8") else {"attn_implementation": "sdpa"}
    model: Any = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32, add_pooling_layer=False, **kind).eval()
    inputs, target = batch(model.config, length)
    tensors = {k: torch.from_numpy(v) for k, v in inputs.items()}
    if not kind:
        tensors["global_attention_mask"] = (torch.arange(length) == 0).long()[None]
    target = torch.from_numpy(target)

    def forward() -> np.ndarray:
        with torch.inference_mode():
            return model(**tensors).last_hidden_state.numpy()

    def train() -> np.ndarray:
        model.zero_grad(set_to_none=True)
        nn.functional.mse_loss(model(**tensors).last_hidden_state, target).backward()
        return model.embeddings.position_embeddings.weight.grad.numpy()

    return forward if what == "forward" else train


def compared(name: str, runs: dict[str, Callable[[], np.ndarray]], tolerance: float = 1e-4) -> float:
    """Runs each once. Raises ValueError where they are further apart than `tolerance` of the largest value."""
    found = {who: run() for who, run in runs.items()}
    first, *rest = found.values()
    apart = max((float(np.abs(x - first).max() / np.abs(first).max()) for x in rest), default=0.0)
    if not apart < tolerance:
        raise ValueError(f"{name}: {', '.join(found)} differ by {apart:.1e}; nothing is timed")
    return apart


def products(cfg, length: int, what: str, remat: str) -> list[Product]:
    """The matrix products of a windowed pass, as lpe does them."""
    reach = window.Reach(FLAGS.window // 2, FLAGS.window // 2, (1,) * cfg.num_attention_heads)
    band = window._band(reach, length)
    layers, n, h = cfg.num_hidden_layers, cfg.num_attention_heads, cfg.head_dim
    forward = 1 + (remat == "full") * (what == "train")
    found = bench_encode.linear_products(cfg, length, what == "train", forward)
    blocks = layers * -(-length // band.size)
    q, k = (n, band.size, h), (n, band.left + band.size + band.right, h)
    w = (n, q[1], k[1])
    again = forward + (what == "train")  # the backward pass of a block makes it anew
    found.append(Product(blocks * (again + (what == "train")), "nth,nsh->nts", q, k))  # scores; gradient of w
    found.append(Product(blocks * (again + (what == "train")), "nts,nsh->nth", w, k))  # sums; gradient of q
    if what == "train":
        found.append(Product(blocks * 2, "nth,nts->nhs", q, w))  # gradients of k and v
    return found


def floor(todo: list[Product]) -> Callable[[], float]:
    """Measures the seconds of all products in JAX."""
    rng = np.random.default_rng(0)
    arrays = [[jnp.asarray(rng.standard_normal(s, dtype=np.float32)) for s in (p.a, p.b)] for p in todo]
    multiply = jax.jit(jnp.einsum, static_argnums=0)

    def measure() -> float:
        return sum(
            p.count * bench_encode.seconds(lambda p=p, x=x: multiply(p.form, *x).block_until_ready())
            for p, x in zip(todo, arrays, strict=True)
        )

    return measure


def windows(folder: Path, rounds: int, note: Callable[[dict], None]) -> dict:
    """lpe and torch's Longformer, both passes, and lpe at --growth times the length."""
    cfg = lpe.from_pretrained(folder).config
    long = FLAGS.tokens * FLAGS.growth
    spec = attention()
    contestants = {
        "forward": {
            "lpe": ours(folder, FLAGS.tokens, "forward", attention=spec),
            "torch": theirs(folder, FLAGS.tokens, "forward"),
        },
        "train": {
            "lpe": ours(folder, FLAGS.tokens, "train", attention=spec),
            "lpe, remat": ours(folder, FLAGS.tokens, "train", "full", spec),
            "torch": theirs(folder, FLAGS.tokens, "train"),
        },
    }
    floors = {"forward": {"lpe": floor(products(cfg, FLAGS.tokens, "forward", "none"))}, "train": {}}
    for who, remat in (("lpe", "none"), ("lpe, remat", "full")):
        floors["train"][who] = floor(products(cfg, FLAGS.tokens, "train", remat))
    apart = {what: compared(what, runs) for what, runs in contestants.items()}
    grown = ours(folder, long, "forward", attention=spec)
    grown()
    times: dict = {what: {who: [] for who in runs} for what, runs in contestants.items()}
    bare: dict = {what: {who: [] for who in runs} for what, runs in floors.items()}
    times["growth"] = {str(long): []}
    result = {"apart": apart, "seconds": times, "floor": bare, "gflop": {}}
    result["gflop"] = {
        f"{what} {remat}": sum(p.flops for p in products(cfg, FLAGS.tokens, what, remat)) / 1e9
        for what, remat in (("forward", "none"), ("train", "none"), ("train", "full"))
    }
    for _ in range(rounds):
        for what, runs in contestants.items():
            for who, run in runs.items():
                times[what][who].append(timeit.timeit(run, number=1))
                if who in floors[what]:
                    bare[what][who].append(floors[what][who]())
        times["growth"][str(long)].append(timeit.timeit(grown, number=1))
        note(result)
    return result


def attention() -> dict:
    return {"name": "window", "attention_window": FLAGS.window, "global_tokens": "cls"}


def dense(longformer: Path, bert: Path, rounds: int, note: Callable[[dict], None]) -> dict:
    """Forward passes at several lengths."""
    lengths = [int(n) for n in FLAGS.dense]
    runs: dict = {}
    for n in lengths:
        full = {"lpe, dense": ours(bert, n, "forward"), "torch BERT, sdpa": theirs(bert, n, "forward")}
        compared(f"dense {n}", full)
        runs[str(n)] = {**full, "lpe, window": ours(longformer, n, "forward", attention=attention())}
        runs[str(n)]["lpe, window"]()
    times = {n: {who: [] for who in each} for n, each in runs.items()}
    for _ in range(rounds):
        for n, each in runs.items():
            for who, run in each.items():
                times[n][who].append(timeit.timeit(run, number=1))
        note(times)
    return times


def memory(folder: Path) -> dict[str, float]:
    """Peak resident GB of a fresh process for each side and pass."""
    out = {}
    for side, what, remat in (
        ("lpe", "forward", "none"), ("torch", "forward", "none"), ("lpe", "train", "none"), ("lpe", "train", "full"),
        ("torch", "train", "none"),
    ):  # fmt: skip
        flags_ = [f"--memory_of={side}:{what}:{remat}:{folder}", f"--tokens={FLAGS.tokens}", f"--window={FLAGS.window}"]
        run = [sys.executable, "-m", "experiments.bench_attention", *flags_, f"--debug={FLAGS.debug}"]
        done = subprocess.run(run, check=True, capture_output=True, text=True)
        out[f"{side} {what}{', remat' if remat == 'full' else ''}"] = float(done.stdout.split()[-1])
    return out


def memory_of(what: str) -> None:
    side, what, remat, folder = what.split(":", 3)
    run = (
        ours(Path(folder), FLAGS.tokens, what, remat, attention())
        if side == "lpe"
        else theirs(Path(folder), FLAGS.tokens, what)
    )
    run()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9)


def table(found: dict) -> str:
    """The results as Markdown."""
    t, lines = found["windows"]["seconds"], []
    ratio = lambda a, b: median(x / y for x, y in zip(a, b, strict=True))  # noqa: E731
    lines += ["| pass | tokens | seconds | torch's time / lpe's | of the floor | peak GB | of torch's |", "|" + "---|" * 7]
    for what in ("forward", "train"):
        for who, times in t[what].items():
            bare = found["windows"]["floor"][what].get(who)
            gb = found["memory"].get(f"{'lpe' if 'lpe' in who else who} {what}{', remat' if 'remat' in who else ''}")
            of = f"{gb / found['memory'][f'torch {what}']:.2f}" if gb else ""
            lines.append(
                f"| {what}, {who} | {FLAGS.tokens} | {median(times):.2f} | {ratio(t[what]['torch'], times):.2f} "
                f"| {f'{ratio(bare, times):.2f}' if bare else ''} | {f'{gb:.2f}' if gb else ''} | {of} |"
            )
    for n, times in t["growth"].items():
        grown = ratio(times, t["forward"]["lpe"])
        lines.append(f"| forward, lpe | {n} | {median(times):.2f} | {grown:.2f} x the time at {FLAGS.tokens} | | | |")
    lines += ["", "| tokens | " + " | ".join(next(iter(found["dense"].values()))) + " |", "|" + "---|" * 4]
    lines += [
        f"| {n} | " + " | ".join(f"{median(x):.2f} s" for x in each.values()) + " |" for n, each in found["dense"].items()
    ]
    return "\n".join(lines) + "\n"


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"{argv[1:]}: there are only flags")
    torch.set_num_threads(FLAGS.threads)
    rounds = FLAGS.rounds
    if FLAGS.memory_of:
        return memory_of(FLAGS.memory_of)
    if FLAGS.debug:
        rounds, FLAGS.window, FLAGS.tokens, FLAGS.dense = 1, 8, 32, ["16", "32"]
    found: dict = {"settings": {**bench_encode.settings(), "attention": attention(), "rounds": rounds}}

    def note(key: str, part: Any) -> None:
        found[key] = part
        _write("results.json", json.dumps(found, indent=2) + "\n")

    torch.manual_seed(0)
    rows = max(FLAGS.tokens * FLAGS.growth, *(int(n) for n in FLAGS.dense))
    with tempfile.TemporaryDirectory() as temporary:
        folders = Path(temporary) / "longformer", Path(temporary) / "bert"
        shape = config(attention_window=FLAGS.window, max_position_embeddings=rows + 2, pad_token_id=1)
        save(transformers.LongformerModel(transformers.LongformerConfig(**shape), add_pooling_layer=False), folders[0])
        save(transformers.BertModel(transformers.BertConfig(**config(max_position_embeddings=rows)), False), folders[1])
        gc.collect()
        note("memory", memory(folders[0]))
        note("windows", windows(folders[0], rounds, partial(note, "windows")))
        gc.collect()
        note("dense", dense(*folders, rounds, partial(note, "dense")))
    print(table(found))
    _write("table.md", table(found))


def _write(name: str, text: str) -> None:
    if FLAGS.out:
        Path(FLAGS.out).mkdir(parents=True, exist_ok=True)
        (Path(FLAGS.out) / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    app.run(main)
