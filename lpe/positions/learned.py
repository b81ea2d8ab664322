"""The trained table as it is: BERT's learned absolute positions (Devlin et al. 2018, arXiv 1810.04805)."""

from lpe.positions import table
from lpe.positions.base import PositionMethod


def make(cfg, *, max_length: int | None = None) -> PositionMethod:
    """q[k] = P[k] for k < n.

    Args:
      cfg: the model's config.
      max_length: offer only the first positions. Default: all n.

    Raises:
      ValueError: more positions than the table has.
    """
    n = table.count(cfg, "learned")
    length = table.check_length("learned", max_length, n, n)
    claims = frozenset({"identity_on_trained"})
    return table.from_rule(cfg, "learned", table.row, lambda k: k, n=n, max_length=length, claims=claims)
