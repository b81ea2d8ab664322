"""Writes table.md and the plot of e005_extrapolation.py from its results.jsonl."""

from collections.abc import Callable, Iterable, Sequence
from math import log
from pathlib import Path

import numpy as np

from experiments import e005_attention

GATE = 0.15  # of accuracy above shuffled positions; tests/test_embedded.py asks it of bert-mini
PLACES = ((0, 2), (2, 4), (4, 8), (8, 16))  # of 64 places each
DISTANCES = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
REACH = 1024
OWN, TUNED = "as trained", "tuned at 512"
SCALED = ("rope_linear", "rope_ntk", "rope_yarn")
Way = tuple[str, str]


def tokens(join: int) -> int:
    return 126 * join + 2


def share(row: dict) -> float:
    return sum(row["right"]) / (row["count"] * len(row["right"]))


def mean_se(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and standard error; None for the error of a single value."""
    x = np.asarray(values, float)
    return float(x.mean()), float(x.std(ddof=1) / len(x) ** 0.5) if len(x) > 1 else None


def cell(values: Sequence[float] | None, scale: float = 100.0, form: str = ".1f") -> str:
    if not values:
        return "–"
    mean, error = mean_se(values)
    return f"{scale * mean:{form}}" + ("" if error is None else f" ± {scale * error:{form.lstrip('+')}}")


class Results:
    """The rows, by measure, arm, reading and pieces in an input; seeds in order."""

    def __init__(self, rows: list[dict]):
        self.by: dict[tuple, list[dict]] = {}
        for r in sorted(rows, key=lambda r: r["seed"]):
            self.by.setdefault((r["measure"], r["arm"], r["read"], r["join"]), []).append(r)
        self.joins = sorted({r["join"] for r in rows})

    def get(self, measure: str, way: Way, join: int, value: Callable[[dict], float]) -> list[float]:
        return [value(r) for r in self.by.get((measure, *way, join), [])]

    def accuracy(self, way: Way, join: int) -> list[float]:
        return self.get("accuracy", way, join, share)

    def ways(self, measure: str) -> list[Way]:
        """Arm and reading, arms in the order of training."""
        found = dict.fromkeys((arm, read) for m, arm, read, _ in self.by if m == measure and read != "shuffled")
        arms = list(dict.fromkeys(arm for arm, _ in found))
        return sorted(found, key=lambda way: arms.index(way[0]))

    def paired(self, a: tuple[Way, int], b: tuple[Way, int]) -> list[float]:
        """a − b by seed."""
        return [x - y for x, y in zip(self.accuracy(*a), self.accuracy(*b), strict=False)]


def lines(heads: Sequence[str], body: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *(f"| {' | '.join(row)} |" for row in body), ""]


def gates(found: Results) -> list[str]:
    body = []
    for arm, read in found.ways("accuracy"):
        above = found.paired(((arm, OWN), 1), ((arm, "shuffled"), 1))
        if read == OWN and above:
            gate = "passed" if round(min(above), 9) >= GATE else "failed"  # .95 − .8 is below .15 in binary
            each = (found.accuracy((arm, way), 1) for way in (OWN, "shuffled"))
            body.append([arm, *map(cell, each), cell(above), gate])
    return lines(("arm", "128 tokens", "positions shuffled", "difference", "gate"), body)


def by_length(found: Results) -> list[str]:
    body = [
        [arm, read, *(cell(found.accuracy((arm, read), join)) for join in found.joins)] for arm, read in found.ways("accuracy")
    ]
    return lines(("arm", "read with", *(f"{tokens(j):,}" for j in found.joins)), body)


def against_pieces(found: Results) -> list[str]:
    longer = [j for j in found.joins if j > 1]
    ways = [w for w in found.ways("accuracy") if any(found.accuracy(w, j) for j in longer)]
    body = [[*w, *(cell(found.paired((w, j), ((w[0], OWN), 1)), form="+.1f") for j in longer)] for w in ways]
    return lines(("arm", "read with", *(f"{tokens(j):,}" for j in longer)), body)


def by_place(found: Results) -> list[str]:
    """At the greatest length."""
    join = found.joins[-1]
    spans = [(a, b) for a, b in PLACES if 64 * a < tokens(join)]

    def within(a: int, b: int) -> Callable[[dict], float]:
        return lambda r: np.divide(*np.sum(r["places"][a:b], axis=0))

    body = []
    for way in found.ways("accuracy"):
        if found.accuracy(way, join):
            body.append([*way, *(cell(found.get("accuracy", way, join, within(*s))) for s in spans)])
    heads = [f"{64 * a:,} – {min(64 * b, tokens(join)) - 1:,}" for a, b in spans]
    return lines(("arm", "read with", *heads), body)


def tuning(found: Results) -> list[str]:
    join, body = 4, []
    for name in ("rope", *SCALED):
        before = ("rope", OWN if name == "rope" else name)
        after = (f"{name}, {TUNED}", OWN)
        cells = [cell(found.accuracy(way, j)) for j in (1, join) for way in (before, after)]
        body.append([name, *cells, cell(found.paired((after, join), (("rope_linear, " + TUNED, OWN), join)), form="+.1f")])
    heads = ("128, before", "128, after", f"{tokens(join)}, before", f"{tokens(join)}, after", "after, minus rope_linear")
    return lines(("rope with", *heads), body)


def entropy(found: Results) -> list[str]:
    body = []
    for way in found.ways("attention"):
        cells = []
        for join in found.joins:
            nats = found.get("attention", way, join, lambda r: float(np.mean(r["entropy"])))
            cells.append(f"{cell(nats, 1.0, '.2f')} ({np.mean(nats) / log(tokens(join)):.2f})" if nats else "–")
        body.append([*way, *cells])
    heads = [f"{tokens(j):,} (of ln {tokens(j):,} = {log(tokens(j)):.2f})" for j in found.joins]
    return lines(("arm", "read with", *heads), body)


def by_distance(found: Results, join: int) -> list[str]:
    shown = e005_attention.LABELS[
        : len(next(r["weight"] for k, v in found.by.items() if k[0::3] == ("attention", join) for r in v))
    ]
    body = []
    for way in found.ways("attention"):
        if rows := found.by.get(("attention", *way, join)):
            weight = np.mean([r["weight"] for r in rows], axis=0)
            near, falls = (np.mean([f(r) for r in rows]) for f in (lambda r: r["peaks"][0], lambda r: r["falls"]))
            counts = [f"{x:.1f} of {sum(rows[0]['peaks'])}" for x in (near, falls)]
            body.append([*way, *(f"{100 * w:.2g}" for w in weight), *counts])
    return lines(("arm", "read with", *shown, "heads that see place 0 most", "heads that only fall"), body)


def rope_alone() -> list[str]:
    body, text = [], []
    for size in (32, 64):
        at = e005_attention.rope_alone(list(DISTANCES), size)
        for name in at:
            body.append([str(size), name.replace("_", ", "), *(f"{x:.2f}" for x in at[name])])
        curve = e005_attention.rope_mean(REACH, size)
        rises = np.flatnonzero(np.diff(curve) > 0)
        text.append(
            f"Heads of {size}: equal vectors on average score more at distance d + 1 than at d for {len(rises)} of {REACH} "
            f"distances, first at d = {rises[0]}; the least is {curve.min():.2f}, at {curve.argmin()}."
        )
    return [*lines(("channels", "vectors", *(f"{d:,}" for d in DISTANCES)), body), *text, ""]


def write(out: Path, rows: list[dict], command: str) -> None:
    """Both files."""
    found = Results(rows)
    text = [
        "# Trained at 128 tokens, read at 128 … 1,024", "",
        f"`{command}`. e005_extrapolation.py says what is measured. Accuracy in %; ± is the standard error over "
        "seeds, which all read the same windows; the error over texts is not in it.", "",
        "## Which arms use order", "", *gates(found),
        "## Accuracy by tokens of an input", "", "At 128, scaled rotary positions are read with their factor for 512.", "",
        *by_length(found), "![against length](lengths.png)", "",
        "## Minus the same model, same tokens and masks, in pieces of 128, in points", "", *against_pieces(found),
        f"## Accuracy by place, in inputs of {tokens(found.joins[-1]):,}", "", *by_place(found),
    ]  # fmt: skip
    if 4 in found.joins:
        text += ["## Rotary positions before and after tuning at 512", "", *tuning(found)]
    text += ["## Entropy of attention, nats, and as a share of the largest possible", "", *entropy(found)]
    for join in dict.fromkeys((1, found.joins[-1])):
        text += [f"## Mean probability of a pair of text tokens by distance, %, inputs of {tokens(join):,}", ""]
        text += by_distance(found, join)
    text += ["## Rotary positions alone: scores of random vectors by distance, over that of equal ones at 0", "", *rope_alone()]
    (out / "table.md").write_text("\n".join(text).rstrip() + "\n", encoding="utf-8")
    plot(out / "lengths.png", found)


def plot(path: Path, found: Results) -> None:
    """Accuracy and entropy against length."""
    import matplotlib.figure

    figure = matplotlib.figure.Figure(figsize=(11, 6), layout="constrained")
    ways = [w for w in found.ways("attention") if len(found.joins) == 1 or found.accuracy(w, found.joins[-1])]
    panels = figure.subplots(1, 2)
    for number, way in enumerate(ways):
        style = {"marker": "o", "ms": 4, "color": f"C{number % 10}", "ls": ("-", "--", ":")[number // 10 % 3]}
        joins = [j for j in found.joins if found.accuracy(way, j) and (j > 1 or way[1] not in SCALED)]
        x = [tokens(j) for j in joins]
        label = way[0] if way[1] == OWN else f"{way[0]}: {way[1]}"
        panels[0].plot(x, [100 * mean_se(found.accuracy(way, j))[0] for j in joins], label=label, **style)
        nats = [found.get("attention", way, j, lambda r: float(np.mean(r["entropy"]))) for j in joins]
        panels[1].plot(x, [np.mean(n) / log(t) for n, t in zip(nats, x, strict=True)], **style)
    for axes, shown in zip(panels, ("accuracy at masked places, %", "entropy of attention / ln tokens"), strict=True):
        axes.set(xscale="log", xlabel="tokens of an input", ylabel=shown)
        axes.set_xticks([tokens(j) for j in found.joins], [f"{tokens(j):,}" for j in found.joins])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=4, fontsize="small")
    figure.savefig(path, dpi=110)
