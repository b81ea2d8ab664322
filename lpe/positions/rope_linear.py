"""Position interpolation of rotary positions: every pair turns s times slower (Chen et al. 2023, arXiv 2306.15595, eq. 4)."""

from lpe.positions import rotary
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
) -> PositionMethod:
    """inv_freq / s: position k turns as k / s did in training. transformers calls it rope_type "linear".

    Args:
      cfg: the model's config.
      rope_theta: base b of the trained model, above 1.
      layout: "half" or "interleaved"; it belongs to the weights.
      partial_rotary_factor: share of a head's channels that turn, the first ones.
      rotary_value: values turn too, as in some RoFormers; it belongs to the weights.
      factor: s, from 1. Default: max_length / original_max_position_embeddings; 4 where that is not given either.
      max_length: positions offered. Default: ⌊factor · original_max_position_embeddings⌋.
      original_max_position_embeddings: L, positions in training. Default: those of the model's trained table.

    Raises:
      ValueError: a value outside its range.
    """
    on = rotary.pairs(cfg, "rope_linear", rope_theta, layout, partial_rotary_factor, rotary_value)
    far = rotary.reach(cfg, "rope_linear", factor, max_length, original_max_position_embeddings)
    return rotary.from_frequencies(on, on.inv_freq / far.factor, max_length=far.max_length)
