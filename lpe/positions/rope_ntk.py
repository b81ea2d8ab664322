"""NTK-aware rotary positions: a larger base, so that slow pairs stretch and fast ones keep (bloc97; arXiv 2309.00071, §3.1).

b' = b · s^(d/(d−2)): the slowest pair turns exactly s times slower, the fastest as before. `001…txt` §3.1 writes the same as
ω_k · (L/L')^(k/(d/2−1)); the code printed there is another formula, which moves the slow pairs the wrong way.
"""

from typing import Any

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
    """Rotary positions with base b · s^(d/(d−2)), d = channels that turn, at least 4.

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
    on = rotary.pairs(cfg, "rope_ntk", rope_theta, layout, partial_rotary_factor, rotary_value, least=4)
    far = rotary.reach(cfg, "rope_ntk", factor, max_length, original_max_position_embeddings)
    return rotary.from_frequencies(on, rotary.inverse_frequencies(_base(on, far), on.d), max_length=far.max_length)


def _base(on: rotary.Pairs, far: rotary.Reach) -> float:
    return on.theta * far.factor ** (on.d / (on.d - 2))


def as_rope(
    cfg, *, rope_theta, layout, partial_rotary_factor, rotary_value, factor, max_length, original_max_position_embeddings
) -> dict[str, Any]:
    """The same positions as plain `rope` with another base, which is how config.json can say them."""
    on = rotary.pairs(cfg, "rope_ntk", rope_theta, layout, partial_rotary_factor, rotary_value, least=4)
    far = rotary.reach(cfg, "rope_ntk", factor, max_length, original_max_position_embeddings)
    of_weights = {"layout": layout, "partial_rotary_factor": partial_rotary_factor, "rotary_value": rotary_value}
    return {"name": "rope", "rope_theta": _base(on, far), "max_length": far.max_length, **of_weights}
