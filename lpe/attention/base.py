"""The interface of an attention pattern, and the dense reference that every fast path is held to (DESIGN.md)."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

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
    dropout: Callable[[Array], Array]


def _adopt(layer_params: dict, key: Array) -> dict:
    return {}


class AttentionPattern(NamedTuple):
    """Which keys a query sees, and how that is computed.

    specs, adopt: further parameters of a layer, and what they start from.
    mask: (q_tok, k_tok, layer, total) -> bool[B, 1|N, T, S], the meaning; padding and segments are not its business.
    reference: (params, call) -> [B, T, N, H], dense.
    attend: the fast path with the same signature, or None.
    hooks: which position hooks it honours.
    claims: properties that the contract test checks: padding_invariant, causal.
    """

    mask: Callable
    reference: Callable
    attend: Callable | None = None
    specs: dict[str, Spec] = {}
    adopt: Callable = _adopt
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
    """bool[B, 1, T, S]: both real and of one segment."""
    q, k = q_tok.segment[:, None, :, None], k_tok.segment[:, None, None, :]
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
