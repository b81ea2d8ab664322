"""Attention over blocks of queries, each with a window of keys: linear time, and memory for one block at a time.

The backward pass makes each block anew and adds its part to the gradients of keys and values in place, so that nothing of the
size queries × keys is kept.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lpe.tokens import Tokens


class Band(NamedTuple):
    """Queries go in blocks of `size`; a block sees the keys from `left` places before it to `right` places behind it."""

    size: int
    left: int
    right: int


class Operands(NamedTuple):
    """What has a gradient: q, k, v (here [B, N, T, H]), and whatever all blocks share."""

    shared: Any
    q: Array
    k: Array
    v: Array


class Places(NamedTuple):
    """What has none: the tokens of both sides, and whatever all blocks share."""

    shared: Any
    q_tok: Tokens
    k_tok: Tokens


def banded(attend: Callable, band: Band, x: Operands, at: Places, stride: int = 1) -> Array:
    """[B, N, T, H]: `attend` of every block.

    Args:
      attend: (shared, q, k, v, Places of the block, number of the block) -> [B, N, size, H]. It sees all keys of its window,
        padding too, whose segment is 0, and closes over nothing that has a gradient.
      band: size and reach; T may be any.
      stride: how far apart neighbours are in index, for the index of what is padded.
    """
    length = x.q.shape[2]
    spare = -length % band.size
    sides = (band.left, spare + band.right)
    x = Operands(x.shared, _padded(x.q, (0, spare)), _padded(x.k, sides), _padded(x.v, sides))
    at = Places(at.shared, _padded_tokens(at.q_tok, (0, spare), stride), _padded_tokens(at.k_tok, sides, stride))
    out: Array = _over_blocks(attend, band, x, at)
    return out[:, :, :length]


def _padded(x_BNTH: Array, widths: tuple[int, int]) -> Array:
    return jnp.pad(x_BNTH, ((0, 0), (0, 0), widths, (0, 0)))


def _padded_tokens(tok: Tokens, widths: tuple[int, int], stride: int) -> Tokens:
    """The tokens with padding on both sides, whose index goes on."""
    padded = Tokens(*(jnp.pad(x, ((0, 0), widths)) for x in tok))
    count = padded.index.shape[1]
    return padded._replace(index=tok.index[:, :1] + stride * (jnp.arange(count, dtype=jnp.int32) - widths[0]))


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _over_blocks(attend: Callable, band: Band, x: Operands, at: Places) -> Array:
    def step(out: Array, i: Array):
        block = attend(x.shared, *_cut(band, x, i), _cut_places(band, at, i), i)
        return jax.lax.dynamic_update_slice_in_dim(out, block, i * band.size, axis=2), None

    empty = jnp.zeros((*x.q.shape[:3], x.v.shape[3]), x.v.dtype)
    return jax.lax.scan(step, empty, jnp.arange(x.q.shape[2] // band.size))[0]


def _forward(attend: Callable, band: Band, x: Operands, at: Places):
    return _over_blocks(attend, band, x, at), (x, at)


def _backward(attend: Callable, band: Band, kept: tuple[Operands, Places], g: Array):
    x, at = kept

    def step(total: Operands, i: Array):
        places = _cut_places(band, at, i)
        _, pull = jax.vjp(lambda shared, q, k, v: attend(shared, q, k, v, places, i), x.shared, *_cut(band, x, i))
        shared, *parts = pull(_slice(g, i * band.size, band.size, 2))
        sums = [_added(t, part, i * band.size) for t, part in zip(total[1:], parts, strict=True)]
        return Operands(jax.tree.map(plus, total.shared, shared), *sums), None

    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, jnp.float32), x)
    total = jax.lax.scan(step, zeros, jnp.arange(x.q.shape[2] // band.size))[0]
    return jax.tree.map(gradient, total, x), None


_over_blocks.defvjp(_forward, _backward)


def plus(total: Array, part: Array) -> Array:
    """The sum of two gradients; that of a whole number, such as a layer's choice of a method, is none."""
    return total if part.dtype == jax.dtypes.float0 else total + part


def gradient(total: Array, x: Array) -> Array | np.ndarray:
    """`total` as jax wants the gradient of x."""
    inexact = jnp.issubdtype(x.dtype, jnp.inexact)
    return total.astype(x.dtype) if inexact else np.zeros(x.shape, jax.dtypes.float0)


def _added(total: Array, part: Array, start: Array) -> Array:
    there = _slice(total, start, part.shape[2], 2)
    return jax.lax.dynamic_update_slice_in_dim(total, there + part, start, axis=2)


def _cut(band: Band, x: Operands, i: Array) -> tuple[Array, Array, Array]:
    """q of block i, and k, v of its window; in the padded arrays both begin at the same place."""
    start, window = i * band.size, band.left + band.size + band.right
    return _slice(x.q, start, band.size, 2), _slice(x.k, start, window, 2), _slice(x.v, start, window, 2)


def _cut_places(band: Band, at: Places, i: Array) -> Places:
    start, window = i * band.size, band.left + band.size + band.right
    q_tok, k_tok = (
        jax.tree.map(lambda x, n=n: _slice(x, start, n, 1), tok) for tok, n in ((at.q_tok, band.size), (at.k_tok, window))
    )
    return Places(at.shared, q_tok, k_tok)


def _slice(x: Array, start: Array, size: int, axis: int) -> Array:
    return jax.lax.dynamic_slice_in_dim(x, start, size, axis)
