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
    return f"{100 * mean:.1f} % (one window, so no error)" if error is None else f"{100 * mean:.1f} ± {100 * error:.1f} %"


def plot(path: Path, about: Row, rows: Sequence[Row]) -> None:
    """Quality and time against length, a line for each method; the untouched model's are dashed, with open circles."""
    import matplotlib.figure

    figure = matplotlib.figure.Figure(figsize=(9, 5), layout="constrained")
    quality, time = figure.subplots(1, 2)
    shown = [r for r in rows if "quality" in r]
    for name, line in _lines(shown).items():
        x = [r["length"] for r in line]
        style = {"ls": "--", "mfc": "white"} if line[0]["untouched"] else {"ls": "-"}
        quality.errorbar(
            x, [100 * r["quality"] for r in line], [100 * (r["error"] or 0) for r in line], marker="o", ms=5, capsize=2,
            label=name, **style,
        )  # fmt: skip
        time.plot(x, [median(r["seconds"]) for r in line], marker="o", ms=5, **style)
    quality.set(xscale="log", xlabel="tokens", ylabel=f"{about['metric']}, %\n(bars: ± 1 standard error)")
    time.set(xscale="log", yscale="log", xlabel="tokens", ylabel="seconds a text")
    _ticks(time.yaxis, [median(r["seconds"]) for r in shown])
    lengths = sorted({r["length"] for r in rows})
    for axes in (quality, time):
        axes.set_xticks(lengths, [f"{n:,}" for n in lengths])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=3, fontsize="small", handlelength=3.5)
    figure.savefig(path, dpi=110)


def _lines(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The points of every line. Up to its own length the untouched model truncates nothing and makes one piece, so what it
    does there begins both of the lines that go on."""
    lines = {name: [r for r in rows if _name(r) == name] for name in dict.fromkeys(map(_name, rows))}
    further = [line for line in lines.values() if line[0]["untouched"] and line[0]["read"] != "whole"]
    if whole := lines.pop("untouched", []):
        for line in further:
            line[:0] = whole
    return lines if further or not whole else {"untouched": whole, **lines}


def _ticks(axis, values: Sequence[float]) -> None:
    """Several labelled ticks on a logarithmic axis, also where all values lie within one power of ten."""
    from matplotlib.ticker import AutoLocator, LogLocator, StrMethodFormatter

    within = values and max(values) < 10 * min(values)
    axis.set_major_locator(AutoLocator() if within else LogLocator(subs=(1, 3)))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))


def _name(row: Row) -> str:
    read = {"whole": "", "first": ", truncated", "pieces": ", in pieces"}[row["read"]]
    return f"{'untouched' if row['untouched'] else row['position'] + ', ' + row['attention']}{read}"
