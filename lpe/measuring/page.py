"""What was measured, as report.md and measure.png."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

Row = dict[str, Any]
READ = {"whole": "", "first": " (truncated)", "pieces": ""}


def text(about: Row, rows: Sequence[Row]) -> str:
    """The report.

    Args:
      about: checkpoint, data, what quality is (`metric`), and sentences (`notes`).
      rows: one a method and length: position, attention, read, length, plan, and what was measured.
    """
    agreed = any("agreement" in r for r in rows)
    heads = ["tokens", "position", "attention", "read as", about["metric"], *(["agreement"] if agreed else [])]
    heads += ["seconds", "tokens/s", "plan", "process"]
    lines = [f"# {about['checkpoint']} on {about['data']}", "", *about["notes"], ""]
    lines += [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    lines += [f"| {' | '.join(_cells(r, agreed))} |" for r in rows]
    lines += ["", "![quality and time against length](measure.png)", ""]
    return "\n".join(lines)


def _cells(row: Row, agreed: bool) -> Iterator[str]:
    yield f"{row['length']:,}"
    yield row["position"]
    yield row["attention"]
    yield f"{row['inputs']:,} × {row['tokens'] // row['inputs']:,}{READ[row['read']]}"
    if "quality" not in row:
        yield f"does not fit: compiled {_size(row['plan'])}"
        yield from (*("–",) * (2 + agreed), _size(row["plan"]), "–")
        return
    yield _percent(row["quality"], row["error"])
    if agreed:
        yield f"{row['agreement']:.4f} ± {row['agreement_error']:.4f}" if "agreement" in row else "–"
    seconds = median(row["seconds"])
    yield f"{seconds:,.3f}"
    yield f"{row['tokens'] / seconds:,.0f}"
    yield _size(row["plan"])
    yield "–" if row.get("process") is None else _size(row["process"])


def _size(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"


def _percent(mean: float, error: float | None) -> str:
    return f"{100 * mean:.1f} ± {'?' if error is None else f'{100 * error:.1f}'} %"


def plot(path: Path, about: Row, rows: Sequence[Row]) -> None:
    """Quality and time against length, a line for each method."""
    import matplotlib.figure

    figure = matplotlib.figure.Figure(figsize=(9, 4.2), layout="constrained")
    quality, time = figure.subplots(1, 2)
    shown = [r for r in rows if "quality" in r]
    for name in dict.fromkeys(map(_name, shown)):
        line = [r for r in shown if _name(r) == name]
        x = [r["length"] for r in line]
        style = "--" if line[0]["untouched"] else "-"
        quality.errorbar(
            x, [100 * r["quality"] for r in line], [100 * (r["error"] or 0) for r in line], fmt=f"o{style}", ms=4, capsize=2,
            label=name,
        )  # fmt: skip
        time.plot(x, [median(r["seconds"]) for r in line], f"o{style}", ms=4)
    quality.set(xscale="log", xlabel="tokens", ylabel=f"{about['metric']}, % (bars: ± 1 standard error)")
    time.set(xscale="log", yscale="log", xlabel="tokens", ylabel="seconds a text")
    lengths = sorted({r["length"] for r in rows})
    for axes in (quality, time):
        axes.set_xticks(lengths, [f"{n:,}" for n in lengths])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=3, fontsize="small")
    figure.savefig(path, dpi=110)


def _name(row: Row) -> str:
    read = {"whole": "", "first": ", truncated", "pieces": ", in pieces"}[row["read"]]
    return f"{'untouched' if row['untouched'] else row['position'] + ', ' + row['attention']}{read}"
