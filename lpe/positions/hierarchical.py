"""Hierarchical decomposition of a learned table: n rows give n² positions (Su Jianlin, kexue.fm/archives/7947).

Position k = i·n + j is read as (block i, place j):

    q[i·n + j] = α u_i + (1 − α) u_j   with   u_i = (p_i − α p_0) / (1 − α)

which is, and is computed as, q[i·n + j] = p_j + λ (p_i − p_0) with λ = α / (1 − α): the first n rows come out exactly,
in every dtype, while the textbook form loses up to 7e-4 in bfloat16.
"""

import warnings

import jax.numpy as jnp
from jax import Array

from lpe.positions import table
from lpe.positions.base import PositionMethod


def check_alpha(alpha: float) -> None:
    """Raises ValueError unless 0 < alpha < 1 and alpha != 0.5; warns above 0.5."""
    if isinstance(alpha, bool) or not isinstance(alpha, (int, float)) or not 0.0 < alpha < 1.0:
        raise ValueError(f"positions.hierarchical: alpha={alpha!r}, allowed are 0 < alpha < 1 except 0.5; the author's is 0.4")
    if alpha == 0.5:
        raise ValueError(
            "positions.hierarchical: alpha=0.5 gives the positions (i, j) and (j, i) the same vector; "
            "take another value in (0, 1), the author's is 0.4"
        )
    if alpha > 0.5:
        warnings.warn(
            f"positions.hierarchical: alpha={alpha} > 0.5, so the block outweighs the place within the block; "
            "the author recommends alpha < 0.5",
            stacklevel=3,
        )


def make(
    cfg, *, alpha: float = 0.4, max_length: int | None = None, reference_row: int = 0, pin_rows: int = 0
) -> PositionMethod:
    """Hierarchical positions; parameters stay the n trained rows, the long table is never built.

    Args:
      cfg: the model's config.
      alpha: weight of the block, in (0, 1), not 0.5.
      max_length: positions offered. Default: all that the rule reaches, n² by default.
      reference_row: r in p_{r+i} − p_r for the blocks i ≥ 1. 0 is the author's method; 1 leaves BERT's [CLS] row, an
        outlier, out of the block offsets. Reach n (n − r).
      pin_rows: c rows that later positions never repeat: k ≥ n is block 1 + (k−n) // (n−c), place c + (k−n) mod (n−c).

    Raises:
      ValueError: a value outside its range.
    """
    check_alpha(alpha)
    n = table.trained_rows(cfg)
    for name, value in (("reference_row", reference_row), ("pin_rows", pin_rows)):
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < n:
            raise ValueError(f"positions.hierarchical: {name}={value!r}, allowed are whole numbers from 0 to {n - 1}")
    reach = n + (n - 1 - reference_row) * (n - pin_rows)
    length = table.check_length(max_length, reach, "hierarchical")
    lam = alpha / (1.0 - alpha)

    def rule(p_nD: Array, k: Array) -> Array:
        t = k - n
        block = jnp.where(k < n, 0, 1 + t // (n - pin_rows))
        place = jnp.where(k < n, k, pin_rows + t % (n - pin_rows))
        offset = table.row(p_nD, reference_row + block) - p_nD[reference_row]
        return table.row(p_nD, place) + lam * offset

    return table.from_rule(cfg, rule, length, frozenset({"identity_on_trained"}))
