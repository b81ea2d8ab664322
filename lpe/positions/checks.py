"""Checks of a method's options; each error names the value and what is allowed."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

REACH = 2**31 - 1  # positions are int32
LARGEST = 2**20  # rows of a table by distance: more than any document has tokens, and an array that still fits
FACTOR = 4  # methods that must know the length offer 4n positions when none is given: 512 rows become 2,048


def _full(method: str) -> str:
    """Position methods give their own name, others that of their package too."""
    return method if "." in method else f"positions.{method}"


def whole(method: str, name: str, value: Any, low: int, high: int, hint: str = "") -> int:
    """`value`. Raises ValueError unless it is a whole number from `low` to `high`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not low <= value <= high:
        raise ValueError(f"{_full(method)}: {name}={value!r}, allowed are whole numbers from {low} to {high}{hint}")
    return int(value)


def number(method: str, name: str, value: Any, low: float, high: float = math.inf, *, above: bool = False) -> float:
    """`value`. Raises ValueError unless it is a finite number from `low` (or above it) to `high`."""
    real = isinstance(value, (int, float, np.number)) and not isinstance(value, bool) and math.isfinite(value)
    if not real or not low <= value <= high or (above and value == low):
        upper = "" if high == math.inf else f" up to {high:g}"
        raise ValueError(
            f"{_full(method)}: {name}={value!r}, allowed are numbers {'above' if above else 'from'} {low:g}{upper}"
        )
    return float(value)


def one_of(method: str, name: str, value: Any, allowed: Sequence[Any]) -> Any:
    """`value`. Raises ValueError unless it is one of `allowed`, of the same type."""
    if not any(type(value) is type(a) and value == a for a in allowed):
        raise ValueError(f"{_full(method)}: {name}={value!r}, allowed are {', '.join(map(repr, allowed))}")
    return value


def factors(method: str, name: str, value: Any, count: int) -> np.ndarray:
    """`value` as f64[count]. Raises ValueError unless it is a list of `count` numbers above 0."""
    if not isinstance(value, (list, tuple, np.ndarray)) or len(value) != count:
        found = f"{len(value)} numbers" if hasattr(value, "__len__") else repr(value)
        raise ValueError(f"{_full(method)}: {name} has {found}, needed is a list of {count}, one for each pair of channels")
    return np.asarray([number(method, f"{name}[{i}]", x, 0, above=True) for i, x in enumerate(value)])
