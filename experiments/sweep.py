"""Runs what a config's `sweep(add, config)` lists, one after the other, into one table and one plot.

    python -m experiments.sweep --config=configs/alpha.py
    python -m experiments.sweep --config=configs/alpha.py --commit   # and copies the results to experiments/results/NAME

`sweep(add, config)` calls add(label, overrides, x=None) for every run; `config` is the one that the command line gives. Runs of
one label are repeats (seeds, folds), and x is its place on the plot's axis. A line of results.jsonl is written as each run
ends; the same command goes on where it was stopped.
"""

import importlib.util
import json
import logging
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
from absl import app, flags
from ml_collections import config_flags

from lpe import arms, best, main, metrics, report, settings, train, workdir

RESULTS = Path(__file__).parent / "results"
COMMIT = flags.DEFINE_bool("commit", False, "Copy the results of a finished sweep to experiments/results/NAME.")
log = logging.getLogger("lpe.sweep")


def listed(path: str, config: dict) -> list[tuple[dict, dict]]:
    """The runs of a config file: what identifies each (label, repeat, x), and its whole config.

    Raises:
      ValueError: the file has no sweep(add, config), or it adds nothing.
    """
    spec = importlib.util.spec_from_file_location("swept", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, "sweep"):
        raise ValueError(
            f"{path} has no sweep(add, config); write one, as configs/alpha.py has it, or run it by python -m lpe.main"
        )
    runs: list[tuple[dict, dict]] = []

    def add(label: str, overrides: dict, x: float | None = None) -> None:
        repeat = sum(run["label"] == label for run, _ in runs)
        runs.append(({"label": label, "repeat": repeat, "x": x}, settings.merged({**config, "arms": ()}, overrides)))

    module.sweep(add, config)
    if not runs:
        raise ValueError(f"{path}: sweep adds no run")
    slugs = {run["label"]: workdir.slug(run["label"]) for run, _ in runs}
    if len(set(slugs.values())) < len(slugs) or not all(slugs.values()):
        raise ValueError(f"{path}: each label needs a folder of its own, but they give {slugs}; rename them")
    return runs


def run(path: str, config: dict, folder: Path) -> Path:
    """Runs what is not done yet; returns the folder with results.jsonl, report.md and sweep.png.

    Raises:
      ValueError: a run that its config shows to be wrong, before the first one begins; or a folder of another sweep.
    """
    if config["mode"] != "train":
        raise ValueError(f"mode={config['mode']!r}: a sweep trains; evaluate one of its folders with python -m lpe.main")
    runs = listed(path, config)
    for what, each in runs:
        settings.check(each)
        for _, arm in arms.named({**each, "name": what["label"]}):
            arms.check(arm)
    workdir.open({**config, "sweep": runs}, folder)
    file = folder / "results.jsonl"
    with workdir.lock(folder):
        workdir.write(file, "".join(json.dumps(r) + "\n" for r in metrics.read(file)))  # without a half-written line
        done = {(r["label"], r["repeat"]) for r in metrics.read(file)}
        for number, (what, each) in enumerate(runs, 1):
            if (what["label"], what["repeat"]) in done:
                continue
            log.info("[%d/%d] %s, repeat %d", number, len(runs), what["label"], what["repeat"] + 1)
            target = train.run(each, folder / f"{workdir.slug(what['label'])}.{what['repeat']}")
            (arm,) = target.glob("*/metrics.jsonl")
            row = _row(what, best.judged(each["eval"], metrics.read(arm)))
            with file.open("a", encoding="utf-8") as f:
                f.write(json.dumps(row) + "\n")
            write(folder, metrics.read(file))
    return folder


def _row(what: dict, rows: list[dict]) -> dict:
    """One line of results: the first and the last evaluation of each view, without the long lists."""
    evals = [r for r in rows if r["kind"] == "eval"]
    short = [{k: v for k, v in r.items() if not isinstance(v, list)} for r in evals]
    views = {v: [r for r in short if r["view"] == v] for v in dict.fromkeys(r["view"] for r in short)}
    seconds = max((r["seconds"] for r in rows if r["kind"] == "train"), default=0.0)
    return {
        **what,
        "seconds": seconds,
        "metrics": evals[-1]["metrics"],
        "views": {v: {"before": seen[0], "after": seen[-1]} for v, seen in views.items()},
    }


