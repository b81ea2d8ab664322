"""ALiBi for both directions: a linear penalty on the distance, its slope by head (Press et al. 2021, arXiv 2108.12409, §3).

The paper's method is causal; this is its symmetric form. It cannot tell left from right: an input read backwards gives the same
hidden states, backwards. Compose it with a method that can, or use it where direction is of no use.
"""

import math

import jax.numpy as jnp
import numpy as np
from jax import Array

from lpe.positions.base import PositionMethod
from lpe.positions.relative import distance
from lpe.tokens import Tokens


def make(cfg) -> PositionMethod:
    """logits − slope_h · |i − j|, slope_h = 2^(−8h/N), h = 1 … N.

    Args:
      cfg: the model's config.
    """
    slope = slopes(cfg.num_attention_heads)

    def logits(params: dict, q_BTNH: Array, q_tok: Tokens, k_tok: Tokens, heads: slice) -> Array:
        return -jnp.asarray(slope)[heads, None, None] * jnp.abs(distance(q_tok, k_tok)).astype(jnp.float32)

    return PositionMethod({}, logits=logits, claims=frozenset({"relative", "direction_blind"}))


def slopes(heads: int) -> np.ndarray:
    """f32[N]. For N no power of two (the authors' code): those of the power below, then every other one of the power above."""
    below = 2 ** math.floor(math.log2(heads))
    first = 2.0 ** (-8.0 * np.arange(1, below + 1) / below)
    rest = 2.0 ** (-4.0 * np.arange(1, 2 * (heads - below), 2) / below)
    return np.concatenate([first, rest]).astype(np.float32)
