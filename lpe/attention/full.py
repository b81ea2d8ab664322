"""Every token sees every token of its segment (Vaswani et al. 2017, arXiv 1706.03762)."""

from collections.abc import Callable
from functools import partial

import jax.numpy as jnp
from jax import Array

from lpe.attention import base
from lpe.tokens import Tokens


def mask(q_tok: Tokens, k_tok: Tokens, layer: Array, total: int) -> Array:
    return jnp.ones((1, 1, q_tok.index.shape[1], k_tok.index.shape[1]), bool)


def causal_mask(q_tok: Tokens, k_tok: Tokens, layer: Array, total: int) -> Array:
    return k_tok.index[:, None, None, :] <= q_tok.index[:, None, :, None]


def attend(kept: Callable, params: dict, call: base.Call) -> Array:
    """As the reference, all keys in one part (base.attend_to)."""
    q, k, v = call.position.rotate(call.q_BTNH, call.k_BSNH, call.v_BSNH, call.q_tok, call.k_tok)
    q = q * jnp.asarray(call.scale, q.dtype)
    keep = kept(call.q_tok, call.k_tok, call.layer, call.k_tok.index.shape[1])
    keys = base.Keys(k.swapaxes(1, 2), v.swapaxes(1, 2), call.k_tok, keep)
    out_BNTH = base.attend_to([keys], q.swapaxes(1, 2), call.q_tok, call.position, call.dropout, slice(0, q.shape[2]))
    return out_BNTH.swapaxes(1, 2)


def make(cfg, *, causal: bool = False) -> base.AttentionPattern:
    """Full attention over every head at once.

    Args:
      cfg: the model's config.
      causal: a query sees the keys up to its own place only.

    Raises:
      ValueError: a causal that is neither True nor False.
    """
    if not isinstance(causal, bool):
        raise ValueError(f"attention.full: causal={causal!r}, allowed are True and False")
    kept, claims = (causal_mask, {"causal"}) if causal else (mask, set())
    return base.AttentionPattern(
        kept, base.dense(kept), partial(attend, kept), claims=frozenset({"padding_invariant", *claims})
    )
