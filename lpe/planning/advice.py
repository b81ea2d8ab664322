"""A plan in words: the order of its rows, the one that is recommended with its reason and command, and the whole as a page."""

import json
import math
import shlex
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from lpe import build, costs
from lpe.build import Recipe

GB, MB = 10**9, 10**6
CHUNK = 512  # tokens at a time of the feed-forward part, as a way to less memory
HALVINGS = 8
RULE = (
    "of those that fit, reach the length and need no training, the best accuracy measured without training; ties by time; "
    "what is reading in pieces only where nothing else fits"
)


def ranked(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows by the rule of the recommendation: the first one that fits and needs no training is recommended."""

    def order(row: dict[str, Any]) -> tuple:
        worth = row["zero_shot"]
        ties = (row["seconds"], row["memory"], not row["same_on_short_inputs"])
        return (not row["fits"], row["needs_training"], row["in_pieces"], -(worth["accuracy"] if worth else -1.0), *ties)

    return sorted(rows, key=order)


def recommendation(plan: Mapping[str, Any], own: Recipe) -> dict[str, Any]:
    """recommended: the row or None; reason: in words; command: that of lpe.convert, or ""."""
    first = next((r for r in plan["combinations"] if r["fits"] and not r["needs_training"]), None)
    if first is None:
        return {"recommended": None, "reason": _nothing_fits(plan, own), "command": ""}
    return {"recommended": first, "reason": _reason(plan, first), "command": _command(plan, first, own)}


def _reason(plan: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    names = f"{row['position']['name']} positions with {row['attention']['name']} attention"
    needs = f"It takes {size(row['memory'])} and about {_time(row['seconds'])} a text"
    worth, pieces = row["zero_shot"], plan["untouched"]
    alike = ("fits", "needs_training", "in_pieces")
    others = sum(all(r[k] == row[k] for k in alike) for r in plan["combinations"])
    which = "fit and need no training" + (
        ", all of them reading in pieces" if row["in_pieces"] else " and do not read in pieces"
    )
    if worth is None:
        same = [r for r in plan["combinations"] if all(r[k] == row[k] for k in (*alike, "seconds"))]
        also = ", ".join(r["position"]["name"] for r in same if r is not row)
        text = f"{names}: the quality of none of the {others} that {which} was measured, and none is quicker"
        return f"{text}{f' (just as quick: {also}; measure them on your task)' if also else ''}. {needs}."
    text = (
        f"{names}: of the {others} that {which}, the best accuracy measured without training, {_worth(worth)} "
        f"(you ask for {plan['factor']:g} ×). {needs}."
    )
    apart = worth["accuracy"] - pieces["accuracy"]
    error = math.hypot(worth["standard_error"], pieces["standard_error"])
    verdict = "better" if apart > 2 * error else "worse" if apart < -2 * error else "no better and no worse, beyond the errors,"
    return (
        f"{text} Untouched, {pieces['model']} reads the same tokens in pieces ({pieces['read_as']}) at {_percent(pieces)}: "
        f"before any training what is recommended is {verdict} than that."
    )


def _nothing_fits(plan: Mapping[str, Any], own: Recipe) -> str:
    """What is nearest, and what of it would fit: each way is compiled, none is guessed."""
    rows = [r for r in plan["combinations"] if not r["needs_training"]]
    if not rows:
        return "Nothing: all that was asked for needs training."
    least = min(rows, key=lambda r: r["memory"])
    names = f"{least['position']['name']} with {least['attention']['name']}"
    lines = [f"Nothing fits. The nearest is {names} with {size(least['memory'])} of {size(plan['memory'])}. What would fit:"]
    ways: list[tuple[str, dict]] = []
    if not own.chunk_size and plan["length"] > CHUNK:
        ways.append((f"--chunk_size={CHUNK}", {"chunk_size": CHUNK}))
    if own.dtype != "bfloat16":
        ways.append(("--dtype=bfloat16", {"dtype": "bfloat16"}))
    if len(ways) == 2:
        ways.append((" ".join(w for w, _ in ways), ways[0][1] | ways[1][1]))
    for words, changes in ways:
        memory = _memory(own._replace(**changes), least, plan["length"], plan["pass"])
        lines.append(f"  {words}: {size(memory)}{'' if memory <= plan['memory'] else ', not enough'}")
    lines.append(f"  {_shorter(plan, least, own)}")
    if plan["pass"] == "train":
        lines.append("  leave out --train: inference takes less")
    return "\n".join(lines)


def _shorter(plan: Mapping[str, Any], row: Mapping[str, Any], own: Recipe) -> str:
    """The longest of the halved lengths at which the row's combination fits."""
    if (weights := 4 * row["parameters"]) > plan["memory"]:
        return f"no length: the parameters alone take {size(weights)}"
    length = plan["length"]
    for _ in range(min(HALVINGS, length.bit_length() - 1)):
        length //= 2
        if (memory := _memory(own, row, length, plan["pass"])) <= plan["memory"]:
            return f"--length={length}: {size(memory)}"
    return f"no shorter length that was tried, down to {length}"


def _memory(recipe: Recipe, row: Mapping[str, Any], length: int, what: str) -> int:
    """Bytes of the row's combination under another recipe or length; its positions stay as long."""
    position = build.keep_weights(recipe.position, build.positions(row["position"]))
    whole = recipe._replace(position=position, attention=build.attention(row["attention"]))
    return costs.of(whole, length, what).memory


def _command(plan: Mapping[str, Any], row: Mapping[str, Any], own: Recipe) -> str:
    """The command of lpe.convert that makes the recommended model."""
    position, attention = dict(row["position"]), {} if row["own_attention"] else dict(row["attention"])
    if is_own := position["name"] in [dict(s)["name"] for s in own.position]:
        limit = build.position_method(own).max_length
        if not attention and (limit is None or plan["length"] <= limit):
            return ""
    if is_own and not build.plain(own):  # the length alone keeps the method and its options
        position = {k: v for k, v in position.items() if k == "max_length"}
    flags = [f"--from={plan['from']}", *_flags("position", position), *_flags("attention", attention), "--to=DIR"]
    return "python -m lpe.convert " + " ".join(map(shlex.quote, flags))


def _flags(package: str, spec: Mapping[str, Any]) -> list[str]:
    """--position=NAME and its options, each a flag of its name."""
    said = {k: v if isinstance(v, str) else json.dumps(v) for k, v in spec.items()}
    return [f"--{package if k == 'name' else k}={v}" for k, v in sorted(said.items(), key=lambda kv: kv[0] != "name")]


def text(plan: Mapping[str, Any]) -> str:
    """The page that the command prints."""
    s, factor, allowed = plan["speed"], f"{plan['factor']:g}", size(plan["memory"])
    lines = [
        f"{plan['from']}: {plan['length']:,} tokens, {factor} × the {plan['trained']:,} of its training; "
        f"one {plan['pass']} pass, batch 1, {plan['dtype']}, {allowed} allowed",
        f"{plan['device']} ({plan['device_kind']}): {s['rate'] / 1e9:,.0f} GFLOP/s in a large product, of which "
        f"this model reaches {100 * s['share']:.0f} % ({s['length']:,} tokens, {_time(s['seconds'])})",
        "",
        *_table(plan["combinations"]),
        "",
        "params: of the encoder. memory: of the compiled pass. time: TFLOP at the rate that this model reaches. zero-shot:",
        "accuracy at masked places before any training, of the model named, at so many times its length; – where it was not",
        "measured. in pieces: blocks that never meet. short: same: outputs of short inputs are as before.",
    ]
    if plan["left_out"]:
        lines += _wrapped(f"left out, for they need training (--positions=… plans them): {', '.join(plan['left_out'])}")
    for r in plan["refused"]:
        lines += _wrapped(f"refused, {r['which']}: {r['why']}")
    lines += ["", *_wrapped(f"Rule: {RULE}."), ""]
    lines += _wrapped(f"Recommended: {plan['reason']}") if plan["recommended"] else [plan["reason"]]
    if plan["command"]:
        lines += ["", plan["command"]]
    elif plan["recommended"]:
        lines += ["", "There is nothing to convert: the checkpoint reads this length as it is."]
    if plan["claims"]:
        lines += ["", "What an article (001) says, and what was measured:"]
        for c in plan["claims"]:
            lines += [f"- {c['claim']}", *_wrapped(f"  {c['measured']}"), *_wrapped(f"  [{c['where']}]")]
    return "\n".join(lines)


def _wrapped(prose: str) -> list[str]:
    return textwrap.wrap(prose, 128, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    head = ("position", "attention", "params", "memory", "fits", "TFLOP", "time", "zero-shot", "note")
    cells = [head, *(_cells(r) for r in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    right = {2, 3, 5, 6}

    def line(row: Sequence[str]) -> str:
        padded = (c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        return f"| {' | '.join(padded)} |"

    rule = "|".join("-" * (w + 1) + (":" if i in right else "-") for i, w in enumerate(widths))
    return [line(head), f"|{rule}|", *map(line, cells[1:])]


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    worth = _worth(row["zero_shot"]) if row["zero_shot"] else "–"
    notes = {"needs training": row["needs_training"], "in pieces": row["in_pieces"], "short: same": row["same_on_short_inputs"]}
    note = next((words for words, holds in notes.items() if holds), "")
    return (
        row["position"]["name"], row["attention"]["name"], f"{row['parameters'] / 1e6:.1f} M", size(row["memory"]),
        "yes" if row["fits"] else "no", f"{row['flops'] / 1e12:.3g}", _time(row["seconds"]), worth, note,
    )  # fmt: skip


def _worth(entry: Mapping[str, Any]) -> str:
    return f"{_percent(entry)}, {entry['model']} {entry['factor']:g} ×"


def _percent(entry: Mapping[str, Any]) -> str:
    return f"{100 * entry['accuracy']:.1f} ± {100 * entry['standard_error']:.1f} %"


def size(count: int) -> str:
    """Bytes in words."""
    if count < GB / 10:
        return f"{count / MB:.1f} MB"
    return f"{count / GB:.2f} GB" if count < 10 * GB else f"{count / GB:,.0f} GB"


def _time(seconds: float) -> str:
    if seconds < 1:
        return f"{1e3 * seconds:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.1f} min"
