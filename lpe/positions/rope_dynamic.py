"""Dynamic NTK: the base grows with the sequence at hand (emozilla 2023; arXiv 2309.00071, §3.3).

b' = b · (f·L'/L − (f − 1))^(d/(d−2)), L' = max(tokens of the sequence, L). L' is each sequence's own length: neither the other
rows of a batch nor earlier calls change anything, unlike in implementations that keep the longest length seen.
"""

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
    factor: float = 1.0,
    max_length: int | None = None,
    original_max_position_embeddings: int | None = None,
) -> PositionMethod:
    """Rotary positions whose base depends on the sequence's length; up to L tokens they are plain ones.

    Args:
      cfg: the model's config.
      rope_theta: base b of the trained model, above 1.
      layout: "half" or "interleaved"; it belongs to the weights.
      partial_rotary_factor: share of a head's channels that turn, the first ones.
      rotary_value: values turn too, as in some RoFormers; it belongs to the weights.
      factor: f, from 1; with 1 the base follows L'/L.
      max_length: positions offered. Default: no limit.
      original_max_position_embeddings: L, positions in training. Default: those of the model's trained table.

    Raises:
      ValueError: a value outside its range.
    """
    on = rotary.pairs(cfg, "rope_dynamic", rope_theta, layout, partial_rotary_factor, rotary_value, least=4)
    f = checks.number("rope_dynamic", "factor", factor, 1)
    n = rotary.original_length(cfg, "rope_dynamic", original_max_position_embeddings)
    if max_length is not None:
        checks.whole("rope_dynamic", "max_length", max_length, 1, checks.REACH)
    inv_freq = jnp.asarray(on.inv_freq, jnp.float32)
    slower = jnp.asarray(np.arange(0, on.d, 2) / (on.d - 2), jnp.float32)

    def by_length(length: Array) -> Array:
        # b'^(−2k/d) = b^(−2k/d) · stretch^(−2k/(d−2)): float32 keeps both factors, but not a large b' itself.
        stretch = f * jnp.maximum(length, n).astype(jnp.float32) / n - (f - 1.0)
        return inv_freq * stretch[..., None] ** -slower

    return rotary.from_frequencies(on, by_length, max_length=max_length, claims=frozenset({"length_dependent"}))
