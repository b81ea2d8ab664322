"""LongRoPE: a factor of its own for each pair, one list for short sequences and one for long (arXiv 2402.13753, eq. 2; Phi-3).

inv_freq_k = 1 / (factor_k · b^(2k/d)), factor_k from `long_factor` where the sequence has more than L tokens, else from
`short_factor`; each sequence by its own length. Queries and keys are multiplied by sqrt(1 + ln s / ln L).
"""

import math

import jax.numpy as jnp
import numpy as np
from jax import Array

from lpe.positions import checks, rotary
from lpe.positions.base import PositionMethod


def make(
    cfg,
    *,
    rope_theta: float = 10000.0,
    layout: str = "half",
    partial_rotary_factor: float = 1.0,
    rotary_value: bool = False,
    factor: float | None = None,
    max_length: int | None = None,
    original_max_position_embeddings: int | None = None,
    short_factor: tuple[float, ...] | None = None,
    long_factor: tuple[float, ...] | None = None,
    attention_factor: float | None = None,
) -> PositionMethod:
    """Rotary positions with searched factors.

    Args:
      cfg: the model's config.
      rope_theta: base b of the trained model, above 1.
      layout: "half" or "interleaved"; it belongs to the weights.
      partial_rotary_factor: share of a head's channels that turn, the first ones.
      rotary_value: values turn too, as in some RoFormers; it belongs to the weights.
      factor: s, from 1. Default: max_length / original_max_position_embeddings; 4 where that is not given either.
      max_length: positions offered. Default: ⌊factor · original_max_position_embeddings⌋.
      original_max_position_embeddings: L, positions in training. Default: those of the model's trained table.
      short_factor: d/2 numbers above 0. Default: all 1.
      long_factor: d/2 numbers above 0, found by a search on the model at hand. Default: all s, with which the search starts.
      attention_factor: multiplies queries and keys, in short sequences too. Default: sqrt(1 + ln s / ln L).

    Raises:
      ValueError: a value outside its range.
    """
    on = rotary.pairs(cfg, "rope_longrope", rope_theta, layout, partial_rotary_factor, rotary_value)
    far = rotary.reach(cfg, "rope_longrope", factor, max_length, original_max_position_embeddings, least=2)
    lists = {"short_factor": (short_factor, 1.0), "long_factor": (long_factor, far.factor)}
    short, long = (
        jnp.asarray(
            on.inv_freq / checks.factors("rope_longrope", name, np.full(on.d // 2, full) if x is None else x, on.d // 2)
        )
        for name, (x, full) in lists.items()
    )
    scale = math.sqrt(1 + math.log(far.factor) / math.log(far.original))
    if attention_factor is not None:
        scale = checks.number("rope_longrope", "attention_factor", attention_factor, 0, above=True)

    def by_length(length: Array) -> Array:
        return jnp.where((length > far.original)[..., None], long, short).astype(jnp.float32)

    return rotary.from_frequencies(
        on, by_length, attention_factor=scale, max_length=far.max_length, claims=frozenset({"length_dependent"})
    )
