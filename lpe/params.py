"""A parameter is a row of a table: shape, logical axes, initialiser. Init, sharding, import checks and counts follow."""

import math
import zlib
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax.traverse_util import flatten_dict, unflatten_dict
from jax import Array


class Spec(NamedTuple):
    """One parameter. `axes` are logical names; axes[0] == "layers" means stacked over the layers."""

    shape: tuple[int, ...]
    axes: tuple[str | None, ...]
    init: Callable[..., Array]  # (key, shape, dtype) -> array


def init(specs: dict[str, Spec], key: Array, dtype=jnp.float32) -> dict:
    """A nested dict of fresh parameters; each one's key depends on its path only, never on its neighbours."""
    flat = {}
    for path, spec in specs.items():
        flat[path] = spec.init(jax.random.fold_in(key, zlib.crc32(path.encode())), spec.shape, dtype)
    return nest(flat)


def nest(flat: dict[str, Any]) -> dict[str, Any]:
    """From "a/b" paths to nested dicts."""
    return dict(unflatten_dict(flat, sep="/"))


def flatten(tree: dict) -> dict[str, Any]:
    """From nested dicts to "a/b" paths."""
    return dict(flatten_dict(tree, sep="/"))


def under(prefix: str, specs: dict[str, Spec]) -> dict[str, Spec]:
    return {f"{prefix}/{name}": spec for name, spec in specs.items()}


def stacked(count: int, specs: dict[str, Spec]) -> dict[str, Spec]:
    """The same rows for `count` layers, on a new leading axis."""
    return {n: Spec((count, *s.shape), ("layers", *s.axes), s.init) for n, s in specs.items()}


def count(tree: dict) -> int:
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(tree))


def check(specs: dict[str, Spec], params: dict) -> None:
    """Raises ValueError naming every parameter that is missing, unknown or of a wrong shape."""
    flat = flatten(params)
    problems = [f"missing {p}" for p in missing(specs, flat)] + [f"unknown {p}" for p in missing(flat, specs)]
    problems += [
        f"{p}: shape {tuple(flat[p].shape)}, expected {specs[p].shape}"
        for p in specs
        if p in flat and tuple(flat[p].shape) != tuple(specs[p].shape)
    ]
    if problems:
        raise ValueError("parameters do not fit the model:\n  " + "\n  ".join(problems))


def missing(wanted: Iterable[str], there: Iterable[str]) -> list[str]:
    return sorted(set(wanted) - set(there))


def normal(stddev: float) -> Callable[..., Array]:
    return lambda key, shape, dtype: stddev * jax.random.normal(key, shape, dtype)


def zeros(key: Array, shape: tuple[int, ...], dtype) -> Array:
    return jnp.zeros(shape, dtype)


def ones(key: Array, shape: tuple[int, ...], dtype) -> Array:
    return jnp.ones(shape, dtype)
