"""What each position method costs: time of a training step, peak memory and parameters, at several lengths.

    python -m experiments.bench_positions --out=experiments/results/bench_positions   # half an hour, all else idle
    python -m experiments.bench_positions --out=… --memory   # memory compiled anew, the times of that folder kept; two minutes

One model with random weights, batch 1, float32, remat="full" at every length; only the position method differs. A step is the
mean squared distance of the last hidden states to fixed random targets and its gradient to every parameter, without dropout and
without an optimiser. In every round each method's step runs in turn, in an order drawn anew and as often as fills 0.2 s, then
the matrix products; short lengths have more rounds. At 512 tokens rounds differ by a factor: a few per cent mean nothing there.

A method is given max_length = the length (at least the trained rows) where it takes one, else its defaults. One for causal
models gets causal attention; one that scales queries, and tells no places apart, stands beside `rope`.

baseline: `random`, a plain lookup in a table with a row for every place, at any length: the original BERT with a longer table.
  For causal methods it is causal too.
floor: as in bench_encode, seconds of the model's matrix products alone, timed in the same round; not those that a method adds,
  nor those that remat="full" repeats.
memory: arguments, outputs and temporaries of the compiled step, as XLA's memory analysis gives them; not what the system saw.
times: each ratio is taken within a round; its median over the rounds, and in brackets the lowest and the highest.
"""

import dataclasses
import json
import time
import timeit
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags

from experiments import bench_encode
from lpe import build, model, params, registry, workdir
from lpe.models.bert import BertConfig

flags.DEFINE_list("lengths", ["512", "2048", "8192"], "Tokens.")
flags.DEFINE_list("methods", registry.names("positions"), "Which position methods; the baseline runs in any case.")
flags.DEFINE_float("fill", 100.0, "Seconds to fill with rounds at each length.", lower_bound=0.0)
flags.DEFINE_bool("memory", False, "Compile the rows of --out's results.json again: new memory, the times as they were.")
flags.DEFINE_integer("trained", 512, "Rows of the trained table.", lower_bound=1)
flags.DEFINE_integer("layers", 2, "Layers.", lower_bound=1)
flags.DEFINE_integer("hidden", 256, "Hidden size; the intermediate one is four times that.", lower_bound=1)
flags.DEFINE_integer("heads", 4, "Attention heads.", lower_bound=1)
FLAGS = flags.FLAGS

BASELINE = "random"
WITH_SCALES = "rope"


class Claim(NamedTuple):
    """A source's figure: `what` of `method` over that of `over`. No tokens: at every length."""

    source: str
    says: str
    said: str
    what: str
    method: str
    over: str
    tokens: int | None = None
    over_tokens: int | None = None  # None = tokens


TABLE_001 = {  # of 2,048 tokens: GB, ms of inference; its "NTK-aware" is read on sinusoids and on rotations
    "interpolate": (12.4, 210),
    "sinusoidal_ntk": (15.2, 280),
    "rope_ntk": (15.2, 280),
    "hierarchical": (18.7, 320),
}
NTK_001 = "NTK-aware takes 40 % more time at 8K tokens than the original BERT"  # which does not say at how many


def _claims() -> tuple[Claim, ...]:
    (low_gb, low_ms), found = TABLE_001["interpolate"], []
    for method, (gb, ms) in list(TABLE_001.items())[1:]:
        says = f"{gb} GB and {ms} ms, for linear interpolation's {low_gb} GB and {low_ms} ms"
        found.append(Claim("001, 4.2", says, f"{gb / low_gb:.2f}", "bytes", method, "interpolate", 2048))
        found.append(Claim("001, 4.2", says, f"{ms / low_ms:.2f}", "seconds", method, "interpolate", 2048))
    for method in ("sinusoidal_ntk", "rope_ntk"):
        found.append(Claim("001, 5", NTK_001, "1.40", "seconds", method, BASELINE, 8192))
        found.append(Claim("001, 5", NTK_001, "1.40", "seconds", method, BASELINE, 8192, 512))
    return (
        *found,
        Claim("000", "NEZHA's relative positions add computation", "above 1", "seconds", "nezha", BASELINE),
        Claim("000", "T5's do not", "1", "seconds", "t5", BASELINE),
    )


CLAIMS = _claims()


class Case(NamedTuple):
    """What is timed: methods, the last of which the row is about, and the attention that they need."""

    names: tuple[str, ...]
    causal: bool

    @property
    def label(self) -> str:
        return " + ".join(self.names) + (", causal" if self.causal else "")

    def recipe(self, cfg: BertConfig, length: int) -> build.Recipe:
        """Raises ValueError where a method does not reach the length."""
        specs = [{"name": name} for name in self.names]
        limited = any(registry.takes("positions", spec, "max_length") for spec in specs)
        position = build.positions(specs, max(length, cfg.max_position_embeddings) if limited else None)
        attention = build.freeze({"name": "full", "causal": self.causal})
        return build.Recipe("bert", cfg, (), position, attention, remat="full")