def write(folder: Path, rows: list[dict]) -> None:
    """report.md and sweep.png from the lines so far."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    names = rows[0]["metrics"]
    table = [t for view in dict.fromkeys(v for r in rows for v in r["views"]) for t in _lines(rows, view, names)]
    tuned = any(t["before"] != t["after"] for t in table)
    columns = [(m, w) for m in names for w in (("before", "after") if tuned else ("after",))]
    heads = [f"{report.words(m)} {w}" if tuned else report.words(m) for m, w in columns]
    text = [
        f"# {config['name']}",
        "",
        "± is the standard error over the repeats of a row; of a single one, that of its own evaluation.",
        "",
        f"| arm | read as | {' | '.join(heads)} | repeats |",
        f"|---|---|{'---|' * (len(heads) + 1)}",
        *(f"| {t['label']} | {t['read']} | {' | '.join(_cell(t[w][m]) for m, w in columns)} | {t['repeats']} |" for t in table),
        "",
        "![the same as a plot](sweep.png)",
        "",
    ]
    (folder / "report.md").write_text("\n".join(text), encoding="utf-8")
    _plot(folder / "sweep.png", config["name"], table, names[0], tuned)


def _lines(rows: list[dict], view: str, names: list[str]) -> list[dict]:
    out = []
    for label in dict.fromkeys(r["label"] for r in rows if view in r["views"]):
        same = [r for r in rows if r["label"] == label and view in r["views"]]
        line: dict[str, Any] = {"label": label, "x": same[0]["x"], "repeats": len(same)}
        line["read"] = same[0]["views"][view]["after"]["label"]
        for when in ("before", "after"):
            line[when] = {m: _mean([r["views"][view][when] for r in same], m) for m in names}
        out.append(line)
    return out


def _mean(rows: list[dict], metric: str) -> tuple[float, float | None]:
    values = np.asarray([r[metric] for r in rows])
    if len(values) == 1:
        return float(values[0]), rows[0].get(metric + "_se")
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))


def _cell(value: tuple[float, float | None]) -> str:
    mean, se = value
    return f"{100 * mean:.1f} %" if se is None else f"{100 * mean:.1f} ± {100 * se:.1f} %"


def _plot(path: Path, title: str, table: list[dict], metric: str, tuned: bool) -> None:
    import matplotlib.figure

    figure = matplotlib.figure.Figure(figsize=(8, max(5.0, 0.25 * len(table))), layout="constrained")
    axes = figure.subplots()
    numbers = all(t["x"] is not None for t in table)
    for when in ("before", "after") if tuned else ("after",):
        mean, se = zip(*((100 * m, 100 * (s or 0)) for m, s in (t[when][metric] for t in table)), strict=True)
        label = f"{when} training" if tuned else None
        if numbers:
            order = np.argsort([t["x"] for t in table])
            x, y, e = ([v[i] for i in order] for v in ([t["x"] for t in table], mean, se))
            axes.errorbar(x, y, e, marker="o", capsize=3, label=label)
        else:
            axes.errorbar(mean, range(len(table)), xerr=se, fmt="o", capsize=3, label=label)
    shown = f"{report.words(metric)}, % (bars: ± 1 standard error)"
    if numbers:
        axes.set(title=title, xlabel="x", ylabel=shown)
        axes.set_xlabel(table[0]["label"].partition(" =")[0])
    else:
        axes.set(title=title, xlabel=shown)
        axes.set_yticks(range(len(table)), [f"{t['label']} ({t['read']})" for t in table])
        axes.invert_yaxis()
    axes.grid(alpha=0.3)
    if tuned:
        axes.legend()
    figure.savefig(path, dpi=130)


def commit(folder: Path, name: str) -> Path:
    """Copies what a sweep found, without its checkpoints."""
    target = RESULTS / name
    target.mkdir(parents=True, exist_ok=True)
    for file in ("config.json", "versions.json", "results.jsonl", "report.md", "sweep.png"):
        shutil.copy(folder / file, target / file)
    return target


def start(argv: list[str]) -> None:
    main.setup()
    holder = flags.FLAGS["config"]
    if main.CONFIG.value is None:
        sys.exit("lpe: give a config, as in python -m experiments.sweep --config=configs/alpha.py")
    config = main.CONFIG.value.to_dict()
    folder = Path(main.WORKDIR.value or f"runs/sweep-{config['name']}")
    path = config_flags.get_config_filename(holder)
    with main.errors():
        run(path, config, folder)
    print(report.text(folder))
    if COMMIT.value:
        print(f"copied    {commit(folder, config['name'])}")


if __name__ == "__main__":
    app.run(start, flags_parser=main.parse)
