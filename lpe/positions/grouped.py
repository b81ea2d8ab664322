"""Grouped positions: s neighbours share a trained row, q[k] = P[⌊k/s⌋] (LongEmbed, Zhu et al. 2024, arXiv 2404.12096, §3.2)."""

from jax import Array

from lpe.positions import checks, table
from lpe.positions.base import PositionMethod


def make(cfg, *, max_length: int | None = None, trained_rows: int | None = None, materialize: bool = False) -> PositionMethod:
    """q[k] = P[⌊k/s⌋] with s = m/n, not rounded: ⌊k·n/m⌋ in whole numbers. Changes short inputs too.

    Args:
      cfg: the model's config.
      max_length: m, at least n. Default: 4n.
      trained_rows: n, where only the first rows of the table were trained. Default: all.
      materialize: build the long table once, with a free row for every position; needs max_length.

    Raises:
      ValueError: a value outside its range.
    """
    n = table.count(cfg, "grouped", trained_rows)
    high = checks.REACH // n  # k·n stays within int32
    m = table.check_length("grouped", max_length, high, checks.FACTOR * n, n, materialize=materialize)

    def source(k: Array) -> Array:
        return k * n // m

    def rule(p_nD: Array, k: Array) -> Array:
        return table.row(p_nD, source(k))

    return table.from_rule(cfg, "grouped", rule, source, n=n, max_length=m, materialize=materialize)
