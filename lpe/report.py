"""report.md and plots of a run: what was measured at every arm, view and step; nothing is interpreted."""

from pathlib import Path

import numpy as np

from lpe import metrics

DESCRIBE = {
    "full": "one input",
    "pieces": "the same tokens in pieces of the trained length",
    "first": "truncated to the first piece",
    "shuffled": "pieces with shuffled positions",
}
BINS = 24


def write(folder: Path, arms: list[tuple[str, Path]]) -> None:
    """Writes report.md, curve.png (accuracy against step) and places.png (accuracy against place in the input)."""
    rows = {name: metrics.read(path / "metrics.jsonl") for name, path in arms}
    evals = {name: [r for r in r_ if r["kind"] == "eval"] for name, r_ in rows.items()}
    _curve(evals, folder / "curve.png")
    _places(evals, folder / "places.png")
    lines = [
        "| arm | read as | before tuning | after | steps | masked places |",
        "|---|---|---|---|---|---|",
    ]
    for name, arm in evals.items():
        for view in dict.fromkeys(r["view"] for r in arm):
            seen = [r for r in arm if r["view"] == view]
            first, last = seen[0], seen[-1]
            lines.append(
                f"| {name} | {DESCRIBE.get(view, view)} | {_percent(first)} | {_percent(last)} | {last['step']} | "
                f"{last['places']} in {last['windows']} windows |"
            )
    speed = [f"- {name}: {_speed(r)}" for name, r in rows.items() if any("tokens_per_s" in row for row in r)]
    text = [
        f"# {folder.name}", "",
        "Accuracy at the masked places ± standard error (windows as the unit of sampling). Every row has the same held-out "
        "windows and masks.", "",
        *lines, "", "![accuracy against step](curve.png)", "", "![accuracy against place](places.png)", "",
        "Training speed, compilation and evaluation left out:", "", *speed, "",
    ]  # fmt: skip
    (folder / "report.md").write_text("\n".join(text), encoding="utf-8")


def text(folder: Path) -> str:
    """The table of a report, aligned for a terminal, and where the pictures are."""
    lines = [line for line in (folder / "report.md").read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in lines if not line.startswith("|---")]
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    table = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in cells]
    table.insert(1, "  ".join("-" * w for w in widths))
    return "\n".join(
        ["", *table, "", f"pictures: {folder / 'curve.png'}  {folder / 'places.png'}", f"report:   {folder / 'report.md'}"]
    )


def _percent(row: dict) -> str:
    return f"{100 * row['accuracy']:.1f} ± {100 * row['accuracy_se']:.1f} %"


def _speed(rows: list[dict]) -> str:
    timed = [r for r in rows if "tokens_per_s" in r]
    return f"{np.median([r['tokens_per_s'] for r in timed]):,.0f} tokens/s (median), {timed[-1]['seconds']:.0f} s"


def _figure():
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot.subplots(figsize=(8, 4.5), layout="constrained")


def _series(evals: dict[str, list[dict]]):
    for name, arm in evals.items():
        for view in dict.fromkeys(r["view"] for r in arm):
            yield f"{name}: {DESCRIBE.get(view, view)}", [r for r in arm if r["view"] == view]


def _curve(evals: dict[str, list[dict]], path: Path) -> None:
    figure, axes = _figure()
    for label, seen in _series(evals):
        axes.errorbar(
            [r["step"] for r in seen], [100 * r["accuracy"] for r in seen], [100 * r["accuracy_se"] for r in seen],
            marker="o", capsize=3, label=label,
        )  # fmt: skip
    axes.set(
        xlabel="training step",
        ylabel="accuracy at masked places, %",
        title="MLM accuracy, held-out text (bars: ± 1 standard error)",
    )
    _finish(figure, axes, path)


def _places(evals: dict[str, list[dict]], path: Path) -> None:
    figure, axes = _figure()
    for label, seen in _series(evals):
        for row, style in ((seen[0], ":"), (seen[-1], "-")):
            counts = np.asarray(row["by_place"], float)
            edges = np.linspace(0, len(counts), min(BINS, len(counts)) + 1).round().astype(int)
            bins = [counts[a:b].sum(axis=0) for a, b in zip(edges[:-1], edges[1:], strict=True)]
            x = [(a + b) / 2 for (a, b), c in zip(zip(edges[:-1], edges[1:], strict=True), bins, strict=True) if c[1]]
            line = axes.plot(x, [100 * c[0] / c[1] for c in bins if c[1]], style, color=None if style == ":" else color)
            color = line[0].get_color()
        line[0].set_label(label)
    axes.set(
        xlabel="place in the input",
        ylabel="accuracy at masked places, %",
        title="MLM accuracy by place (dotted: before tuning)",
    )
    _finish(figure, axes, path)


def _finish(figure, axes, path: Path) -> None:
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=130)
    import matplotlib.pyplot as pyplot

    pyplot.close(figure)
