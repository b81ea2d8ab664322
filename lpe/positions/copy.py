"""The trained rows again and again: q[k] = P[k mod n], Longformer's initialisation (arXiv 2004.05150, §5)."""

import jax.numpy as jnp
from jax import Array

from lpe.positions import checks, table
from lpe.positions.base import PositionMethod


def make(
    cfg, *, max_length: int | None = None, pin_rows: int = 0, trained_rows: int | None = None, materialize: bool = False
) -> PositionMethod:
    """Copied positions; parameters stay the n trained rows, so that all copies of a row are one row, unless `materialize`.

    Args:
      cfg: the model's config.
      max_length: positions offered. Default: no limit.
      pin_rows: c first rows that later positions never repeat: q[k] = P[c + (k−n) mod (n−c)] for k ≥ n.
      trained_rows: n, where only the first rows of the table were trained. Default: all.
      materialize: build the long table once, with a free row for every position (Longformer's own); needs max_length.

    Raises:
      ValueError: a value outside its range.
    """
    n = table.count(cfg, "copy", trained_rows)
    c = checks.whole("copy", "pin_rows", pin_rows, 0, n - 1)
    length = table.check_length("copy", max_length, checks.REACH, checks.REACH, materialize=materialize)

    def source(k: Array) -> Array:
        return jnp.where(k < n, k, c + (k - n) % (n - c))

    def rule(p_nD: Array, k: Array) -> Array:
        return table.row(p_nD, source(k))

    claims = frozenset({"identity_on_trained"})
    return table.from_rule(
        cfg,
        "copy",
        rule,
        source,
        n=n,
        max_length=None if max_length is None else length,
        claims=claims,
        materialize=materialize,
    )
