"""A method is found by its file: `load("positions", "hierarchical")` imports lpe/positions/hierarchical.py."""

import difflib
import importlib
import inspect
import pkgutil
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np
from jax import Array

NOT_METHODS = {
    "base",
    "blocks",
    "checks",
    "global_attention",
    "relative",
    "report",
    "rotary",
    "sparse_blocks",
    "splines",
    "table",
}


def freeze(value: Any) -> Any:
    """Nested tuples of a config value, hashable and compared by value."""
    if isinstance(value, Mapping):
        return tuple(sorted((str(k), freeze(v)) for k, v in value.items()))
    if isinstance(value, (np.ndarray, Array)):
        return freeze(value.tolist())
    return tuple(freeze(v) for v in value) if isinstance(value, (list, tuple)) else value


def names(package: str) -> list[str]:
    """The methods of a sub-package of lpe, by file name."""
    module = importlib.import_module(f"lpe.{package}")
    return sorted(m.name for m in pkgutil.iter_modules(module.__path__) if m.name not in NOT_METHODS)


def load(package: str, name: str) -> ModuleType:
    """The module lpe.<package>.<name>.

    Raises:
      ValueError: no such method; the message lists those that exist and suggests the nearest.
    """
    known = names(package)
    if name not in known:
        advice = getattr(importlib.import_module(f"lpe.{package}"), "ADVICE", {}).get(name)
        raise ValueError(f"lpe.{package} has no method {name!r}{f': {advice}' if advice else nearest(name, known)}")
    return importlib.import_module(f"lpe.{package}.{name}")


def options(package: str) -> list[str]:
    """Every option that some method of a sub-package takes."""
    found = {p for name in names(package) for p in _keywords(load(package, name))}
    return sorted(found)


def _keywords(module: ModuleType) -> list[str]:
    return [p.name for p in inspect.signature(module.make).parameters.values() if p.kind == p.KEYWORD_ONLY]


def takes(package: str, spec: Mapping, option: str) -> bool:
    """Whether the method that spec["name"] names has an option. Raises ValueError as make does."""
    return option in _keywords(load(package, _name(package, spec)))


def without_defaults(package: str, spec: Mapping) -> dict:
    """`spec` less the options that only repeat their default."""
    default = inspect.signature(load(package, _name(package, spec)).make).parameters
    return {k: v for k, v in spec.items() if k == "name" or k not in default or default[k].default != v}


def defaults(package: str, spec: Mapping) -> dict:
    """The options that `spec` leaves out, each at its default; one that must be given is not among them."""
    found = inspect.signature(load(package, _name(package, spec)).make).parameters.values()
    return {p.name: p.default for p in found if p.default is not p.empty and p.name not in spec}


def _name(package: str, spec: Mapping) -> str:
    if "name" not in spec:
        raise ValueError(f"a method of lpe.{package} is given as {{'name': ..., options}}, not {spec!r}")
    if not isinstance(spec["name"], str):
        raise ValueError(f"lpe.{package}: name={spec['name']!r}, allowed is the name of a method, as a text")
    return spec["name"]


def make(package: str, spec: dict, *args):
    """Calls make(*args, **rest of spec) of the method that spec["name"] names, after checking the keywords.

    Raises:
      ValueError: no name, an unknown method or an unknown keyword.
    """
    kwargs = dict(spec)
    name = _name(package, kwargs)
    del kwargs["name"]
    module = load(package, name)
    allowed = _keywords(module)
    for key in kwargs:
        if key not in allowed:
            raise ValueError(f"{package}.{name} has no option {key!r}{nearest(key, allowed)}")
    return module.make(*args, **kwargs)


def nearest(word: str, known: list[str]) -> str:
    """The tail of an error message: what is near, and what there is."""
    close = difflib.get_close_matches(word, known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"{hint} (there are: {', '.join(known) or 'none'})"
