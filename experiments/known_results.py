"""What the plan knows without measuring: the committed results as lpe/assets/known_results.json, each value with its source.

    python -m experiments.known_results

zero_shot: accuracy at masked places before any training; untouched: the checkpoint as it is, in pieces; alpha: hierarchical
positions before and after tuning; claims: ratios of time and memory that an article states, beside those of bench_positions.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from experiments import bench_positions
from lpe import assets, metrics, workdir
from lpe.checkpoint import folder, load
from lpe.positions import table

RESULTS = Path(__file__).parent / "results"
SWEPT = "python -m experiments.sweep --config=configs/{}.py"
RUN = "python -m lpe.main --config=configs/{}.py"
BENCH = "python -m experiments.bench_positions --out=experiments/results/bench_positions"


def trained(checkpoint: str) -> int:
    """How many positions a checkpoint was trained with."""
    _, cfg, _ = load.read_config(folder.find(checkpoint))
    return table.count(cfg, checkpoint)


def _config(name: str) -> dict:
    return json.loads((RESULTS / name / "config.json").read_text(encoding="utf-8"))


def _entry(config: dict, view: dict, file: Path, command: str) -> dict[str, Any]:
    """One accuracy before training, of an evaluation `view` of a run with `config`."""
    n = trained(config["checkpoint"])
    return {
        "model": config["checkpoint"],
        "trained": n,
        "factor": config["task"]["length"] / n,
        "read_as": view["label"],
        "position": {k: v for k, v in config["position"].items() if k != "max_length"},
        "attention": config["attention"] or {"name": "full"},
        "accuracy": view["accuracy"],
        "standard_error": view["accuracy_se"],
        "places": view["count"],
        "source": str(file.relative_to(RESULTS.parent.parent)),
        "command": command,
    }


def swept(name: str) -> list[tuple[dict, dict, dict]]:
    """(what a run is, its config, its line of results) of each run of a committed sweep."""
    lines = {(r["label"], r["repeat"]): r for r in metrics.read(RESULTS / name / "results.jsonl")}
    return [(what, each, lines[what["label"], what["repeat"]]) for what, each in _config(name)["sweep"]]


def zero_shot() -> tuple[list[dict], list[dict]]:
    """Accuracies before training of the sweep and of the Longformer's run; and those of the untouched checkpoint."""
    read, pieces = [], []
    for _, each, line in swept("zero_shot"):
        file, command = RESULTS / "zero_shot/results.jsonl", SWEPT.format("zero_shot")
        for view, seen in line["views"].items():
            (pieces if view == "pieces" else read).append(_entry(each, seen["before"], file, command))
    config = _config("longformer")
    for label, changes in config["arms"]:
        (file,) = (f for f in RESULTS.glob("longformer/*/metrics.jsonl") if f.parent.name == workdir.slug(label))
        first = next(r for r in metrics.read(file) if r["kind"] == "eval" and r["step"] == 0 and r["view"] == "full")
        read.append(_entry({**config, **changes}, first, file, RUN.format("longformer")))
    return read, pieces


def alpha() -> list[dict]:
    """Accuracy of hierarchical positions by α: the mean over the repeats and its standard error, before and after tuning."""
    runs = swept("alpha")
    found = []
    for x in sorted({what["x"] for what, _, _ in runs}):
        same = [(each, line["views"]["full"]) for what, each, line in runs if what["x"] == x]
        each = same[0][0]
        entry = {"alpha": x, "model": each["checkpoint"], "factor": each["task"]["length"] / trained(each["checkpoint"])}
        for when in ("before", "after"):
            values = np.asarray([view[when]["accuracy"] for _, view in same])
            error = values.std(ddof=1) / len(values) ** 0.5
            entry |= {when: float(values.mean()), f"{when}_standard_error": float(error)}
        entry |= {"steps": each["train"]["steps"], "repeats": len(same)}
        found.append(entry | {"source": "experiments/results/alpha/results.jsonl", "command": SWEPT.format("alpha")})
    return found


def claims() -> list[dict]:
    """The ratios that 001 states of memory and time by method, and those measured, both at one length."""
    rows = json.loads((RESULTS / "bench_positions/results.json").read_text(encoding="utf-8"))["rows"]
    found = []
    for c in bench_positions.CLAIMS:
        if c.tokens is None or c.over_tokens is not None or not c.source.startswith("001"):
            continue
        a, b = (bench_positions.find(rows, method, c.tokens) for method in (c.method, c.over))
        assert a and b, f"{c.method} and {c.over} at {c.tokens} tokens are not both in bench_positions"
        what = {"bytes": "memory", "seconds": "time"}[c.what]
        ratio = {"median": a["bytes"] / b["bytes"]} if what == "memory" else bench_positions.over(a["seconds"], b["seconds"])
        entry = {"says": c.says, "what": what, "method": c.method, "over": c.over, "tokens": c.tokens, "said": float(c.said)}
        source = {"source": "experiments/results/bench_positions/results.json", "command": BENCH}
        found.append({**entry, "measured": ratio, **source})
    return found


def made() -> str:
    """The asset's text."""
    read, pieces = zero_shot()
    made_by = "python -m experiments.known_results"
    whole = {"made_by": made_by, "zero_shot": read, "untouched": pieces, "alpha": alpha(), "claims": claims()}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    assets.KNOWN_RESULTS.write_text(made(), encoding="utf-8")
    print(f"{assets.KNOWN_RESULTS}: {len(made()):,} characters")
