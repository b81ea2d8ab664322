"""The control arm: the n trained rows, then new rows from the initialiser (Longformer, arXiv 2004.05150, Table 5)."""

from lpe.positions import table
from lpe.positions.base import PositionMethod

REACH = 2**31 - 1


def make(cfg, *, max_length: int) -> PositionMethod:
    """q[k] = P[k] for k < n; the other rows are drawn from N(0, initializer_range²) when the table is adopted.

    Args:
      cfg: the model's config.
      max_length: positions, at least 1; needed, as each one beyond n is a row of parameters.

    Raises:
      ValueError: a value outside its range.
    """
    length = table.check_length(max_length, REACH, "random")
    new_rows = max(0, length - table.trained_rows(cfg))
    return table.from_rule(cfg, table.row, length, frozenset({"identity_on_trained"}), new_rows=new_rows)
