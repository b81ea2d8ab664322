"""Attention scaled by the logarithm of the length, so that its entropy stays (Su Jianlin, kexue.fm/archives/8823).

Queries are multiplied by max(1, ln length / ln n), n the length of training. Composes with any method, and tells no places
apart by itself. Additive biases are not scaled.
"""

import math

import jax.numpy as jnp
from jax import Array

from lpe.positions import checks, rotary
from lpe.positions.base import PositionMethod
from lpe.tokens import Tokens


def make(cfg, *, original_max_position_embeddings: int | None = None, causal: bool = False) -> PositionMethod:
    """q · max(1, ln length / ln n), by each sequence's own length; as part of a list, [{"name": "rope"}, {"name": "logn"}].

    Args:
      cfg: the model's config.
      original_max_position_embeddings: n, at least 2. Default: the positions of the model's trained table.
      causal: the length is what a query sees, its position + 1; for causal models.

    Raises:
      ValueError: a value outside its range.
    """
    n = rotary.original_length(cfg, "logn", original_max_position_embeddings, least=2)
    checks.one_of("logn", "causal", causal, (False, True))

    def rotate(params: dict, q_BTNH: Array, k_BSNH: Array, v_BSNH: Array, q_tok: Tokens, k_tok: Tokens):
        seen = q_tok.position + 1 if causal else q_tok.length
        scale = jnp.log(jnp.maximum(seen, n).astype(jnp.float32)) / math.log(n)
        return (q_BTNH * scale[:, :, None, None]).astype(q_BTNH.dtype), k_BSNH, v_BSNH

    claims = {"causal_only"} if causal else {"length_dependent", "relative", "direction_blind"}
    return PositionMethod({}, rotate=rotate, claims=frozenset({"query_scale", *claims}))
