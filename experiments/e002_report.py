"""Writes table.md and the plot of e002_oracle.py from its results.jsonl."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

RIVALS = (
    "hierarchical α=0.4 r=0 c=0",
    "hierarchical α=0.4 r=1 c=1",
    "hierarchical α=0.4 mean row c=1",
    "copy",
    "random",
    "pieces",
)
Column = tuple[str, int]


def mean_se(values: Sequence[float | None]) -> tuple[float, float] | None:
    """Mean over inputs and its standard error (0 for one input); None where nothing was read."""
    x = np.asarray(values, float)
    if np.isnan(x).any():
        return None
    return float(x.mean()), float(x.std(ddof=1) / len(x) ** 0.5) if len(x) > 1 else 0.0


def percent(values: Sequence[float | None]) -> str:
    found = mean_se(values)
    return "–" if found is None else f"{100 * found[0]:.1f} ± {100 * found[1]:.1f}"


def main_measure(row: dict) -> str:
    """What is compared: accuracy, or the cosine of states where there is no MLM head."""
    return "accuracy" if "accuracy_beyond" in row else "hidden"


def overall(row: dict) -> list[float]:
    """Within and beyond n′, weighted by how many places of an input lie there; one number an input, NaN if nothing beyond."""
    what, share = main_measure(row), row["rows"] / row["length"]
    near, far = (np.asarray(row[f"{what}_{where}"], float) for where in ("within", "beyond"))
    return (share * near + (1 - share) * far).tolist()


def columns(rows: list[dict]) -> list[Column]:
    return list(dict.fromkeys((r["checkpoint"], r["rows"]) for r in rows))


def of(rows: list[dict], column: Column, half: str) -> dict[str, dict]:
    """The rows of a checkpoint, an n′ and a half, by arm."""
    return {r["arm"]: r for r in rows if (r["checkpoint"], r["rows"], r["half"]) == (*column, half)}


def statistics(rows: list[dict]) -> list[str]:
    names = list(rows[0]["table"])
    lines = ["| checkpoint | n′ | " + " | ".join(names) + " |", "|---" * (len(names) + 2) + "|"]
    for name, n in columns(rows):
        table = next(r["table"] for r in rows if (r["checkpoint"], r["rows"]) == (name, n))
        lines.append(f"| {name} | {n} | " + " | ".join(f"{v:.2f}" for v in table.values()) + " |")
    return lines


def checkpoint(rows: list[dict], column: Column, half: str) -> list[str]:
    """All arms of a checkpoint and an n′."""
    own = of(rows, column, half)
    first = next(iter(own.values()))
    what, last = main_measure(first), "agreement beyond" if "agreement_beyond" in first else "embedding"
    title = f"### {column[0]}, n′ = {column[1]}, inputs of {first['length']} tokens"
    lines = [
        title,
        "",
        f"{what}, %:",
        "",
        f"| arm | all places | within n′ | beyond n′ | {last} | rows: L2 | rows: cosine |",
        "|---" * 7 + "|",
    ]
    for arm, r in own.items():
        rest = [f"{r[k]:.2f}" if k in r else "–" for k in ("rows_l2", "rows_cosine")]
        shown = [
            percent(overall(r)),
            percent(r[f"{what}_within"]),
            percent(r[f"{what}_beyond"]),
            percent(r[last.replace(" ", "_")]),
        ]
        lines.append(f"| {arm} | {' | '.join([*shown, *rest])} |")
    return [*lines, ""]


def paired(a: dict, b: dict) -> str:
    """a − b at all places, in points, on the same inputs."""
    found = mean_se([x - y for x, y in zip(overall(a), overall(b), strict=True)])
    return "–" if found is None else f"{100 * found[0]:+.1f} ± {100 * found[1]:.1f}"


def judged(rows: list[dict], rule: Callable[[dict], str], half: str) -> list[str]:
    """The rule's arm against others, and the best arm in hindsight."""
    heads = ["checkpoint", "n′", "the rule takes", "all places", *(f"minus {r}" for r in RIVALS), "best in hindsight"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for column in columns(rows):
        own = of(rows, column, half)
        if not own:
            continue
        chosen = own[rule(next(iter(own.values()))["table"])]
        best = max((r for r in own.values() if "rows_l2" in r), key=lambda r: np.mean(overall(r)))
        cells = [chosen["arm"], percent(overall(chosen)), *(paired(chosen, own[r]) for r in RIVALS)]
        lines.append(f"| {column[0]} | {column[1]} | {' | '.join(cells)} | {best['arm']}: {percent(overall(best))} |")
    return lines


def means(rows: list[dict], rule: Callable[[dict], str], halves: list[str]) -> list[str]:
    """Accuracy at all places by arm and half, mean over the cases with an MLM head; best of the last half first."""
    found: dict[str, dict[str, list[float]]] = {}
    for half in halves:
        for column in columns(rows):
            own = of(rows, column, half)
            if not own or main_measure(next(iter(own.values()))) != "accuracy":
                continue
            own["the rule"] = own[rule(next(iter(own.values()))["table"])]
            for arm, r in own.items():
                found.setdefault(arm, {}).setdefault(half, []).append(float(np.mean(overall(r))))
    lines = [f"| arm | {' | '.join(halves)} | cases |", "|---" * (len(halves) + 2) + "|"]
    for arm, by in sorted(found.items(), key=lambda x: -np.nan_to_num(np.mean(x[1].get(halves[-1], [0.0])))):
        if not np.isnan(np.concatenate(list(by.values()))).any():
            cells = [f"{100 * np.mean(by[h]):.1f}" if h in by else "–" for h in halves]
            lines.append(f"| {arm} | {' | '.join(cells)} | {max(map(len, by.values()))} |")
    return lines


def write(out: Path, rows: list[dict], command: str, rule: Callable[[dict], str]) -> None:
    """Both files, from the lines so far; the half "report" where it is there."""
    halves = list(dict.fromkeys(r["half"] for r in rows))
    text = [
        "# The first n′ rows of a checkpoint as its whole table", "",
        f"`{command}`. e002_oracle.py says what is measured, e002_inputs.py on what. ± is the standard error over inputs.", "",
        "## What a rule may look at: the first n′ rows", "", "Norms are divided by their median.", "", *statistics(rows), "",
    ]  # fmt: skip
    for half in halves:
        text += [f"## The rule, on the inputs of the half `{half}`", "", *judged(rows, rule, half), ""]
    text += ["## Mean over the checkpoints with an MLM head", "", "Accuracy at all places, %, by half.", ""]
    text += [*means(rows, rule, halves), ""]
    text += [f"## All arms, half `{halves[-1]}`", "", "![beyond n′, as a picture](beyond.png)", ""]
    for column in columns(rows):
        text += checkpoint(rows, column, halves[-1]) if of(rows, column, halves[-1]) else []
    (out / "table.md").write_text("\n".join(text).rstrip() + "\n", encoding="utf-8")
    plot(out / "beyond.png", rows, halves[-1])


def plot(path: Path, rows: list[dict], half: str) -> None:
    """Accuracy (MiniLM: cosine of states), arms by checkpoints, coloured by its share of the untouched model's."""
    import matplotlib.figure

    shown = [c for c in columns(rows) if of(rows, c, half)]
    arms = list(dict.fromkeys(r["arm"] for r in rows if r["half"] == half and r["arm"] != "truncated"))
    figure = matplotlib.figure.Figure(figsize=(4.5 + 1.2 * len(shown), 2.0 + 0.26 * len(arms)), layout="constrained")
    for axes, title in zip(figure.subplots(1, 2, sharey=True), ("within n′", "beyond n′"), strict=True):
        values = np.full((len(arms), len(shown)), np.nan)
        for x, column in enumerate(shown):
            own = of(rows, column, half)
            for y, r in enumerate(own[arm] for arm in arms):
                found = mean_se(r[f"{main_measure(r)}_{title.split()[0]}"])
                values[y, x] = 100 * found[0] if found else np.nan
        image = axes.imshow(100 * values / values[0], cmap="viridis", vmin=0, vmax=100, aspect="auto")
        for (y, x), v in np.ndenumerate(values):
            dark = v < 0.6 * values[0, x]
            axes.text(x, y, f"{v:.0f}", ha="center", va="center", fontsize=8, color="white" if dark else "black")
        axes.set_xticks(range(len(shown)), [f"{name}, {n}" for name, n in shown], rotation=60, ha="right", fontsize=8)
        axes.set_yticks(range(len(arms)), arms, fontsize=8)
        axes.set_title(title, fontsize=10)
    figure.suptitle("MLM accuracy, % (minilm: cosine with the true states); checkpoint, n′", fontsize=11)
    figure.colorbar(image, label="% of the untouched model's")
    figure.savefig(path, dpi=110)
