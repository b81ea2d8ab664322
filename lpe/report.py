"""report.md and plots of a run: what was measured for every arm, view and step, and differences on equal places."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from lpe import best, metrics
from lpe.tasks.base import Task

BY_CLASS = "## By class: "
NAMES = {"macro_f1": "macro-F1", "f1": "entity F1"}
BINS = 24  # of places in the input, for the plot
Series = dict[str, list[dict]]  # label -> eval rows by step


def write(folder: Path, arms: list[tuple[str, Path, Task, dict]]) -> None:
    """Writes report.md, curve.png (the first metric against step) and, where places are known, places.png.

    Args:
      arms: name, folder, task and the config's group `eval` of each. Where that keeps the best
        evaluation, the tables end there.
    """
    task = arms[0][2]
    rows = {name: metrics.read(path / "metrics.jsonl") for name, path, *_ in arms}
    series = {(name, seen[0]["label"]): seen for name, arm in rows.items() for seen in _by_view(arm)}
    _curve(series, task, folder / "curve.png")
    tuned = any(len(seen) > 1 for seen in series.values())
    given = {name: best.judged(config, rows[name]) for name, *_, config in arms}
    series = {(name, seen[0]["label"]): seen for name, arm in given.items() for seen in _by_view(arm)}
    placed = {k: seen for k, seen in series.items() if seen[-1].get("by_place")}
    if placed:
        _places(placed, folder / "places.png")
    text = [
        f"# {folder.name}",
        "",
        task.about,
        "",
        *_table(series, task, tuned),
        "",
        *_differences(series),
        "![against step](curve.png)",
        "",
        *(("![against place](places.png)", "") if placed else ()),
        *_training(rows),
        *_classes(series),
    ]
    (folder / "report.md").write_text("\n".join(text), encoding="utf-8")


def text(folder: Path) -> str:
    """The tables of a report but for those by class, aligned for a terminal, and where the pictures are."""
    whole = (folder / "report.md").read_text(encoding="utf-8")
    lines, out, block = whole.partition(BY_CLASS)[0].splitlines(), [], []
    for line in [*lines, ""]:
        if line.startswith("|"):
            block.append([c.strip() for c in line.strip("|").split("|")])
        elif block:
            widths = [max(len(row[i]) for row in block if set(row[0]) != {"-"}) for i in range(len(block[0]))]
            block[1] = ["-" * w for w in widths]
            out += ["", *("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in block)]
            block = []
    pictures = "  ".join(str(p) for p in sorted(folder.glob("*.png")))
    return "\n".join([*out, "", f"pictures  {pictures}", f"report    {folder}/report.md"])


def _by_view(rows: list[dict]) -> Iterator[list[dict]]:
    evals = [r for r in rows if r["kind"] == "eval"]
    for view in dict.fromkeys(r["view"] for r in evals):
        yield [r for r in evals if r["view"] == view]


def _table(series: dict, task: Task, tuned: bool) -> Iterator[str]:
    columns = [f"{words(m)}{when}" for m in task.metrics for when in ((" before", " after") if tuned else ("",))]
    counts = dict.fromkeys((task.counted, task.unit))
    heads = ["arm", "read as", *columns, *(["steps"] if tuned else []), *counts]
    yield f"| {' | '.join(heads)} |"
    yield "|---" * len(heads) + "|"
    for (name, label), seen in series.items():
        shown = [_percent(r, m) for m in task.metrics for r in ((seen[0], seen[-1]) if tuned else (seen[-1],))]
        sizes = [f"{seen[-1]['count']:,}", str(len(seen[-1]["by_unit"]))][: len(counts)]
        cells = [name, label, *shown, *([str(seen[-1]["step"])] if tuned else []), *sizes]
        yield f"| {' | '.join(cells)} |"


def _classes(series: dict) -> Iterator[str]:
    """The last evaluation of every series, class by class."""
    for (name, label), seen in series.items():
        if seen[-1].get("per_class"):
            yield from (
                f"{BY_CLASS}{name}, {label}",
                "",
                "| class | precision | recall | F1 | support |",
                "|---|---|---|---|---|",
            )
            yield from (f"| {_cell(c)} | {p:.3f} | {r:.3f} | {f:.3f} | {n} |" for c, p, r, f, n in seen[-1]["per_class"])
            yield ""


def _training(rows: dict) -> Iterator[str]:
    timed = {name: [r for r in arm if "tokens_per_s" in r] for name, arm in rows.items()}
    if any(timed.values()):
        yield from ("Training, without compilation and evaluation:", "")
        yield from (f"- {name}: {_speed(arm)}" for name, arm in timed.items() if arm)
        yield ""


def _differences(series: dict) -> Iterator[str]:
    """The first row's last accuracy minus every other one on exactly the same places; paired over windows."""
    (name, label), seen = next(iter(series.items()))
    lines = []
    for (other, other_label), rows in series.items():
        for row in rows[:1] + rows[1:][-1:]:
            when = f"after {row['step']} steps" if row["step"] else "before tuning"
            if row is not seen[-1] and [(w, n) for w, _, n in row["by_unit"]] == [(w, n) for w, _, n in seen[-1]["by_unit"]]:
                lines.append(f"| {other}, {other_label}, {when} | {_paired(seen[-1], row)} |")
    if lines:
        yield f"{name}, {label}, after {seen[-1]['step']} steps, minus the others on the same places, in points (paired):"
        yield from ("", f"| {name}, {label}, after {seen[-1]['step']} steps, minus | points |", "|---|---|", *lines, "")


