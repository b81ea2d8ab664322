"""NTK-aware sinusoidal positions: a larger base, so that slow waves stretch and fast ones keep (`001…txt` §3).

base' = base · s^(D/(D−2)): the slowest wave is exactly s times as long, the fastest as before. The article asks for it on the
trigonometric form. On a learned table it has no meaning: a table has no base.
"""

from lpe.positions import checks, rotary, sinusoidal
from lpe.positions.base import PositionMethod


def make(
    cfg,
    *,
    base: float = 10000.0,
    factor: float | None = None,
    max_length: int | None = None,
    original_max_position_embeddings: int | None = None,
) -> PositionMethod:
    """Sinusoidal positions with base · s^(D/(D−2)).

    Args:
      cfg: the model's config; its embeddings' width D, mostly hidden_size, is even, at least 4.
      base: of the form that is stretched; the article's base_frequency.
      factor: s, from 1. Default: max_length / original_max_position_embeddings; 4 where that is not given either.
      max_length: positions offered. Default: ⌊factor · original_max_position_embeddings⌋.
      original_max_position_embeddings: L, positions in training. Default: those of the model's trained table.

    Raises:
      ValueError: a value outside its range.
    """
    b = checks.number("sinusoidal_ntk", "base", base, 1, above=True)
    far = rotary.reach(cfg, "sinusoidal_ntk", factor, max_length, original_max_position_embeddings)
    size = checks.whole("sinusoidal_ntk", "the width of embeddings", cfg.embedding_width, 4, checks.REACH)
    return sinusoidal.from_base(cfg, "sinusoidal_ntk", b * far.factor ** (size / (size - 2)), far.max_length)
