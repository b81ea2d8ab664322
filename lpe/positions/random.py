"""The control arm: the n trained rows, then new rows from the initialiser (Longformer, arXiv 2004.05150, Table 5)."""

import jax.numpy as jnp

from lpe.positions import checks, table
from lpe.positions.base import PositionMethod


def make(cfg, *, max_length: int | None = None, trained_rows: int | None = None) -> PositionMethod:
    """q[k] = P[k] for k < n; the other rows are drawn from N(0, initializer_range²) when the table is adopted.

    Args:
      cfg: the model's config.
      max_length: positions; each one beyond n is a row of parameters. Default: 4n.
      trained_rows: n, where only the first rows of the table were trained. Default: all.

    Raises:
      ValueError: a value outside its range.
    """
    n = table.count(cfg, "random", trained_rows)
    length = table.check_length("random", max_length, checks.REACH, checks.FACTOR * n)
    return table.from_rule(
        cfg, "random", table.row, lambda k: jnp.where(k < n, k, -1),
        n=n, max_length=length, claims=frozenset({"identity_on_trained"}), new_rows=max(0, length - n),
    )  # fmt: skip
