"""What relative methods share: going from scores by distance to scores by pair, and back from pairs to distances.

Only arrays of [T, S] and of [T, 2·clip + 1] exist, never one of [T, S, H]. Distances are those of positions, key minus query.
Mostly positions count the places of a document, and then a pair's distance is that of its places; for this case there is a
fast path, taken at run time if it holds for every row of the batch. Pairs of two segments, or with padding, are masked by every
pattern and may get any value.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

from lpe.tokens import Tokens


def distance(q_tok: Tokens, k_tok: Tokens) -> Array:
    """Key position minus query position, i32[B, 1, T, S]."""
    return k_tok.position[:, None, None, :] - q_tok.position[:, None, :, None]


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def by_pair(x_BNTR: Array, q_tok: Tokens, k_tok: Tokens, clip: int) -> Array:
    """x[b, n, t, clip(distance, ±clip) + clip] for every pair: [B, N, T, S] from [B, N, T, 2·clip + 1]."""
    return jnp.take_along_axis(x_BNTR, jnp.clip(distance(q_tok, k_tok), -clip, clip) + clip, axis=-1, mode="clip")


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def by_distance(w_BNTS: Array, q_tok: Tokens, k_tok: Tokens, clip: int) -> Array:
    """Sums of w over the keys of each clipped distance: [B, N, T, 2·clip + 1] from [B, N, T, S]; the transpose of by_pair."""
    w_BNTS = w_BNTS.astype(jnp.float32)
    ways = partial(_sum_by_place, clip=clip), partial(_sum_by_position, clip=clip)
    return jax.lax.cond(_in_order(q_tok, k_tok), *ways, w_BNTS, q_tok, k_tok)


def _pair_forward(x_BNTR: Array, q_tok: Tokens, k_tok: Tokens, clip: int):
    return by_pair(x_BNTR, q_tok, k_tok, clip), (q_tok, k_tok)


def _pair_backward(clip: int, tokens: tuple[Tokens, Tokens], g: Array):
    return by_distance(g, *tokens, clip), None, None


def _distance_forward(w_BNTS: Array, q_tok: Tokens, k_tok: Tokens, clip: int):
    return by_distance(w_BNTS, q_tok, k_tok, clip), (q_tok, k_tok, jnp.zeros((), w_BNTS.dtype))


def _distance_backward(clip: int, rest: tuple[Tokens, Tokens, Array], g: Array):
    q_tok, k_tok, like = rest
    w_grad: Array = by_pair(g, q_tok, k_tok, clip)
    return w_grad.astype(like.dtype), None, None


by_pair.defvjp(_pair_forward, _pair_backward)
by_distance.defvjp(_distance_forward, _distance_backward)


def _in_order(q_tok: Tokens, k_tok: Tokens) -> Array:
    """Whether keys are neighbours in the array, and the distance of every pair within a segment is that of its places."""
    segment, places = k_tok.segment[:, None, :], _places(q_tok, k_tok)
    other = (segment != q_tok.segment[:, :, None]) | (segment == 0)
    neighbours = k_tok.index == k_tok.index[:, :1] + jnp.arange(k_tok.index.shape[1])
    return jnp.all(other | (distance(q_tok, k_tok)[:, 0] == places)) & jnp.all(neighbours)


def _places(q_tok: Tokens, k_tok: Tokens) -> Array:
    return k_tok.index[:, None, :] - q_tok.index[:, :, None]


def _sum_by_place(w_BNTS: Array, q_tok: Tokens, k_tok: Tokens, clip: int) -> Array:
    """by_distance where keys are in order: between the ends one key has each distance; scattering costs four times as much."""
    places = _places(q_tok, k_tok)[:, None]
    ends = [jnp.where(far, w_BNTS, 0).sum(axis=-1, keepdims=True) for far in (places <= -clip, places >= clip)]
    s = q_tok.index[:, :, None] - k_tok.index[:, :1, None] + jnp.arange(-clip + 1, clip)
    s = jnp.broadcast_to(s[:, None], (*w_BNTS.shape[:3], 2 * clip - 1))
    inner = jnp.take_along_axis(w_BNTS, s, axis=-1, mode="fill", fill_value=0)
    inner = jnp.where((s >= 0) & (s < w_BNTS.shape[-1]), inner, 0)  # a negative place would count from the end
    return jnp.concatenate([ends[0], inner, ends[1]], axis=-1)


def _sum_by_position(w_BNTS: Array, q_tok: Tokens, k_tok: Tokens, clip: int) -> Array:
    at_BTS = jnp.clip(distance(q_tok, k_tok), -clip, clip)[:, 0] + clip
    add = jax.vmap(jax.vmap(lambda w, at: jnp.zeros(2 * clip + 1, jnp.float32).at[at].add(w)))
    one_head = lambda n: add(jax.lax.dynamic_index_in_dim(w_BNTS, n, 1, keepdims=False), at_BTS)  # noqa: E731
    # One head after the other: this path is rare, but its arrays are part of every program that may take it.
    return jax.lax.map(one_head, jnp.arange(w_BNTS.shape[1])).swapaxes(0, 1)