def cases(methods: Sequence[str], cfg: BertConfig) -> list[Case]:
    """The baselines, then every method with what it needs by its own claims. Raises ValueError for an unknown method."""
    found = []
    for name in methods:
        claims = registry.make("positions", {"name": name}, cfg).claims
        names = (WITH_SCALES, name) if "query_scale" in claims else (name,)
        found.append(Case(names, "causal_only" in claims))
    baselines = [Case((BASELINE,), causal) for causal in sorted({False} | {c.causal for c in found})]
    return list(dict.fromkeys([*baselines, *found]))


def loss(m: model.Model, batch: dict[str, jax.Array], target: jax.Array) -> jax.Array:
    return jnp.square(m.encode(batch) - target).mean()


def compiled(recipe: build.Recipe, length: int) -> tuple[Callable[[], object], dict]:
    """A step that runs to its end and drops its results; and its bytes and the position method's parameters."""
    cfg, rng = recipe.config, np.random.default_rng(0)
    m = model.Model(params.init(build.network(recipe).specs, jax.random.key(0)), recipe)
    batch = {"input_ids": jnp.asarray(rng.integers(5, cfg.vocab_size, (1, length)), jnp.int32)}
    target = jnp.asarray(rng.standard_normal((1, length, cfg.hidden_size), dtype=np.float32))
    step = jax.jit(jax.value_and_grad(loss)).lower(m, batch, target).compile()
    memory = step.memory_analysis()
    parts = {part: getattr(memory, f"{part}_size_in_bytes") for part in ("argument", "output", "temp")}
    facts = {"bytes": sum(parts.values()), "bytes_by_part": parts, "parameters": params.count(m.params.get("position", {}))}
    return lambda: jax.block_until_ready(step(m, batch, target)), facts


def floor(todo: list[bench_encode.Product]) -> float:
    """One product at a time: at 8,192 tokens the operands of one are gigabytes."""
    return sum(bench_encode.floors([p])["jax"]()[0] for p in todo)


def measure(todo: list[Case], cfg: BertConfig, length: int, rounds: int, fill: float) -> tuple[dict, list[dict]]:
    """The floor of a length, and a row for each case; at least so many rounds, and more until `fill` seconds are over."""
    rows, steps = [], []
    for case in todo:
        row: dict[str, Any] = {"method": case.names[-1], "model": case.label, "causal": case.causal, "tokens": length}
        rows.append(row)
        try:
            recipe = case.recipe(cfg, length)
            build.network(recipe)
        except ValueError as refusal:
            row["refused"] = str(refusal)
            continue
        run, facts = compiled(recipe, length)
        row.update(facts, seconds=[])
        steps.append((row, timer := timeit.Timer(run), timer.autorange()[0]))  # warm, and as many as fill 0.2 s
    products = bench_encode.products(cfg, length, train=True)
    floors, order, start = [], np.random.default_rng(0), time.monotonic()
    while len(floors) < rounds or time.monotonic() - start < fill:
        for i in order.permutation(len(steps)):
            row, timer, number = steps[i]
            row["seconds"].append(timer.timeit(number) / number)
        floors.append(floor(products))
    return {"tokens": length, "gflop": sum(p.flops for p in products) / 1e9, "seconds": floors}, rows


def again(old: dict, todo: list[Case], cfg: BertConfig, length: int) -> tuple[dict, list[dict]]:
    """The floor and rows of a length as they were measured, with what the present code's steps take of memory."""
    case = {c.label: c for c in todo}
    rows = [r for r in old["rows"] if r["tokens"] == length]
    for r in (r for r in rows if "refused" not in r):
        r.update(compiled(case[r["model"]].recipe(cfg, length), length)[1])
    return next(f for f in old["floors"] if f["tokens"] == length), rows


def over(a: list[float], b: list[float]) -> dict[str, float]:
    """Ratios round by round; of other lengths, whose rounds are others, by the median of the second."""
    each = [x / y for x, y in zip(a, b if len(a) == len(b) else [median(b)] * len(a), strict=True)]
    return {"median": median(each), "lowest": min(each), "highest": max(each)}


def compare(floors: list[dict], rows: list[dict]) -> None:
    """Adds to each row that was measured how it stands to its baseline and its floor."""
    seconds = {f["tokens"]: f["seconds"] for f in floors}
    for row in rows:
        if "refused" not in row:
            base = find(rows, BASELINE, row["tokens"], row["causal"])
            assert base is not None
            row["time_of_baseline"] = over(row["seconds"], base["seconds"])
            row["time_of_floor"] = over(row["seconds"], seconds[row["tokens"]])
            row["memory_of_baseline"] = row["bytes"] / base["bytes"]
            row["mib_beyond_baseline"] = (row["bytes"] - base["bytes"]) / 2**20


def find(rows: list[dict], method: str, tokens: int, causal: bool = False) -> dict | None:
    """The row, where that was measured."""
    key = (method, tokens, causal)
    return next((r for r in rows if (r["method"], r["tokens"], r["causal"]) == key and "refused" not in r), None)


