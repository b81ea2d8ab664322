"""The project's own results, as experiments/known_results.py collects them: what a method was seen to be worth, and where."""

import json
import math
from collections.abc import Mapping
from typing import Any

from lpe import assets, build, registry


def results() -> dict[str, Any]:
    """The whole of lpe/assets/known_results.json."""
    return json.loads(assets.KNOWN_RESULTS.read_text(encoding="utf-8"))


def sized(name: str, n: int) -> dict[str, Any]:
    """An attention pattern in which a token sees about as many keys as the n tokens of training, where it has such options."""
    seeing = getattr(registry.load("attention", name), "seeing", None)
    return {"name": name, **(seeing(n) if seeing else {})}


def quality(entries: list[dict], position: Mapping, attention: Mapping, n: int, factor: float) -> dict[str, Any] | None:
    """The entry of the same methods at the nearest factor; None where they were not measured.

    Position methods are the same with the same options, max_length apart. Patterns are so too, or where both are as `sized`
    makes them for the length that the weights were trained with.

    Args:
      entries: zero_shot of `results`.
      position, attention: {"name": …, options}.
      n: the length that the weights were trained with.
      factor: the length wanted over n.
    """

    def same(entry: dict) -> bool:
        if _plain("positions", entry["position"]) != _plain("positions", position):
            return False
        there, here = _plain("attention", entry["attention"]), _plain("attention", attention)
        both_sized = all(a == _plain("attention", sized(here["name"], m)) for a, m in ((here, n), (there, entry["trained"])))
        return there["name"] == here["name"] and (there == here or both_sized)

    return nearest([e for e in entries if same(e)], factor)


def nearest(entries: list[dict], factor: float) -> dict[str, Any] | None:
    """The entry nearest in factor, as a ratio; of several the one with the most places."""
    far = [(abs(math.log(e["factor"] / factor)), -e["places"], i) for i, e in enumerate(entries)]
    return entries[min(far)[-1]] if far else None


def _plain(package: str, spec: Mapping) -> dict[str, Any]:
    """Without max_length and options at their defaults; lists and tuples alike."""
    kept = registry.without_defaults(package, spec)
    return {k: build.freeze(v) for k, v in kept.items() if k != "max_length"}
