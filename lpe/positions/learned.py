"""The trained table as it is: BERT's learned absolute positions (Devlin et al. 2018, arXiv 1810.04805)."""

from lpe.positions import table
from lpe.positions.base import PositionMethod


def make(cfg, *, max_length: int | None = None) -> PositionMethod:
    """q[k] = P[k] for k < n.

    Args:
      cfg: the model's config.
      max_length: use only the first rows. Default: all n.
    """
    length = table.check_length(max_length, table.trained_rows(cfg), "learned")
    return table.from_rule(cfg, table.row, length, frozenset({"identity_on_trained"}))
