"""The hierarchical form as a later article prints it, q[i·n + j] = α p_i + (1 − α) p_j. For ablation only.

It is NOT identical to the trained table on the first n positions, which become α p_0 + (1 − α) p_j: a model read through it
is changed on short inputs too. The method itself, which keeps them, is `hierarchical` (Su Jianlin, kexue.fm/archives/7947).
"""

import jax.numpy as jnp
from jax import Array

from lpe.positions import checks, table
from lpe.positions.base import PositionMethod


def make(
    cfg,
    *,
    alpha: float = 0.4,
    max_length: int | None = None,
    trained_rows: int | None = None,
    materialize: bool = False,
) -> PositionMethod:
    """q[i·n + j] = α p_i + (1 − α) p_j, which claims nothing on short inputs.

    Args:
      cfg: the model's config.
      alpha: weight of the block, in (0, 1), not 0.5. The article suggests 0.6 to 0.9; the default is that of `hierarchical`.
      max_length: positions offered. Default: all n².
      trained_rows: n, where only the first rows of the table were trained. Default: all.
      materialize: build the long table once, with a free row for every position; needs max_length.

    Raises:
      ValueError: a value outside its range.
    """
    table.check_alpha("hierarchical_naive", alpha)
    n = table.count(cfg, "hierarchical_naive", trained_rows)
    reach = min(n * n, checks.REACH)
    length = table.check_length("hierarchical_naive", max_length, reach, reach, materialize=materialize)

    def rule(p_nD: Array, k: Array) -> Array:
        return alpha * table.row(p_nD, k // n) + (1.0 - alpha) * table.row(p_nD, k % n)

    def source(k: Array) -> Array:
        return jnp.full_like(k, -1)

    return table.from_rule(
        cfg, "hierarchical_naive", rule, source, n=n, max_length=length, materialize=materialize
    )  # fmt: skip
