"""Linear maps and dropout, which layers, heads and attention patterns share."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from lpe.params import Spec, normal, zeros


def dense_specs(
    d_in: int, d_out: int, axes: tuple[str | None, str | None], stddev: float, *, bias: bool = True
) -> dict[str, Spec]:
    rows = {"kernel": Spec((d_in, d_out), axes, normal(stddev))}
    return rows | ({"bias": Spec((d_out,), axes[1:], zeros)} if bias else {})


def dense(params: dict, x: Array, axes: int = 1) -> Array:
    """The last `axes` axes of x contracted with the kernel's first, plus the bias where there is one, in the dtype of x.

    One matrix product of two-dimensional operands: XLA's CPU backward pass is twice as fast on it as on one with batch axes.
    """
    kernel = params["kernel"].astype(x.dtype)
    batch, inner, outer = x.shape[: x.ndim - axes], x.shape[x.ndim - axes :], kernel.shape[axes:]
    y = x.reshape(-1, math.prod(inner)) @ kernel.reshape(math.prod(inner), math.prod(outer))
    y = y.reshape(*batch, *outer)
    return y + params["bias"].astype(x.dtype) if "bias" in params else y


def dropout(x: Array, rate: float, key: Array | None) -> Array:
    """Zeroes with probability `rate` and scales the rest; no key means evaluation, x unchanged."""
    if key is None or rate == 0.0:
        return x
    return jnp.where(jax.random.bernoulli(key, 1.0 - rate, x.shape), x / (1.0 - rate), 0).astype(x.dtype)


class Dropout(NamedTuple):
    """Dropout as one attention needs it: other draws for each `part`, where the weights are made part by part."""

    rate: float = 0.0
    key: Array | None = None

    def __call__(self, x: Array, part: Array | int | None = None) -> Array:
        key = self.key if part is None or self.key is None else jax.random.fold_in(self.key, part)
        return dropout(x, self.rate, key)
