"""The interface of an attention pattern, the dense reference of every fast path, and what fast paths share (DESIGN.md)."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from lpe.linear import Dropout
from lpe.params import Spec
from lpe.positions.base import Bound
from lpe.tokens import Tokens


class Call(NamedTuple):
    """All that one attention needs; S may differ from T. q, k, v are projected, not rotated, not scaled."""

    x_BTD: Array
    y_BSD: Array
    q_BTNH: Array
    k_BSNH: Array
    v_BSNH: Array
    q_tok: Tokens
    k_tok: Tokens
    scale: float  # attention_scale of the config, a property of the weights (BERT: 1/√H)
    position: Bound
    layer: Array  # i32 scalar, may be traced
    dropout: Dropout


def adopt_nothing(layer_params: dict, key: Array) -> dict:
    return {}


def mark_none(batch: dict[str, Array], tok: Tokens) -> Tokens:
    """Raises ValueError for a batch that names global tokens."""
    if "global_attention_mask" in batch:
        raise ValueError(
            "the batch has a global_attention_mask, and this attention pattern no global tokens; leave it out, or extend with "
            'attention={"name": "window", "global_tokens": "explicit"}'
        )
    return tok


class AttentionPattern(NamedTuple):
    """Which keys a query sees, and how that is computed.

    specs, adopt: further parameters of a layer, and what they start from: (the layer's attention parameters, key) -> params.
    mask: (q_tok, k_tok, layer, total) -> bool[B, 1|N, T, S], the meaning; padding and segments are not its business.
    reference: (params, call) -> [B, T, N, H], dense.
    attend: the fast path with the same signature, or None.
    mark: (batch, tok) -> tok with its global tokens, of which a row of the batch may have `capacity`.
    hooks: which position hooks it honours.
    claims: properties that the contract test checks: padding_invariant, causal, length_dependent (what a token sees depends on
      the length of the array, so that padding after the text changes it).
    """

    mask: Callable
    reference: Callable
    attend: Callable | None = None
    specs: dict[str, Spec] = {}
    adopt: Callable = adopt_nothing
    mark: Callable = mark_none
    capacity: int = 0
    hooks: frozenset[str] = frozenset({"rotate", "logits", "values"})
    claims: frozenset[str] = frozenset()


def dense(mask: Callable) -> Callable:
    """The reference: softmax over every key that `mask` keeps and that shares the query's segment; float32 softmax.

    Order (METHODS.md §2): rotate, times attention_scale, plus logits. A query with no key gives 0, in value and gradient.
    """

    def reference(params: dict, call: Call) -> Array:
        heads = slice(0, call.q_BTNH.shape[2])
        q, k, v = call.position.rotate(call.q_BTNH, call.k_BSNH, call.v_BSNH, call.q_tok, call.k_tok)
        q = q * jnp.asarray(call.scale, q.dtype)
        logits_BNTS = jnp.einsum("btnh,bsnh->bnts", q, k, preferred_element_type=jnp.float32)
        extra = call.position.logits(q, call.q_tok, call.k_tok, heads)
        if extra is not None:
            logits_BNTS = logits_BNTS + extra
        keep = mask(call.q_tok, call.k_tok, call.layer, call.k_tok.index.shape[1]) & same_segment(call.q_tok, call.k_tok)
        weights_BNTS = call.dropout(masked_softmax(logits_BNTS, keep)).astype(v.dtype)
        out_BTNH = jnp.einsum("bnts,bsnh->btnh", weights_BNTS, v)
        extra = call.position.values(weights_BNTS, call.q_tok, call.k_tok, heads)
        return out_BTNH if extra is None else out_BTNH + extra.astype(out_BTNH.dtype)

    return reference


def same_segment(q_tok: Tokens, k_tok: Tokens) -> Array:
    """bool[B, 1|N, T, S]: both real and of one segment."""
    q = q_tok.segment[:, None, :, None]
    k = k_tok.segment[:, None, None, :] if k_tok.segment.ndim == 2 else k_tok.segment[:, :, None, :]
    return (q == k) & (k > 0)


@jax.custom_vjp
def masked_softmax(logits: Array, keep: Array) -> Array:
    """Softmax over the last axis where keep is True; a row with nothing to keep is 0, with 0 gradients."""
    logits = jnp.where(keep, logits, -jnp.inf)
    top = jnp.max(logits, axis=-1, keepdims=True)
    e = jnp.exp(logits - jnp.where(jnp.isfinite(top), top, 0.0))
    total = e.sum(axis=-1, keepdims=True)
    return e / jnp.where(total > 0, total, 1.0)


def _softmax_forward(logits: Array, keep: Array):
    weights = masked_softmax(logits, keep)
    return weights, weights


def _softmax_backward(weights: Array, g: Array):
    return weights * (g - (weights * g).sum(axis=-1, keepdims=True)), None


masked_softmax.defvjp(_softmax_forward, _softmax_backward)


def row_sums(x: Array) -> Array:
    """x.sum(axis=-1) as a product, which on a CPU takes a tenth of the time where x is itself made on the way."""
    return jnp.matmul(x, jnp.ones((x.shape[-1], 1), x.dtype), precision="highest")[..., 0]


class Keys(NamedTuple):
    """Some of the keys that queries see: k, v [B, N, S, H], rotated; keep: bool[B, 1|N, T, S].

    tok: [B, S], or [B, N, S] where each head has keys of its own.
    """

    k_BNSH: Array
    v_BNSH: Array
    tok: Tokens
    keep: Array


class Sums(NamedTuple):
    """Softmax attention before its division, in float32, so that attention over other keys can be added.

    top: the highest logit of each query, without gradient; total: Σ exp(logit - top); out: the values so weighted.
    """

    top_BNT1: Array
    total_BNT1: Array
    out_BNTH: Array


def attend_to(
    parts: Sequence[Keys],
    q_BNTH: Array,
    q_tok: Tokens,
    position: Bound,
    dropout: Dropout,
    heads: slice,
    block: Array | int | None = None,
) -> Array:
    """Softmax attention over the keys of all parts together, [B, N, T, H] in the dtype of v; a query with no key gives 0.

    Two thirds of the time of `dense` on a CPU (12 heads, 512 tokens: 10 for 15 ms, with gradient 31 for 51 ms). Heads stand
    before tokens, so that nothing of T × S is ever transposed, and the sum of the softmax divides what the values sum to:
    dropout and the values hook are linear in the weights.

    Args:
      q_BNTH: rotated and scaled.
      heads: which of the model's heads these are.
      block: a number of these queries, for dropout; None where one call does the whole attention.
    """
    return divided(sums_over(parts, q_BNTH, q_tok, position, dropout, heads, block), parts[0].v_BNSH.dtype)


def divided(sums: Sums, dtype) -> Array:
    """The attention that `sums` are of; 0 for a query with no key."""
    return (sums.out_BNTH / jnp.where(sums.total_BNT1 > 0, sums.total_BNT1, 1.0)).astype(dtype)


def sums_over(
    parts: Sequence[Keys],
    q_BNTH: Array,
    q_tok: Tokens,
    position: Bound,
    dropout: Dropout,
    heads: slice,
    block: Array | int | None = None,
) -> Sums:
    """As attend_to, before the division."""
    logits = [_logits(p, q_BNTH, q_tok, position, heads) for p in parts]
    # The bound keeps a row without keys at exp(-inf) = 0; the top moves nothing, so it needs no gradient.
    tops = [jnp.maximum(x.max(axis=-1, keepdims=True), jnp.finfo(jnp.float32).min) for x in logits]
    top_BNT1 = jax.lax.stop_gradient(_all(jnp.maximum, tops))
    weights = [jnp.exp(x - top_BNT1) for x in logits]
    total_BNT1 = _all(jnp.add, [e.sum(axis=-1, keepdims=True) for e in weights])
    sums = []
    for i, (p, e_BNTS) in enumerate(zip(parts, weights, strict=True)):
        e_BNTS = dropout(e_BNTS, None if block is None else block * len(parts) + i).astype(p.v_BNSH.dtype)
        out = _sums(e_BNTS, p.v_BNSH)
        extra = _hooked(position.values, e_BNTS, 1, q_tok, p.tok, heads)
        sums.append(out if extra is None else out + extra.swapaxes(1, 2))
    return Sums(top_BNT1, total_BNT1, _all(jnp.add, sums))


def _hooked(hook: Callable, x: Array, axis: int, q_tok: Tokens, k_tok: Tokens, heads: slice) -> Array | None:
    """A position hook on x, whose axis 1 or 2 is that of the heads (in the result the other); by head where keys differ."""
    if k_tok.index.ndim == 2:
        return hook(x, q_tok, k_tok, heads)
    found = []
    for n in range(k_tok.index.shape[1]):
        own = Tokens(*(field[:, n] for field in k_tok))
        each = hook(jax.lax.slice_in_dim(x, n, n + 1, axis=axis), q_tok, own, slice(heads.start + n, heads.start + n + 1))
        if each is None:
            return None
        found.append(each)
    return jnp.concatenate(found, axis=3 - axis)


def _all(add: Callable, found: list[Array]) -> Array:
    first, *rest = found
    for x in rest:
        first = add(first, x)
    return first


def _logits(keys: Keys, q_BNTH: Array, q_tok: Tokens, position: Bound, heads: slice) -> Array:
    logits_BNTS = _scores(q_BNTH, keys.k_BNSH)
    extra = _hooked(position.logits, q_BNTH.swapaxes(1, 2), 2, q_tok, keys.tok, heads)
    if extra is not None:
        logits_BNTS = logits_BNTS + extra
    return jnp.where(same_segment(q_tok, keys.tok) & keys.keep, logits_BNTS, -jnp.inf)


@jax.custom_vjp
def _scores(q: Array, k: Array) -> Array:
    """q kᵀ in float32. XLA's own gradient transposes the one of the result; this one transposes q."""
    return jnp.matmul(q, k.mT, preferred_element_type=jnp.float32)


_scores.defvjp(
    lambda q, k: (_scores(q, k), (q, k)),
    lambda qk, g: (g.astype(qk[0].dtype) @ qk[1], (qk[0].mT @ g.astype(qk[0].dtype)).mT),
)


@jax.custom_vjp
def _sums(w: Array, v: Array) -> Array:
    """w v in float32. XLA's own gradient transposes w; this one transposes the one of the result."""
    return jnp.matmul(w, v, preferred_element_type=jnp.float32)


_sums.defvjp(
    lambda w, v: (_sums(w, v), (w, v)),
    lambda wv, g: (g.astype(wv[1].dtype) @ wv[1].mT, (g.astype(wv[1].dtype).mT @ wv[0]).mT),
)
