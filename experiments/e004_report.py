"""Writes config.json, results.jsonl, table.md and rule.png of e004_rule.py, from the lines that its sweeps left."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from lpe import metrics, workdir

WHEN = ("before", "after")
RIVALS = ("hierarchical α=0.4", "hierarchical α=0.4 r=1 c=1", "hierarchical α=0.3", "copy", "random", "pieces")
Found = dict[str, dict[str, list[float]]]  # arm -> "before" | "after" -> accuracy by fold


def keep(folder: Path, about: dict[str, Any], rows: list[dict]) -> None:
    """Puts a checkpoint's settings and lines into the files of a half, in place of what they have of it."""
    file, config = folder / "results.jsonl", folder / "config.json"
    name = about["checkpoint"]
    settings = json.loads(config.read_text(encoding="utf-8")) if config.is_file() else {}
    kept = [r for r in metrics.read(file) if r["checkpoint"] != name]
    for r in rows:
        (view,) = r["views"].values()
        line = {"checkpoint": name, "arm": r["label"], "fold": r["repeat"], "read as": view["after"]["label"]}
        line |= {when: view[when]["accuracy"] for when in WHEN}
        kept.append({**line, "places": view["after"]["count"], "seconds": round(r["seconds"], 1)})
    workdir.write(config, json.dumps({**settings, name: about}, indent=1, ensure_ascii=False) + "\n")
    workdir.write(file, "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in kept))


def of(rows: list[dict], checkpoint: str) -> Found:
    """Accuracies of a checkpoint, folds in order."""
    own = sorted((r for r in rows if r["checkpoint"] == checkpoint), key=lambda r: r["fold"])
    return {arm: {w: [r[w] for r in own if r["arm"] == arm] for w in WHEN} for arm in dict.fromkeys(r["arm"] for r in own)}


def shown(values: list[float], sign: str = "") -> str:
    """Mean and standard error over folds, in points."""
    x = 100 * np.asarray(values)
    error = f"{x.std(ddof=1) / len(x) ** 0.5:.1f}" if len(x) > 1 else "?"
    return f"{x.mean():{sign}.1f} ± {error}"


def paired(found: Found, a: str, b: str, when: str) -> str:
    """a − b on the same folds; "–" where one of them was not run."""
    if a not in found or b not in found:
        return "–"
    return shown([x - y for x, y in zip(found[a][when], found[b][when], strict=False)], "+")


def checkpoint(name: str, about: dict[str, Any], found: Found) -> list[str]:
    """All arms of a checkpoint."""
    heads = ("arm", "options", "before", "after", *(f"{w}, minus {RIVALS[0]}" for w in WHEN), "after, minus pieces", "folds")
    lines = [
        f"### {name}, the first {about['n']} rows", "",
        f"{about['steps']} steps of {about['batch_size']} windows of up to {about['length']} tokens, rate "
        f"{about['learning_rate']:g}; "
        f"{about['examples']} windows a fold are judged.", "",
        f"| {' | '.join(heads)} |", "|---" * len(heads) + "|",
    ]  # fmt: skip
    for arm, values in found.items():
        cells = [shown(values[w]) for w in WHEN]
        cells += [paired(found, arm, RIVALS[0], w) for w in WHEN]
        cells += [paired(found, arm, "pieces", "after"), str(len(values["after"]))]
        lines.append(f"| {arm} | {options(about['arms'][arm])} | {' | '.join(cells)} |")
    return [*lines, ""]


def options(arm: dict[str, Any]) -> str:
    """What an arm gives its position method, without what all share."""
    own = {k: v for k, v in arm["position"].items() if k not in ("name", "max_length")}
    return ", ".join(f"{k}={v}" for k, v in own.items()) or "–"


def judged(names: list[str], rows: list[dict], when: str, ending: str = "") -> list[str]:
    """The rule against its rivals, a line a checkpoint."""
    rivals = [r for r in RIVALS if any(row["arm"] == r + ending for row in rows) or r == "pieces"]
    heads = ["checkpoint", f"the rule{ending}", *(f"minus {r}{ending if r != 'pieces' else ''}" for r in rivals)]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name in names:
        found = of(rows, name)
        if (arm := "the rule" + ending) in found:
            cells = [paired(found, arm, r if r == "pieces" else r + ending, when) for r in rivals]
            lines.append(f"| {name} | {shown(found[arm][when])} | {' | '.join(cells)} |")
    return lines if len(lines) > 2 else []


def statistics(settings: dict[str, Any]) -> list[str]:
    names = list(next(iter(settings.values()))["table"])
    lines = ["| checkpoint | rows | " + " | ".join(names) + " |", "|---" * (len(names) + 2) + "|"]
    return lines + [
        f"| {k} | {a['n']} | " + " | ".join(f"{a['table'][x]:.2f}" for x in names) + " |" for k, a in settings.items()
    ]


def write(folder: Path) -> None:
    """table.md and rule.png, from the lines so far."""
    settings = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    rows, names = metrics.read(folder / "results.jsonl"), list(settings)
    text = [
        f"# A rule for `hierarchical`, half `{folder.name}`", "",
        f"`python -m experiments.e004_rule --half={folder.name}`. e004_rule.py says what is measured, e004_inputs.py on what. "
        "Accuracy at masked places, %, before and after tuning all weights, ± standard error over folds (each with its own "
        "windows, masks, order and draws); differences are paired by fold.", "",
        "The trained rows, norms divided by their median:", "", *statistics(settings), "",
    ]  # fmt: skip
    for ending in ("", ", window"):
        for when in WHEN:
            if lines := judged(names, rows, when, ending):
                text += [f"## The rule{ending}, {when} tuning", "", *lines, ""]
    text += ["## All arms", "", "![before and after tuning](rule.png)", ""]
    for name in names:
        text += checkpoint(name, settings[name], of(rows, name))
    workdir.write(folder / "table.md", "\n".join(text).rstrip() + "\n")
    plot(folder / "rule.png", {n: of(rows, n) for n in names})


def plot(path: Path, found: dict[str, Found]) -> None:
    """A panel a checkpoint: accuracy of every arm before and after."""
    import matplotlib.figure

    arms = list(dict.fromkeys(arm for each in found.values() for arm in each))
    size = (4.0 + 3.0 * len(found), 1.5 + 0.3 * len(arms))
    figure = matplotlib.figure.Figure(figsize=size, layout="constrained")
    for axes, (name, each) in zip(figure.subplots(1, len(found), sharey=True, squeeze=False)[0], found.items(), strict=True):
        for when, mark in zip(WHEN, ("o", "s"), strict=True):
            y = [i for i, arm in enumerate(arms) if arm in each]
            values = [100 * np.asarray(each[arms[i]][when]) for i in y]
            error = [v.std(ddof=1) / len(v) ** 0.5 if len(v) > 1 else 0.0 for v in values]
            axes.errorbar([v.mean() for v in values], y, xerr=error, fmt=mark, ms=4, capsize=2, label=f"{when} tuning")
        axes.set(title=name, xlabel="accuracy, %")
        axes.grid(alpha=0.3)
    first = figure.axes[0]
    first.set_yticks(range(len(arms)), arms, fontsize=8)
    first.invert_yaxis()
    first.legend(fontsize=8)
    figure.savefig(path, dpi=110)
