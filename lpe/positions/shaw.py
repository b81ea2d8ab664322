"""Shaw et al.: a learned vector per distance, added to keys and to values (2018, arXiv 1803.02155).

logits: q_i · (k_j + a^K) / √d, outputs: Σ_j α_ij (v_j + a^V), a = w[clip(j − i, ±clip)] (eqs. 3, 4). A layer's heads share the
vectors, and each layer has its own.
"""

import jax.numpy as jnp
from jax import Array

from lpe.params import Spec, normal, stacked
from lpe.positions import base, checks, relative
from lpe.tokens import Tokens


def make(cfg, *, clip: int = 16) -> base.PositionMethod:
    """Two tables of 2·clip + 1 vectors of head_dim in each layer.

    Args:
      cfg: the model's config.
      clip: k, the distance beyond which all are alike; the paper's base model has 16.

    Raises:
      ValueError: a value outside its range.
    """
    k = checks.whole("shaw", "clip", clip, 1, checks.LARGEST)
    row = Spec((2 * k + 1, cfg.head_dim), (None, "head_dim"), normal(cfg.initializer_range))
    specs = stacked(cfg.num_hidden_layers, {"relative_key": row, "relative_value": row})

    def logits(params: dict, q_BTNH: Array, q_tok: Tokens, k_tok: Tokens, heads: slice) -> Array:
        return scores(q_BTNH, params["relative_key"], q_tok, k_tok, k)

    def values(params: dict, weights_BNTS: Array, q_tok: Tokens, k_tok: Tokens, heads: slice) -> Array:
        return sums(weights_BNTS, params["relative_value"], q_tok, k_tok, k)

    claims = frozenset({"relative", "reads_query"})
    return base.PositionMethod(specs, base.keep_or_init("shaw", specs), logits=logits, values=values, claims=claims)


def scores(q_BTNH: Array, table_RH: Array, q_tok: Tokens, k_tok: Tokens, clip: int) -> Array:
    """q_i · table[clip(j − i)], f32[B, N, T, S]."""
    by_row = jnp.einsum("BTNH,RH->BNTR", q_BTNH, table_RH.astype(q_BTNH.dtype), preferred_element_type=jnp.float32)
    return relative.by_pair(by_row, q_tok, k_tok, clip)


def sums(weights_BNTS: Array, table_RH: Array, q_tok: Tokens, k_tok: Tokens, clip: int) -> Array:
    """Σ_j weight_ij · table[clip(j − i)], f32[B, T, N, H]."""
    return jnp.einsum("BNTR,RH->BTNH", relative.by_distance(weights_BNTS, q_tok, k_tok, clip), table_RH)
