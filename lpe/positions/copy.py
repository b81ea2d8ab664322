"""The trained rows again and again: q[k] = P[k mod n], Longformer's initialisation (arXiv 2004.05150, §5)."""

import jax.numpy as jnp
from jax import Array

from lpe.positions import table
from lpe.positions.base import PositionMethod

REACH = 2**31 - 1  # positions are int32


def make(cfg, *, max_length: int | None = None, pin_rows: int = 0) -> PositionMethod:
    """Copied positions; parameters stay the n trained rows.

    Args:
      cfg: the model's config.
      max_length: positions offered. Default: no limit but int32.
      pin_rows: c first rows that later positions never repeat: q[k] = P[c + (k−n) mod (n−c)] for k ≥ n.

    Raises:
      ValueError: a value outside its range.
    """
    n = table.trained_rows(cfg)
    if isinstance(pin_rows, bool) or not isinstance(pin_rows, int) or not 0 <= pin_rows < n:
        raise ValueError(f"positions.copy: pin_rows={pin_rows!r}, allowed are whole numbers from 0 to {n - 1}")

    def rule(p_nD: Array, k: Array) -> Array:
        return table.row(p_nD, jnp.where(k < n, k, pin_rows + (k - n) % (n - pin_rows)))

    length = table.check_length(max_length, REACH, "copy")
    return table.from_rule(cfg, rule, length, frozenset({"identity_on_trained"}))
