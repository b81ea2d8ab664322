"""YaRN: fast pairs keep their speed, slow ones turn s times slower, a ramp between (arXiv 2309.00071, §3.2 and §3.4).

A pair that makes more than beta_fast turns in L positions is fast, one that makes less than beta_slow is slow. Queries and keys
are multiplied by attention_factor, 0.1 ln s + 1 by default (eq. 22), hence the logits by its square.
"""

import math

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
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    attention_factor: float | None = None,
    mscale: float | None = None,
    mscale_all_dim: float | None = None,
    truncate: bool = True,
) -> PositionMethod:
    """Rotary positions with inv_freq/s · ramp + inv_freq · (1 − ramp).

    Args:
      cfg: the model's config.
      rope_theta: base b of the trained model, above 1.
      layout: "half" or "interleaved"; it belongs to the weights.
      partial_rotary_factor: share of a head's channels that turn, the first ones.
      rotary_value: values turn too, as in some RoFormers; it belongs to the weights.
      factor: s, from 1. Default: max_length / original_max_position_embeddings; 4 where that is not given either.
      max_length: positions offered. Default: ⌊factor · original_max_position_embeddings⌋.
      original_max_position_embeddings: L, positions in training. Default: those of the model's trained table.
      beta_fast, beta_slow: turns in L positions where the ramp begins and ends.
      attention_factor: multiplies queries and keys. Default: (0.1 · mscale · ln s + 1) / (0.1 · mscale_all_dim · ln s + 1) if
        both are given and not 0, else 0.1 ln s + 1.
      mscale, mscale_all_dim: as in transformers; one without the other is an error.
      truncate: the ends of the ramp are rounded to whole pairs, away from each other.

    Both ends of the ramp are kept within 0 … d − 1; transformers bounds each on one side only, which differs where L is below
    2π · beta_slow, or so long that every pair is fast.

    Raises:
      ValueError: a value outside its range.
    """
    on = rotary.pairs(cfg, "rope_yarn", rope_theta, layout, partial_rotary_factor, rotary_value)
    far = rotary.reach(cfg, "rope_yarn", factor, max_length, original_max_position_embeddings)
    slow = checks.number("rope_yarn", "beta_slow", beta_slow, 0, above=True)
    fast = checks.number("rope_yarn", "beta_fast", beta_fast, slow)
    checks.one_of("rope_yarn", "truncate", truncate, (False, True))
    ends = [on.d * math.log(far.original / (turns * 2 * math.pi)) / (2 * math.log(on.theta)) for turns in (fast, slow)]
    if truncate:
        ends = [math.floor(ends[0]), math.ceil(ends[1])]
    low, high = (min(max(end, 0), on.d - 1) for end in ends)
    ramp = np.clip((np.arange(on.d // 2) - low) / (high - low if high > low else 0.001), 0, 1)
    inv_freq = on.inv_freq / far.factor * ramp + on.inv_freq * (1 - ramp)
    scale = _attention_factor(far.factor, attention_factor, mscale, mscale_all_dim)
    return rotary.from_frequencies(on, inv_freq, attention_factor=scale, max_length=far.max_length)


def _attention_factor(s: float, given: float | None, mscale: float | None, mscale_all_dim: float | None) -> float:
    if (mscale is None) != (mscale_all_dim is None):
        raise ValueError(f"positions.rope_yarn: mscale={mscale!r}, mscale_all_dim={mscale_all_dim!r}; give both or none")
    if given is not None:
        return checks.number("rope_yarn", "attention_factor", given, 0, above=True)
    if mscale is None or mscale_all_dim is None:
        return 0.1 * math.log(s) + 1.0
    m, all_dim = (checks.number("rope_yarn", n, x, 0) for n, x in (("mscale", mscale), ("mscale_all_dim", mscale_all_dim)))
    if not (m and all_dim):  # as in transformers: a zero counts as not given
        return 0.1 * math.log(s) + 1.0
    return (0.1 * m * math.log(s) + 1.0) / (0.1 * all_dim * math.log(s) + 1.0)
