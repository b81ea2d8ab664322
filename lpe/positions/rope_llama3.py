"""Llama 3.1's rotary positions: short wavelengths keep, long ones stretch by s, a ramp between (arXiv 2407.21783; its code).

With the wavelength λ = 2π / inv_freq: λ < L/high keeps inv_freq, λ > L/low takes inv_freq/s, and between them
(1 − g) · inv_freq/s + g · inv_freq, g = (L/λ − low) / (high − low).
"""

import numpy as np

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
    low_freq_factor: float = 1.0,
    high_freq_factor: float = 4.0,
) -> PositionMethod:
    """Rotary positions with frequencies chosen by wavelength.

    Args:
      cfg: the model's config.
      rope_theta: base b of the trained model, above 1.
      layout: "half" or "interleaved"; it belongs to the weights.
      partial_rotary_factor: share of a head's channels that turn, the first ones.
      rotary_value: values turn too, as in some RoFormers; it belongs to the weights.
      factor: s, from 1. Default: max_length / original_max_position_embeddings; 4 where that is not given either.
      max_length: positions offered. Default: ⌊factor · original_max_position_embeddings⌋.
      original_max_position_embeddings: L, positions in training. Default: those of the model's trained table.
      low_freq_factor, high_freq_factor: turns in L positions below which a pair stretches, above which it keeps.

    Raises:
      ValueError: a value outside its range.
    """
    on = rotary.pairs(cfg, "rope_llama3", rope_theta, layout, partial_rotary_factor, rotary_value)
    far = rotary.reach(cfg, "rope_llama3", factor, max_length, original_max_position_embeddings)
    low = checks.number("rope_llama3", "low_freq_factor", low_freq_factor, 0, above=True)
    high = checks.number("rope_llama3", "high_freq_factor", high_freq_factor, low, above=True)
    turns = far.original * on.inv_freq / (2 * np.pi)  # L / λ
    g = np.clip((turns - low) / (high - low), 0, 1)
    inv_freq = (1 - g) * on.inv_freq / far.factor + g * on.inv_freq
    return rotary.from_frequencies(on, inv_freq, max_length=far.max_length)
