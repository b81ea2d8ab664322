"""Experiment 007: what a step of training costs at 4,096 tokens, with windows and with dense attention.

    python -m experiments.e007_training_at_length           # about 25 minutes on two cores; stopped, it goes on where it was
    python -m experiments.e007_training_at_length --small --out=FOLDER   # MLM at 512 tokens, a minute

Hypothesis (Longformer, arXiv 2004.05150, figure 1; `004…txt`): the memory and the time of dense attention grow with the square
of the length, those of windows with the length. At 4,096 tokens a step of training with a window of 512 takes a fraction of the
memory of dense attention, and less time; recomputing in the backward pass (remat="full") lowers the memory of both, and costs
some of the time.

Every row is `lpe.train.run` in a process of its own: bert-mini with copied positions, MLM or a classifier (party of the
speaker) on State of the Union speeches, batch 1, float32, Adam. Rows run in turn, in an order drawn anew in each round.
  step        median seconds of the steps after the first, which compiles; over all rounds
  peak        highest resident size of the process above what it took before the run: weights, Adam's state, compilation and
              data included; the largest of the rounds
  plan        what the compiler plans for the encoder forward and backward at that length, the weights taken away
  of matmul   FLOPs of the encoder's matrix products, forward and backward (recomputed ones too), in a step's time, over the
              rate of a large product in the same process
Checked: remat changes no loss, and of equal rows all rounds have the same losses, to 1e-4 of the loss.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from configs import classify, longformer
from experiments import record
from lpe import arms, cli, costs, metrics, settings, train
from lpe.measuring.process import Peak

TOLERANCE = 1e-4


class Setting(NamedTuple):
    """steps: of a row in a round, the first of which compiles."""

    tasks: tuple[str, ...]
    remats: tuple[str, ...]
    lengths: tuple[int, ...]
    window: int
    steps: int
    rounds: int


LARGE = Setting(("mlm", "classify"), ("full", "none"), (1024, 4096), 512, 6, 2)
SMALL = Setting(("mlm",), ("full",), (512,), 64, 3, 1)


class Row(NamedTuple):
    """One kind of training."""

    task: str
    attention: str
    remat: str
    length: int


def rows(s: Setting) -> list[Row]:
    kinds = [(t, a, r) for t in s.tasks for a in ("window", "dense") for r in s.remats]
    return [Row(*kind, length) for length in s.lengths for kind in kinds]


def config(s: Setting, row: Row) -> dict[str, Any]:
    """The config of a row: configs/longformer.py, with the task of configs/classify.py where that is asked for."""
    shared = f"length={row.length},window={s.window},steps={s.steps},remat={row.remat}"
    base = longformer.get_config(shared)
    base.name, base.arms = "-".join(map(str, row)), ()
    base.train.update(batch_size=1, log_every=1)
    base.eval.update(every=s.steps, batch_size=1, examples=1)
    base.save.update(dtype="no", every_minutes=1e9)
    if row.task == "classify":
        base.task = classify.get_config(f"length={row.length}").task
        base.data.label = "party"
    if row.attention == "dense":
        base.attention = {"name": "full"}
    return base.to_dict()


def child(folder: Path) -> None:
    """The process of a row: trains what spec.json in `folder` says; writes found.json there."""
    todo = json.loads((folder / "spec.json").read_text(encoding="utf-8"))
    peak = Peak()
    run = train.run(todo, folder / "run")
    memory = peak.bytes()
    (file,) = run.glob("*/metrics.jsonl")
    log = [r for r in metrics.read(file) if r["kind"] == "train"]
    recipe = arms.prepare(todo, {}).model.recipe._replace(heads=())
    cost, speed = costs.of(recipe, todo["task"]["length"], "train"), costs.speed(recipe, 128)
    found = {
        "losses": [r["loss"] for r in log],
        "seconds": [b["seconds"] - a["seconds"] for a, b in zip(log, log[1:], strict=False)],
        "peak": memory,
        "plan": cost.memory - 4 * cost.parameters,
        "flops": cost.flops,
        "rate": speed.rate,
        "load": os.getloadavg()[0],
    }
    (folder / "found.json").write_text(json.dumps(found), encoding="utf-8")


def alone(s: Setting, row: Row) -> dict[str, Any]:
    """Trains a row in a fresh process. Raises ValueError with its last line where that fails."""
    with tempfile.TemporaryDirectory() as name:
        settings.check(config(s, row))
        (Path(name) / "spec.json").write_text(json.dumps(config(s, row)), encoding="utf-8")
        command = [sys.executable, "-m", "experiments.e007_training_at_length", "child", name]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise ValueError(f"{row}: ended with {done.returncode}: {(done.stderr.strip().splitlines() or ['-'])[-1]}")
        return json.loads((Path(name) / "found.json").read_text(encoding="utf-8"))


def check(found: list[dict[str, Any]]) -> None:
    """Raises ValueError where remat or a repetition changes a loss."""
    seen: dict[tuple, list[float]] = {}
    for f in found:
        key = tuple(f["row"][k] for k in ("task", "attention", "length"))
        first = seen.setdefault(key, f["losses"])
        if not np.allclose(f["losses"], first, rtol=TOLERANCE, atol=0):
            raise ValueError(f"{f['row']}, round {f['round']}: losses {f['losses']}, another run of the same has {first}")


def table(found: list[dict[str, Any]], s: Setting) -> str:
    """The page."""
    heads = ("task", "tokens", "attention", "remat", "step, s", "tokens/s", "peak, GB", "plan, GB", "of matmul")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    figures = {row: f for row in rows(s) if (f := figure(found, row))}
    for row, f in figures.items():
        start = (
            f"| {row.task} | {row.length:,} | {row.attention} | {row.remat} | {f['step']:.2f} | {row.length / f['step']:,.0f}"
        )
        lines.append(f"{start} | {f['peak'] / 1e9:.2f} | {f['plan'] / 1e9:.2f} | {100 * f['share']:.0f} % |")
    lines += ["", "| task | tokens | remat | dense over window: step | peak | plan |", "|---|---|---|---|---|---|"]
    for row, f in figures.items():
        if row.attention == "window" and (other := figures.get(row._replace(attention="dense"))):
            ratios = " | ".join(f"{other[x] / f[x]:.2f}" for x in ("step", "peak", "plan"))
            lines.append(f"| {row.task} | {row.length:,} | {row.remat} | {ratios} |")
    loads = [f["load"] for f in found]
    lines += ["", f"Windows of {s.window}, bert-mini, batch 1. Load average after a row: {min(loads):.1f} to {max(loads):.1f}."]
    return "\n".join(lines) + "\n"


def figure(found: list[dict[str, Any]], row: Row) -> dict[str, float]:
    """What all rounds of a row say together; empty without one. The peak is nan where the system does not say it."""
    if not (same := [f for f in found if f["row"] == row._asdict()]):
        return {}
    return {
        "step": median(x for f in same for x in f["seconds"]),
        "peak": max(float("nan") if f["peak"] is None else f["peak"] for f in same),
        "plan": same[0]["plan"],
        "share": median(f["flops"] / x / f["rate"] for f in same for x in f["seconds"]),
    }


def run(s: Setting, out: Path, command: str) -> dict[str, Any]:
    """Measures what results.json in `out` does not have yet."""
    state = record.opened(out, {k: list(v) if isinstance(v, tuple) else v for k, v in s._asdict().items()}, command)
    found = state["rows"]
    done = {(Row(**f["row"]), f["round"]) for f in found}
    order = [(row, n) for n in range(s.rounds) for row in np.random.default_rng(n).permutation(np.arange(len(rows(s))))]
    for i, n in tqdm(order, desc="training at length", unit="row"):
        row = rows(s)[int(i)]
        if (row, n) in done:
            continue
        found.append({"row": row._asdict(), "round": n, **alone(s, row)})
        check(found)
        record.keep(out, state, table(found, s))
    return state


def main(argv: list[str]) -> None:
    """The command. Ends with 1 where something is wrong."""
    small, out, command = record.asked(argv, "e007_training_at_length", __doc__)
    s = SMALL if small else LARGE
    with cli.errors():
        state = run(s, out, command)
    print(table(state["rows"], s))


if __name__ == "__main__":
    child(Path(sys.argv[2])) if sys.argv[1:2] == ["child"] else main(sys.argv)
