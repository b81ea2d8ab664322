"""Every token sees every token of its segment (Vaswani et al. 2017, arXiv 1706.03762)."""

import jax.numpy as jnp
from jax import Array

from lpe.attention import base
from lpe.tokens import Tokens


def mask(q_tok: Tokens, k_tok: Tokens, layer: Array, total: int) -> Array:
    return jnp.ones((1, 1, q_tok.index.shape[1], k_tok.index.shape[1]), bool)


def make(cfg) -> base.AttentionPattern:
    """Full attention; the dense reference is the path that runs."""
    return base.AttentionPattern(mask, base.dense(mask), claims=frozenset({"padding_invariant"}))