def _paired(a: dict, b: dict) -> str:
    right_a, count = np.asarray([w[1:] for w in a["by_unit"]], float).T
    right_b = np.asarray([w[1] for w in b["by_unit"]], float)
    mean = (right_a - right_b).sum() / count.sum()
    residual, n = right_a - right_b - mean * count, len(count)
    se = np.sqrt(np.square(residual).sum() * n / (n - 1)) / count.sum() if n > 1 else None
    return f"{100 * mean:+.1f} ± {_points(se)}"


def _percent(row: dict, metric: str) -> str:
    se = f" ± {_points(row[metric + '_se'])}" if metric + "_se" in row else ""
    return f"{100 * row[metric]:.1f}{se} %"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def words(metric: str) -> str:
    """A metric's name in a table."""
    return NAMES.get(metric, metric)


def _points(se: float | None) -> str:
    """A standard error in points; it is unknown from a single window."""
    return "?" if se is None else f"{100 * se:.1f}"


def _speed(timed: list[dict]) -> str:
    speed, wait = np.median([r["tokens_per_s"] for r in timed]), np.median([r["input_wait"] for r in timed])
    return f"{speed:,.0f} tokens/s (median), {timed[-1]['seconds']:.0f} s, {100 * wait:.1f} % of it waiting for input (median)"


def _curve(series: dict, task: Task, path: Path) -> None:
    metric = task.metrics[0]
    figure, axes = _figure(f"{words(metric)} on held-out text (bars: ± 1 standard error)", "training step", metric)
    for (name, label), seen in series.items():
        y, se = [100 * r[metric] for r in seen], [100 * (r.get(metric + "_se") or 0) for r in seen]
        axes.errorbar([r["step"] for r in seen], y, se, marker="o", capsize=3, label=f"{name}, read as {label}")
    _save(figure, path)


def _places(series: dict, path: Path) -> None:
    figure, axes = _figure("accuracy by place (dotted: before tuning)", "place in the input", "accuracy")
    width = max(1, round(max(len(seen[0]["by_place"]) for seen in series.values()) / BINS))
    for i, ((name, label), seen) in enumerate(series.items()):
        for row, style in ((seen[0], ":"), (seen[-1], "-")):
            counts = np.asarray(row["by_place"], float)
            bins = [(a + width / 2, *counts[a : a + width].sum(axis=0)) for a in range(0, len(counts), width)]
            x, y = [at for at, _, n in bins if n], [100 * right / n for _, right, n in bins if n]
            axes.plot(x, y, style, color=f"C{i}", label=f"{name}, read as {label}" if style == "-" else None)
    _save(figure, path)


def _figure(title: str, x: str, metric: str):
    import matplotlib.figure

    figure = matplotlib.figure.Figure(figsize=(8, 5.5), layout="constrained")
    axes = figure.subplots()
    axes.set(title=title, xlabel=x, ylabel=f"{words(metric)}, %")
    axes.grid(alpha=0.3)
    return figure, axes


def _save(figure, path: Path) -> None:
    figure.legend(loc="outside lower center", ncols=1 if len(figure.axes[0].lines) < 3 else 2, fontsize=8)
    figure.savefig(path, dpi=130)
