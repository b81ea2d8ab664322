"""What an article says of long position embeddings (seeds of this project: 001) and measurements contradict."""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from lpe import build, costs, model, positions, registry
from lpe.build import Recipe
from lpe.models.bert import BertConfig
from lpe.planning import known

GB = 10**9


class Claim(NamedTuple):
    """claim: what is said; measured: what was found, in words with figures; where: this run, or the results with command."""

    claim: str
    measured: str
    where: str


def contradicted(rows: Sequence[dict[str, Any]], length: int, trained: int, own: Recipe) -> list[Claim]:
    """The claims for which there is a measurement, of the committed results or of this run.

    Args:
      rows: of the plan: position, attention, memory.
      length, trained: tokens of the plan and of the checkpoint's training.
      own: the checkpoint's recipe.
    """
    found = known.results()
    return [
        *_by_method(rows, length, found["claims"]),
        *_bert_base(),
        _no_base(),
        *_naive(),
        *_alpha(found["alpha"]),
        *_limits(own, length, trained),
    ]


def _by_method(rows: Sequence[dict[str, Any]], length: int, measured: list[dict]) -> list[Claim]:
    """Memory and time by position method."""
    out = []
    for says in dict.fromkeys(c["says"] for c in measured):
        same = [c for c in measured if c["says"] == says]
        out.append(
            Claim(says, "; ".join(map(_ratio, same)) + ", all of a training step", f"{same[0]['source']}, {same[0]['command']}")
        )
    by_place = {(r["position"]["name"], r["attention"]["name"]): r["memory"] for r in rows}
    pairs = {(c["method"], c["over"]) for c in measured if c["what"] == "memory"}
    for a, b in sorted(pairs):
        ratios = {p: by_place[a, p] / by_place[b, p] for x, p in by_place if x == a and (b, p) in by_place}
        if ratios:
            words = ", ".join(f"{ratio:.3f} with {p}" for p, ratio in ratios.items())
            said = f"peak memory differs by position method: {a} takes more than {b}"
            out.append(Claim(said, f"compiled peak memory of {a} over {b} at {length:,} tokens: {words}", "this run"))
    return out


def _ratio(c: dict[str, Any]) -> str:
    m = c["measured"]
    spread = f" ({m['lowest']:.2f} to {m['highest']:.2f})" if "lowest" in m else ""
    ratio = f"{c['what']} of {c['method']} over {c['over']} at {c['tokens']:,} tokens"
    return f"{ratio} {m['median']:.2f}{spread}, not {c['said']:.2f}"


def _bert_base() -> list[Claim]:
    cfg = BertConfig()
    recipe = Recipe("bert", cfg, (), build.positions({"name": "interpolate"}, 2048))
    forward, train = (costs.of(recipe, 2048, what).memory / GB for what in costs.PASSES)
    words = (
        f"BERT-base's shape at 2,048 tokens, batch 1 (the article names none), float32, dense: {forward:.1f} GB forward, "
        f"{train:.1f} GB with gradient"
    )
    return [Claim("BERT runs out of the 32 GB of a V100 at 2,048 tokens", words, "this run, compiled peak memory")]


def _no_base() -> Claim:
    try:
        registry.load("positions", "ntk")
    except ValueError as e:
        return Claim("NTK-aware scaling extends the position table of a BERT", f"refused: {e}", "this run")
    raise AssertionError("a method named ntk exists now: this claim needs another look")


def _naive() -> list[Claim]:
    """How far the printed form moves the first n rows of bert-mini's table, at the article's own α."""
    mini = model.from_pretrained("bert-mini")
    table = np.asarray(mini.params["position"]["table"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # α above 0.5
        naive, true = (
            np.asarray(positions.extend_table(table, len(table), name, alpha=0.7))
            for name in ("hierarchical_naive", "hierarchical")
        )
    typical = float(np.median(np.linalg.norm(table, axis=1)))
    moved, kept = (float(np.median(np.linalg.norm(x - table, axis=1))) / typical for x in (naive, true))
    words = (
        f"bert-mini's {len(table)} rows at α = 0.7 move by {moved:.2f} of a row's norm (medians) with the printed formula, and "
        f"by {kept:.2f} with the form of its author (hierarchical)"
    )
    return [Claim("α p_i + (1 − α) p_j keeps the trained rows as they are", words, "this run, on bert-mini's table")]


def _alpha(rows: list[dict]) -> list[Claim]:
    best = max(rows, key=lambda r: r["after"])
    said = max((r for r in rows if 0.6 <= r["alpha"] <= 0.9), key=lambda r: r["after"])
    if best is said:
        return []

    def shown(r: dict) -> str:
        return f"α = {r['alpha']}: {100 * r['after']:.1f} ± {100 * r['after_standard_error']:.1f} %"

    words = (
        f"{best['model']} at {best['factor']:g} × its length after {best['steps']} steps, {best['repeats']} seeds: "
        f"{shown(best)}, the best from 0.6 to 0.9 {shown(said)}"
    )
    return [Claim("α from 0.6 to 0.9 is best", words, f"{best['source']}, {best['command']}")]


def _limits(own: Recipe, length: int, trained: int) -> list[Claim]:
    """Whether interpolation stops at 2 n and NTK-aware scaling at 4 n."""
    out = []
    for name, times in (("interpolate", 2), ("sinusoidal_ntk", 4)):
        wanted = max(length, 2 * times * trained)
        limit = build.position_method(own._replace(position=build.positions({"name": name}, wanted))).max_length
        if limit is not None and limit > times * trained:
            words = f"{name} is built for {limit:,} positions from {trained:,}, {limit / trained:g} n"
            out.append(Claim(f"{name} reaches {times} n", words, "this run"))
    return out
