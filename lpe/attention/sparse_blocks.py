"""Attention of rows of blocks on blocks of keys that are picked one by one: what BigBird needs, in linear time and memory.

Keys and values lie in blocks, [blocks, B, N, size, H], so that a step takes those that its queries see and no others. The
backward pass makes each step anew and adds its part to the gradients of the blocks in place.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lpe.attention import base
from lpe.attention.base import Keys, Sums
from lpe.attention.blocks import Operands, gradient, plus
from lpe.linear import Dropout
from lpe.positions.base import Bound
from lpe.tokens import Tokens


class Picked(NamedTuple):
    """Blocks of keys by number: near i32[…, W], of all heads, and drawn i32[…, N, r], of each head."""

    near: Array
    drawn: Array


class Places(NamedTuple):
    """What has none: what all steps share, q_tok [steps, G, B, size], k_tok [blocks, B, size], and the blocks picked."""

    shared: Any
    q_tok: Tokens
    k_tok: Tokens
    picked: Picked


class Taken(NamedTuple):
    """The keys of a step: near [G, W, B, N, size, …] and drawn [G, B, N, r, size, …]; of Tokens near has no N."""

    near: Any
    drawn: Any


def draw(seed: int, layers: int, heads: int, blocks: int, count: int, ends: int) -> np.ndarray:
    """BigBird's random blocks: i32[L, N, blocks, count], -1 where a row has fewer to draw from.

    A row draws without repetition among the blocks outside its window of three, without the first `ends` and the last `ends`
    ones; those are global, and draw nothing. A layer's draws depend on seed, layer, blocks and these options alone, by numpy's
    RandomState, whose stream is frozen, so that no later release changes a trained model. The time is that of
    the result, never blocks².
    """
    i = np.arange(blocks)
    first, last = np.maximum(i - 1, ends), np.minimum(i + 1, blocks - 1 - ends)  # the window, as far as it is not global
    width = np.maximum(last - first + 1, 0)
    free = np.where((i < ends) | (i >= blocks - ends), 0, np.maximum(blocks - 2 * ends - width, 0))
    even = np.stack([np.random.RandomState([seed, n, blocks]).random_sample((heads, blocks, count)) for n in range(layers)])
    ranks = np.zeros(even.shape, np.int64)
    for d in range(count):
        rank = np.floor(even[..., d] * np.maximum(free - d, 0)).astype(np.int64)
        for earlier in np.moveaxis(np.sort(ranks[..., :d], axis=-1), -1, 0):
            rank += rank >= earlier  # among those not drawn yet
        ranks[..., d] = rank
    found = ranks + ends
    found += np.where(found >= first[:, None], width[:, None], 0)
    return np.where(np.arange(count) < free[:, None], found, -1).astype(np.int32)


def split(x: Array, size: int, blocks: int) -> Array:
    """[B, T, …] to [blocks, B, …, size, H], or [blocks, B, size] of Tokens; what is padded is 0, and so of no segment."""
    x = jnp.pad(x, [(0, blocks * size - x.shape[1] if axis == 1 else 0) for axis in range(x.ndim)])
    x = x.reshape(len(x), blocks, size, *x.shape[2:]).swapaxes(0, 1)
    return x.swapaxes(2, 3) if x.ndim > 3 else x


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def over_steps(attend: Callable, x: Operands, at: Places) -> Array:
    """[steps, G, B, N, size, H]: `attend` of every step.

    Args:
      attend: (shared, q, keys: Taken, values: Taken, q_tok, k_tok: Taken, shared of Places, number) -> [G, B, N, size, H]. It
        masks what was picked for want of a better one, and closes over nothing that has a gradient.
      x: q [steps, G, B, N, size, H], and k, v [blocks, B, N, size, H].
    """

    def step(_, each):
        q, q_tok, picked, i = each
        k, v, tok = _taken(x.k, picked), _taken(x.v, picked), _taken_tokens(at.k_tok, picked)
        return None, attend(x.shared, q, k, v, q_tok, tok, at.shared, i)

    return jax.lax.scan(step, None, (x.q, at.q_tok, at.picked, jnp.arange(len(x.q))))[1]


def _forward(attend: Callable, x: Operands, at: Places):
    return over_steps(attend, x, at), (x, at)


def _backward(attend: Callable, kept: tuple[Operands, Places], g: Array):
    x, at = kept

    def step(total: tuple, each):
        q, q_tok, picked, i, g = each
        tok = _taken_tokens(at.k_tok, picked)
        _, pull = jax.vjp(
            lambda shared, q, k, v: attend(shared, q, k, v, q_tok, tok, at.shared, i),
            x.shared, q, _taken(x.k, picked), _taken(x.v, picked),
        )  # fmt: skip
        shared, q, *parts = pull(g)
        sums = [_added(t, part, picked) for t, part in zip(total[1:], parts, strict=True)]
        return (jax.tree.map(plus, total[0], shared), *sums), q

    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, jnp.float32), (x.shared, x.k, x.v))
    (shared, k, v), q = jax.lax.scan(step, zeros, (x.q, at.q_tok, at.picked, jnp.arange(len(x.q)), g))
    return jax.tree.map(gradient, Operands(shared, q, k, v), x), None


over_steps.defvjp(_forward, _backward)


def _drawn(x: Array, picked: Picked) -> tuple[Array, tuple[Array, Array]]:
    """x with batch and heads as one axis, and the index there of the blocks that each head drew, [G, B · N, r]."""
    flat = x.reshape(len(x), -1, *x.shape[3:])
    by_row = jnp.tile(picked.drawn, (1, x.shape[1], 1))
    return flat, (by_row, jnp.arange(flat.shape[1])[:, None])


def _taken(x: Array, picked: Picked) -> Taken:
    flat, index = _drawn(x, picked)
    drawn = flat[index]
    return Taken(x[picked.near], drawn.reshape(len(drawn), *x.shape[1:3], *drawn.shape[2:]))


def _added(total: Array, part: Taken, picked: Picked) -> Array:
    flat, index = _drawn(total, picked)
    drawn = part.drawn.reshape(*index[0].shape, *total.shape[3:])
    return flat.at[index].add(drawn).reshape(total.shape).at[picked.near].add(part.near)


def _taken_tokens(tok: Tokens, picked: Picked) -> Taken:
    return Taken(
        Tokens(*(x[picked.near] for x in tok)),
        Tokens(*(jnp.moveaxis(x[picked.drawn], 3, 1) for x in tok)),  # [G, N, r, B, size] to [G, B, N, r, size]
    )


def over_chunks(
    q_BNTH: Array, q_tok: Tokens, x: tuple, k_tok: Tokens, chunk: int, position: Bound, drop: Dropout, first
) -> Array:
    """Attention of a few queries to all keys, [B, N, T, H], `chunk` blocks at a time, which the backward pass makes anew.

    Args:
      x: k, v [blocks, B, N, size, H], and k_tok [blocks, B, size]; `chunk` divides the blocks.
      first: the number of the first chunk, for dropout.
    """
    heads, method, dtype = slice(0, q_BNTH.shape[1]), position.method, x[1].dtype
    chunks = jax.tree.map(lambda y: y.reshape(-1, chunk, *y.shape[1:]), (*x, k_tok))

    def step(params: dict, q: Array, k: Array, v: Array, tok: Tokens, i: Array) -> Sums:
        keys = Keys(joined(k, 0), joined(v, 0), Tokens(*(joined(t, 0) for t in tok)), jnp.ones((), bool))
        return base.sums_over([keys], q, q_tok, Bound(params, method), drop, heads, first + i)

    again = jax.checkpoint(step, prevent_cse=False)
    each = (*chunks, jnp.arange(len(chunks[0])))
    sums: Sums = jax.lax.scan(lambda _, y: (None, again(position.params, q_BNTH, *y)), None, each)[1]
    top = sums.top_BNT1.max(axis=0)
    share = jnp.exp(sums.top_BNT1 - top)
    return base.divided(Sums(top, (share * sums.total_BNT1).sum(axis=0), (share * sums.out_BNTH).sum(axis=0)), dtype)


def joined(x: Array, axis: int) -> Array:
    """The blocks of `axis` one after the other as tokens: […, W, B, N, size, H] to […, B, N, W · size, H]; so of Tokens."""
    place = -2 if x.ndim - axis == 5 else -1
    x = jnp.moveaxis(x, axis, place - 1)
    tail = x.shape[place:]
    return x.reshape(*x.shape[: place - 1], x.shape[place - 1] * tail[0], *tail[1:])
