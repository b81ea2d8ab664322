"""Writes table.md and zero_shot.png of e003_zero_shot.py from its results.jsonl."""

from pathlib import Path

import numpy as np

from lpe import workdir

READ = {"whole": "", "first": ", cut", "pieces": ", in pieces"}
UNTOUCHED = "untouched"
Ways = dict[str, dict[int, list[dict]]]  # a way's name -> its sets by length


def name(row: dict) -> str:
    window = f", {row['attention']}" if row["attention"] != "full" else ""
    return row["arm"] + window + READ[row["read"]]


def of(rows: list[dict], checkpoint: str) -> Ways:
    out: Ways = {}
    for r in rows:
        if r["checkpoint"] == checkpoint:
            out.setdefault(name(r), {}).setdefault(r["length"], []).append(r)
    return out


def pooled(sets: list[dict]) -> tuple[float, float, int]:
    """Quality, its standard error and the number of questions or windows, of sets of equal size."""
    counts = np.asarray([s["count"] for s in sets], float)
    share = counts / counts.sum()
    if "needle" in sets[0]["metric"] and len(sets) > 1:  # a set has one text, so sets are the unit
        found = np.asarray([s["quality"] for s in sets])
        return float(found.mean()), float(found.std(ddof=1) / len(sets) ** 0.5), int(counts.sum())
    errors = np.asarray([s["error"] for s in sets])
    return float((share * [s["quality"] for s in sets]).sum()), float(np.sqrt((share**2 * errors**2).sum())), int(counts.sum())


def cell(sets: list[dict] | None) -> str:
    if not sets:
        return "–"
    mean, error, _ = pooled(sets)
    return f"{100 * mean:.1f} ± {100 * error:.1f}"


def agreement(ways: dict[int, list[dict]]) -> str:
    """On short texts, at the longest extension; 1 where short inputs are kept."""
    found = [s for length in sorted(ways) for s in ways[length] if "agreement" in s]
    return f"{found[-1]['agreement']:.3f}" if found else "–"


def section(checkpoint: str, ways: Ways) -> list[str]:
    lengths = sorted({n for each in ways.values() for n in each})
    first = next(iter(next(iter(ways.values())).values()))[0]
    needles = "needle" in first["metric"]
    unit = "questions" if needles else "windows"
    counts = {n: next(pooled(each[n])[2] for each in ways.values() if n in each) for n in lengths}
    heads = ["way", *(f"{n:,} tokens ({counts[n]} {unit})" for n in lengths), *(["agreement"] if needles else [])]
    lines = [f"## {checkpoint}: {first['metric']}, %", "", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for way, each in ways.items():
        cells = [cell(each.get(n)) for n in lengths] + ([agreement(each)] if needles else [])
        lines.append(f"| {way} | {' | '.join(cells)} |")
    return [*lines, ""]


def write(out: Path, rows: list[dict]) -> None:
    """Both files, from the lines so far."""
    found = {c: of(rows, c) for c in dict.fromkeys(r["checkpoint"] for r in rows)}
    text = [
        "# Methods that need no training", "",
        "`python -m experiments.e003_zero_shot`, which says what is measured. ± is the standard error over sets of "
        "questions or over windows. –: not run.", "", "![the same as a plot](zero_shot.png)", "",
    ]  # fmt: skip
    for checkpoint, ways in found.items():
        text += section(checkpoint, ways)
    workdir.write(out / "table.md", "\n".join(text).rstrip() + "\n")
    plot(out / "zero_shot.png", found)


def plot(path: Path, found: dict[str, Ways]) -> None:
    """A panel a checkpoint: quality against length, a line a way; dashed for the untouched model, dotted with windows."""
    import matplotlib
    import matplotlib.figure

    names = list(dict.fromkeys(way.split(",")[0] for ways in found.values() for way in ways))
    colours = {n: matplotlib.colormaps["tab20"](i % 20) for i, n in enumerate(names)}
    figure = matplotlib.figure.Figure(figsize=(6.5 * len(found), 7.5), layout="constrained")
    for axes, (checkpoint, ways) in zip(figure.subplots(1, len(found), squeeze=False)[0], found.items(), strict=True):
        for way, each in ways.items():
            arm, lengths = way.split(",")[0], sorted(each)
            mean, error, _ = zip(*(pooled(each[n]) for n in lengths), strict=True)
            style = ":" if way.endswith(", window") else "--" if arm == UNTOUCHED else "-"
            axes.errorbar(
                lengths, 100 * np.asarray(mean), 100 * np.asarray(error), fmt=f"o{style}", color=colours[arm], ms=4, capsize=2,
                label=way,
            )  # fmt: skip
        every = sorted({n for each in ways.values() for n in each})
        axes.set(title=checkpoint, xscale="log", xlabel="tokens", ylabel="%")
        axes.set_xticks(every, [f"{n:,}" for n in every])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.1))
    figure.savefig(path, dpi=110)
