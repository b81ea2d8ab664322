"""Writes table.md and bits.png of e006_longformer.py from its results.jsonl."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import stats

from lpe.tasks import base

PAPER = {  # arXiv 2004.05150, Table 5, base model, and Table 4
    "in pieces": "1.846", "random rows": "10.299", "copied rows": "1.957",
    "copied rows, all weights": "1.753 after 2,000, 1.705 after 65,000 steps", "copied rows, new rows only": "1.850",
    "growing": "1.21", "fixed": "1.23", "shrinking": "1.24", "growing, 2 heads dilated": "1.20",
}  # fmt: skip
STARTS = ("in pieces", "random rows", "copied rows")
PAIRS = (("growing", "fixed"), ("shrinking", "fixed"), ("growing", "shrinking"), ("growing, 2 heads dilated", "growing"))
Number = tuple[float, float | None]  # mean and standard error


class Scores(NamedTuple):
    """Of one arm at one step: sums over the masked tokens of each window, f[seeds, windows]."""

    bits: np.ndarray
    right: np.ndarray
    read: str


class Page(NamedTuple):
    """tokens, characters: f[windows]. arms: by table and arm, the scores by step."""

    tokens: np.ndarray
    characters: np.ndarray
    arms: dict[tuple[str, str], dict[int, Scores]]

    def of(self, table: str) -> dict[str, dict[int, Scores]]:
        return {arm: steps for (name, arm), steps in self.arms.items() if name == table}


def page(windows: dict[str, list[int]], rows: list[dict]) -> Page:
    arms: dict[tuple[str, str], dict[int, Scores]] = {}
    for key in dict.fromkeys((r["table"], r["arm"], r["step"]) for r in rows):
        same = sorted((r for r in rows if (r["table"], r["arm"], r["step"]) == key), key=lambda r: r["seed"])
        bits, right = (np.asarray([r[k] for r in same], float) for k in ("bits", "right"))
        arms.setdefault(key[:2], {})[key[2]] = Scores(bits, right, same[0]["read"])
    return Page(np.asarray(windows["tokens"], float), np.asarray(windows["characters"], float), arms)


def over_windows(sums: np.ndarray, unit: np.ndarray) -> Number:
    """Σ sums / Σ unit, windows as the unit of sampling; the seeds' mean of each window."""
    return base.ratio(sums.mean(0), unit)


def over_seeds(sums: np.ndarray, unit: np.ndarray) -> Number:
    """The same ratio with seeds as the unit of sampling; a single seed has no error."""
    x = sums.sum(1) / unit.sum()
    return float(x.mean()), float(x.std(ddof=1) / len(x) ** 0.5) if len(x) > 1 else None


def shown(found: Number, *, signed: bool = False, scale: float = 1.0, digits: int = 3) -> str:
    mean, se = found
    error = "?" if se is None else f"{scale * se:.{digits}f}"
    return f"{scale * mean:{'+' if signed else ''}.{digits}f} ± {error}"


def difference(sums: np.ndarray, unit: np.ndarray) -> str:
    """After tuning: the error over seeds, and over windows in brackets."""
    _, se = over_windows(sums, unit)
    return f"{shown(over_seeds(sums, unit), signed=True)} ({'?' if se is None else f'{se:.3f}'})"


def _cells(p: Page, s: Scores, over) -> list[str]:
    """Bits per token, bits per character, accuracy."""
    accuracy = shown(over(s.right, p.tokens), scale=100, digits=1)
    return [shown(over(s.bits, p.tokens)), shown(over(s.bits, p.characters)), f"{accuracy} %"]