def shown(ratio: dict[str, float]) -> str:
    return f"{ratio['median']:.2f} ({ratio['lowest']:.2f} to {ratio['highest']:.2f})"


def head(cfg: BertConfig, rounds: int) -> str:
    return (
        "# What each position method costs\n\n"
        f"{cfg.num_hidden_layers} layers of {cfg.hidden_size}, {cfg.num_attention_heads} heads, {cfg.max_position_embeddings} "
        f"trained rows; batch 1, float32, remat full; {rounds} rounds or more: the median, the lowest and the highest. "
        "The docstring of bench_positions.py says what baseline, floor and memory are.\n"
    )


def table(floors: list[dict], rows: list[dict]) -> str:
    """The results as Markdown, a table for each length."""
    lines = []
    for f in floors:
        rate = f["gflop"] / median(f["seconds"])
        lines += [
            f"## {f['tokens']:,} tokens",
            "",
            f"{len(f['seconds'])} rounds. Floor: {f['gflop']:,.4g} GFLOP, of which this machine does {rate:,.4g} in a second.",
            "",
            "| method | time / baseline's | time / floor | memory / baseline's | memory beyond it, MiB | position parameters |",
            "|" + "---|" * 6,
        ]
        for r in (r for r in rows if r["tokens"] == f["tokens"]):
            cells = ["–"] * 5
            if "refused" not in r:
                memory = f"{r['memory_of_baseline']:.2f}", f"{r['mib_beyond_baseline']:z,.1f}"
                cells = [shown(r["time_of_baseline"]), f"{r['time_of_floor']['median']:.2f}", *memory, f"{r['parameters']:,}"]
            lines.append(f"| {r['model']} | {' | '.join(cells)} |")
        lines += ["", *(f"{r['model']}: {r['refused']}\n" for r in rows if "refused" in r and r["tokens"] == f["tokens"])]
    return "\n".join(lines)


def claims(lengths: Sequence[int], rows: list[dict]) -> str:
    """What the sources say, beside what was measured here."""
    lines = [
        "## Claims",
        "",
        "001's figures are of inference on a V100, model and batch not stated; those measured are of the training step above.",
        "",
        "| source | says | ratio | said | measured |",
        "|" + "---|" * 5,
    ]
    for c in CLAIMS:
        for tokens in [c.tokens] if c.tokens else lengths:
            other = c.over_tokens or tokens
            a, b = find(rows, c.method, tokens), find(rows, c.over, other)
            measured = "not measured"
            if a and b:
                measured = shown(over(a["seconds"], b["seconds"])) if c.what == "seconds" else f"{a['bytes'] / b['bytes']:.2f}"
            at = f"at {tokens:,}" + (f", over {other:,}" if other != tokens else "")
            what = {"seconds": "time", "bytes": "memory"}[c.what]
            lines.append(f"| {c.source} | {c.says} | {what}, {c.method} / {c.over}, {at} | {c.said} | {measured} |")
    return "\n".join([*lines, ""])


def main(argv: list[str]) -> None:
    if len(argv) > 1 or (FLAGS.memory and not FLAGS.out):
        raise app.UsageError(f"{argv[1:]}: there are only flags, and --memory needs --out, a folder with results.json")
    lengths = [int(length) for length in FLAGS.lengths]
    cfg = BertConfig(
        vocab_size=512, hidden_size=FLAGS.hidden, num_hidden_layers=FLAGS.layers, num_attention_heads=FLAGS.heads,
        intermediate_size=4 * FLAGS.hidden, max_position_embeddings=FLAGS.trained,
    )  # fmt: skip
    todo = cases(FLAGS.methods, cfg)
    settings: dict[str, Any] = {**bench_encode.settings(), "model": dataclasses.asdict(cfg)}
    del settings["torch"]
    floors, rows = [], []
    old = json.loads((Path(FLAGS.out) / "results.json").read_text(encoding="utf-8")) if FLAGS.memory else None
    for length in lengths:
        if old:
            at_length, new = again(old, todo, cfg, length)
            settings = {**old["settings"], "memory": {"versions": settings["versions"], "commit": workdir.commit()}}
        else:
            at_length, new = measure(todo, cfg, length, FLAGS.rounds, FLAGS.fill)
        compare([at_length], new)
        floors, rows = [*floors, at_length], [*rows, *new]
        report = "\n".join([head(cfg, settings["rounds"]), table(floors, rows), claims(lengths, rows)])
        print(table([at_length], new), flush=True)
        if FLAGS.out:  # after each length, as the longest takes most of the time
            (out := Path(FLAGS.out)).mkdir(parents=True, exist_ok=True)
            found = json.dumps({"settings": settings, "floors": floors, "rows": rows}, indent=2)
            workdir.write(out / "results.json", found + "\n")
            workdir.write(out / "table.md", report)
    print(claims(lengths, rows))


if __name__ == "__main__":
    for flag in ("models", "length", "threads", "debug"):  # bench_encode's own
        delattr(FLAGS, flag)
    FLAGS.set_default("rounds", 3)
    app.run(main)
