"""Rotary positions: queries and keys turn, so that their product knows the distance alone (RoFormer, arXiv 2104.09864)."""

from lpe.positions import checks, rotary
from lpe.positions.base import PositionMethod


def make(
    cfg,
    *,
    rope_theta: float = 10000.0,
    layout: str = "half",
    partial_rotary_factor: float = 1.0,
    rotary_value: bool = False,
    max_length: int | None = None,
) -> PositionMethod:
    """Pair k turns by position · rope_theta^(−2k/d).

    Args:
      cfg: the model's config.
      rope_theta: base b, above 1.
      layout: "half" (LLaMA, NeoX, ModernBERT) or "interleaved" (RoFormer); it belongs to the weights.
      partial_rotary_factor: share of a head's channels that turn, the first ones.
      rotary_value: values turn too, as in some RoFormers.
      max_length: positions offered. Default: no limit.

    Raises:
      ValueError: a value outside its range.
    """
    on = rotary.pairs(cfg, "rope", rope_theta, layout, partial_rotary_factor, rotary_value)
    if max_length is not None:
        checks.whole("rope", "max_length", max_length, 1, checks.REACH)
    return rotary.from_frequencies(on, on.inv_freq, max_length=max_length)