def _table(heads: Sequence[str], lines: Iterator[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *(f"| {' | '.join(cells)} |" for cells in lines), ""]


def _first(arms: dict, beginning: str) -> dict[int, Scores]:
    return next(steps for arm, steps in arms.items() if arm.startswith(beginning))


def starts(p: Page) -> list[str]:
    """Table 5 at step 0."""
    arms = p.of("table5")
    untouched = _first(arms, STARTS[0])[0]

    def lines():
        for name in STARTS:
            s = _first(arms, name)[0]
            bits, characters, accuracy = _cells(p, s, over_windows)
            less = "–" if name == STARTS[0] else shown(over_windows(s.bits - untouched.bits, p.tokens), signed=True)
            yield name, s.read, bits, less, characters, accuracy, PAPER[name]

    heads = ("before tuning", "read as", "bits per token", "minus in pieces", "bits per character", "accuracy", "the paper's")
    return _table(heads, lines())


def tuned(p: Page) -> list[str]:
    """Table 5 after tuning; differences are of bits per token."""
    arms = p.of("table5")
    untouched = _first(arms, STARTS[0])[0]
    steps = list(next(iter(arms.values())))
    few, last = steps[1], steps[-1]

    def lines():
        for rate in dict.fromkeys(arm.rpartition(", rate ")[2] for arm in arms):
            best = arms[f"copied rows, all weights, rate {rate}"][last]
            for arm, found in arms.items():
                name, _, own = arm.rpartition(", rate ")
                if own == rate:
                    s = found[last]
                    less = [difference(s.bits - x.bits, p.tokens) for x in (untouched, best)]
                    less[1] = "–" if s is best else less[1]
                    early = shown(over_seeds(found[few].bits, p.tokens))
                    bits, characters, accuracy = _cells(p, s, over_seeds)
                    yield name, rate, early, bits, *less, characters, accuracy, PAPER.get(name, "–")

    heads = (
        "tuned", "rate", f"bits per token, {few} steps", f"{last} steps", "minus untouched, in pieces",
        "minus copied rows, all weights", "bits per character", "accuracy", "the paper's",
    )  # fmt: skip
    return _table(heads, lines())


def ablation(p: Page) -> list[str]:
    """Table 4: every arm, then the differences that it is about."""
    arms = p.of("table4")
    last = max(next(iter(arms.values())))

    def lines():
        for arm, found in arms.items():
            before = shown(over_windows(found[0].bits, p.tokens))
            bits, characters, accuracy = _cells(p, found[last], over_seeds)
            yield arm, before, bits, characters, accuracy, PAPER[arm.partition(", mean ")[0]]

    def differences():
        for mean in dict.fromkeys(arm.partition(", mean ")[2] for arm in arms):
            for one, other in PAIRS:
                a, b = (arms.get(f"{x}, mean {mean}") for x in (one, other))
                if a and b:
                    before = shown(over_windows(a[0].bits - b[0].bits, p.tokens), signed=True)
                    after = difference(a[last].bits - b[last].bits, p.tokens)
                    yield f"{one} minus {other}, mean {mean}", before, after

    when = f"after {last} steps"
    heads = ("windows", "bits per token, before", when, "bits per character", "accuracy", "the paper's")
    return [*_table(heads, lines()), *_table(("bits per token", "before", when), differences())]


def direction(p: Page) -> str:
    """Whether fewer bits are more right guesses."""
    each = {  # a set: seeds share what they begin with
        (tuple(b), tuple(r)) for steps in p.arms.values() for s in steps.values() for b, r in zip(s.bits, s.right, strict=True)
    }
    bits, right = (np.asarray(x).sum(1) for x in zip(*each, strict=True))
    tau = float(np.asarray(stats.kendalltau(bits, right))[0])
    says = "the fewer bits, the more are right, so that 1.705 is better than 1.850" if tau < 0 else "no order that is clear"
    return (
        f"Over the {len(each)} different evaluations of this page Kendall's τ between bits per token and accuracy is "
        f"{tau:.2f}: {says}."
    )


def write(out: Path, windows: dict[str, list[int]], rows: list[dict], command: str) -> None:
    """Both files."""
    p = page(windows, rows)
    tokens, characters = int(p.tokens.sum()), int(p.characters.sum())
    text = [
        "# Longformer's Tables 5 and 4 on bert-mini", "",
        f"`{command}`. e006_longformer.py says what is measured and which hypotheses it tests. {len(p.tokens)} held-out "
        f"windows, {tokens:,} masked tokens, which cover {characters:,} characters, {characters / tokens:.2f} each. Before "
        "tuning ± is the standard error over windows, after it over seeds; differences are paired, and in brackets is their "
        "error over windows.", "",
        "## Table 5: the conversion", "", *starts(p), *tuned(p), direction(p), "",
        "## Table 4: windows by layer, dilation", "", *ablation(p), "![bits per token](bits.png)",
    ]  # fmt: skip
    (out / "table.md").write_text("\n".join(text) + "\n", encoding="utf-8")
    plot(out / "bits.png", p)


def plot(path: Path, p: Page) -> None:
    """Table 5 against step; Table 4 before and after."""
    import matplotlib.figure

    figure = matplotlib.figure.Figure(figsize=(13, 5.5), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    shown = {arm: steps for arm, steps in p.of("table5").items() if not arm.startswith("random")}
    names, rates = (list(dict.fromkeys(arm.rpartition(", rate ")[i] for arm in shown)) for i in (0, 2))
    for arm, steps in shown.items():
        name, _, rate = arm.rpartition(", rate ")
        y, se = zip(*(over_seeds(s.bits, p.tokens) for s in steps.values()), strict=True)
        style = {"color": f"C{names.index(name)}", "linestyle": ("-", ":")[rates.index(rate)]}
        left.errorbar(list(steps), y, [e or 0 for e in se], marker="o", markersize=3, capsize=2, label=arm, **style)
    left.set(title="Table 5 without random rows", xlabel="training step", ylabel="bits per masked token (lower is better)")
    left.legend(fontsize=8)
    arms = p.of("table4")
    before, after = ([over_seeds(steps[pick(steps)].bits, p.tokens) for steps in arms.values()] for pick in (min, max))
    right.plot([mean for mean, _ in before], range(len(arms)), "o", fillstyle="none", label="before tuning")
    y, se = zip(*after, strict=True)
    right.errorbar(y, range(len(arms)), xerr=[e or 0 for e in se], fmt="o", capsize=3, label="after (± over seeds)")
    right.set(title="Table 4", xlabel="bits per masked token (lower is better)")
    right.set_yticks(range(len(arms)), list(arms), fontsize=8)
    right.invert_yaxis()
    for axes in (left, right):
        axes.grid(alpha=0.3)
    right.legend(fontsize=8)
    figure.savefig(path, dpi=110)
