"""Ordered rules over parameter paths: the first regular expression that matches a whole path decides, every path needs one.

A stacked parameter has one path per layer: layers/attention/query/kernel stands for layers/0/attention/query/kernel, ….
So one rule language speaks of whole parameters and of single layers.
"""

import re
from collections.abc import Sequence
from typing import Any

from lpe.params import Spec

Rules = Sequence[tuple[str, Any]]


def paths(path: str, spec: Spec) -> list[str]:
    """The paths that a parameter stands for: one per layer where it is stacked, else its own."""
    if spec.axes[:1] != ("layers",):
        return [path]
    group, _, rest = path.partition("/")
    return [f"{group}/{i}/{rest}" for i in range(spec.shape[0])]


def assign(rules: Rules, specs: dict[str, Spec], key: str, *, strict: bool = False) -> dict[str, list]:
    """The value of every path of every parameter: {parameter: [value per path]}.

    Args:
      rules: (regular expression, value), in order.
      key: the config key they come from, for messages.
      strict: a rule that decides nothing is an error; it is most often a typing mistake.

    Raises:
      ValueError: naming each path without a rule; with `strict`, each rule that decides nothing, and paths to choose from.
    """
    compiled = [(re.compile(pattern), value) for pattern, value in rules]
    used, bare, out = set(), [], {}
    for parameter, spec in specs.items():
        values = []
        for path in paths(parameter, spec):
            number = next((n for n, (pattern, _) in enumerate(compiled) if pattern.fullmatch(path)), None)
            if number is None:
                bare.append(path)
            else:
                used.add(number)
                values.append(compiled[number][1])
        out[parameter] = values
    if bare:
        raise ValueError(f'{key}: no rule for {_some(bare)}; end the rules with a (".*", …) for the rest')
    idle = [repr(pattern) for n, (pattern, _) in enumerate(rules) if n not in used]
    if strict and idle:
        known = [path for parameter, spec in specs.items() for path in paths(parameter, spec)]
        raise ValueError(
            f"{key}: {', '.join(idle)} decides nothing: a rule must match a whole path, and those before it may match first; "
            f"paths are {_some(known)}"
        )
    return out


def _some(names: list[str]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
