"""report.md and plots of a run: what was measured for every arm, view and step, and differences on equal places."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from lpe import metrics

BINS = 24  # of places in the input, for the plot
Series = dict[str, list[dict]]  # label -> eval rows by step


def write(folder: Path, arms: list[tuple[str, Path]]) -> None:
    """Writes report.md, curve.png (accuracy against step) and places.png (accuracy against place in the input)."""
    rows = {name: metrics.read(path / "metrics.jsonl") for name, path in arms}
    series = {(name, seen[0]["label"]): seen for name, arm in rows.items() for seen in _by_view(arm)}
    _curve(series, folder / "curve.png")
    _places(series, folder / "places.png")
    text = [
        f"# {folder.name}",
        "",
        "Accuracy at the masked places of held-out text ± standard error (windows as the unit of sampling; ? with a single "
        "window). All rows have the same windows and masks, truncated ones those of the first piece. An input is [CLS], text, "
        "[SEP].",
        "",
        *_table(series),
        "",
        *_differences(series),
        "![accuracy against step](curve.png)",
        "",
        "![accuracy against place](places.png)",
        "",
        "Training, without compilation and evaluation:",
        "",
        *(f"- {name}: {_speed(arm)}" for name, arm in rows.items() if any("tokens_per_s" in r for r in arm)),
        "",
    ]
    (folder / "report.md").write_text("\n".join(text), encoding="utf-8")


def text(folder: Path) -> str:
    """The tables of a report, aligned for a terminal, and where the pictures are."""
    lines, out, block = (folder / "report.md").read_text(encoding="utf-8").splitlines(), [], []
    for line in [*lines, ""]:
        if line.startswith("|"):
            block.append([c.strip() for c in line.strip("|").split("|")])
        elif block:
            widths = [max(len(row[i]) for row in block if set(row[0]) != {"-"}) for i in range(len(block[0]))]
            block[1] = ["-" * w for w in widths]
            out += ["", *("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in block)]
            block = []
    return "\n".join([*out, "", f"pictures  {folder}/curve.png  {folder}/places.png", f"report    {folder}/report.md"])


def _by_view(rows: list[dict]) -> Iterator[list[dict]]:
    evals = [r for r in rows if r["kind"] == "eval"]
    for view in dict.fromkeys(r["view"] for r in evals):
        yield [r for r in evals if r["view"] == view]


def _table(series: dict) -> Iterator[str]:
    yield "| arm | read as | before tuning | after | steps | masked places | windows |"
    yield "|---|---|---|---|---|---|---|"
    for (name, label), seen in series.items():
        first, last = seen[0], seen[-1]
        yield (
            f"| {name} | {label} | {_percent(first['accuracy'], first['accuracy_se'])} | "
            f"{_percent(last['accuracy'], last['accuracy_se'])} | {last['step']} | {last['places']:,} | {last['windows']} |"
        )


def _differences(series: dict) -> Iterator[str]:
    """The first row's last accuracy minus every other one on exactly the same places; paired over windows."""
    (name, label), seen = next(iter(series.items()))
    lines = []
    for (other, other_label), rows in series.items():
        last = [(rows[-1], f"after {rows[-1]['step']} steps")] if len(rows) > 1 else []
        for row, when in [(rows[0], "before tuning"), *last]:
            if row is not seen[-1] and [(w, n) for w, _, n in row["by_window"]] == [
                (w, n) for w, _, n in seen[-1]["by_window"]
            ]:
                lines.append(f"| {other}, {other_label}, {when} | {_paired(seen[-1], row)} |")
    if lines:
        yield f"{name}, {label}, after {seen[-1]['step']} steps, minus the others on the same places, in points (paired):"
        yield from ("", f"| {name}, {label}, after {seen[-1]['step']} steps, minus | points |", "|---|---|", *lines, "")


def _paired(a: dict, b: dict) -> str:
    right_a, count = np.asarray([w[1:] for w in a["by_window"]], float).T
    right_b = np.asarray([w[1] for w in b["by_window"]], float)
    mean = (right_a - right_b).sum() / count.sum()
    residual, n = right_a - right_b - mean * count, len(count)
    se = np.sqrt(np.square(residual).sum() * n / (n - 1)) / count.sum() if n > 1 else None
    return f"{100 * mean:+.1f} ± {_points(se)}"


def _percent(mean: float, se: float | None) -> str:
    return f"{100 * mean:.1f} ± {_points(se)} %"


def _points(se: float | None) -> str:
    """A standard error in points; it is unknown from a single window."""
    return "?" if se is None else f"{100 * se:.1f}"


def _speed(rows: list[dict]) -> str:
    timed = [r for r in rows if "tokens_per_s" in r]
    return f"{np.median([r['tokens_per_s'] for r in timed]):,.0f} tokens/s (median), {timed[-1]['seconds']:.0f} s"


def _curve(series: dict, path: Path) -> None:
    figure, axes = _figure("MLM accuracy on held-out text (bars: ± 1 standard error)", "training step")
    for (name, label), seen in series.items():
        y, se = [100 * r["accuracy"] for r in seen], [100 * (r["accuracy_se"] or 0) for r in seen]
        axes.errorbar([r["step"] for r in seen], y, se, marker="o", capsize=3, label=f"{name}, read as {label}")
    _save(figure, path)


def _places(series: dict, path: Path) -> None:
    figure, axes = _figure("MLM accuracy by place (dotted: before tuning)", "place in the input")
    width = max(1, round(max(len(seen[0]["by_place"]) for seen in series.values()) / BINS))
    for i, ((name, label), seen) in enumerate(series.items()):
        for row, style in ((seen[0], ":"), (seen[-1], "-")):
            counts = np.asarray(row["by_place"], float)
            bins = [(a + width / 2, *counts[a : a + width].sum(axis=0)) for a in range(0, len(counts), width)]
            x, y = [at for at, _, n in bins if n], [100 * right / n for _, right, n in bins if n]
            axes.plot(x, y, style, color=f"C{i}", label=f"{name}, read as {label}" if style == "-" else None)
    _save(figure, path)


def _figure(title: str, x: str):
    import matplotlib.figure

    figure = matplotlib.figure.Figure(figsize=(8, 5.5), layout="constrained")
    axes = figure.subplots()
    axes.set(title=title, xlabel=x, ylabel="accuracy at masked places, %")
    axes.grid(alpha=0.3)
    return figure, axes


def _save(figure, path: Path) -> None:
    figure.legend(loc="outside lower center", ncols=1 if len(figure.axes[0].lines) < 3 else 2, fontsize=8)
    figure.savefig(path, dpi=130)
