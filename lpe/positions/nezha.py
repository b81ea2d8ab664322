"""NEZHA: a fixed sinusoid per distance, added to keys and to values (Wei et al. 2019, arXiv 1909.00204, §2.1).

The same two places as in Shaw et al. with one table that is not trained. Its row is the distance j − i, clipped to
± max_relative_position, plus max_relative_position: 0 … 128 by default; the sinusoid is that of the row, not of the distance.
"""

import jax.numpy as jnp
import numpy as np
from jax import Array

from lpe.positions import base, checks, shaw
from lpe.tokens import Tokens


def make(cfg, *, max_relative_position: int = 64) -> base.PositionMethod:
    """row[r, 2k] = sin(r · 10000^(−2k/H)), row[r, 2k + 1] = cos of the same, r = clip(j − i) + max_relative_position.

    Args:
      cfg: the model's config; head_dim H is even.
      max_relative_position: the distance beyond which all are alike.

    Raises:
      ValueError: a value outside its range.
    """
    clip, size = checks.whole("nezha", "max_relative_position", max_relative_position, 1, checks.LARGEST), cfg.head_dim
    if size % 2:
        raise ValueError(f"positions.nezha: head_dim={size}, but sines and cosines come in pairs: it must be even")
    angle = np.arange(2 * clip + 1)[:, None] * 10000.0 ** -(np.arange(0, size, 2) / size)
    table = np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(2 * clip + 1, size).astype(np.float32)

    def logits(params: dict, q_BTNH: Array, q_tok: Tokens, k_tok: Tokens, heads: slice) -> Array:
        return shaw.scores(q_BTNH, jnp.asarray(table), q_tok, k_tok, clip)

    def values(params: dict, weights_BNTS: Array, q_tok: Tokens, k_tok: Tokens, heads: slice) -> Array:
        return shaw.sums(weights_BNTS, jnp.asarray(table), q_tok, k_tok, clip)

    return base.PositionMethod({}, logits=logits, values=values, claims=frozenset({"relative", "reads_query"}))
