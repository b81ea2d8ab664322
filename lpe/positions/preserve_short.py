"""Short inputs keep their vectors, long ones read an interpolated table: the E5-4k recipe of LongEmbed (arXiv 2404.12096, §4).

The table is stretched by a whole factor s = ⌈m/n⌉: row k·s is the trained row k, the rows between are interpolated, those
after (n − 1)s repeat the last. A sequence of at most n tokens reads the rows k·s, hence the trained vectors; a longer one
reads row k at position k. The choice is made per sequence, by its number of real tokens, so no stock class expresses it.
"""

import jax.numpy as jnp
from jax import Array

from lpe.positions import checks, table
from lpe.positions.base import PositionMethod
from lpe.tokens import Tokens


def make(cfg, *, max_length: int | None = None, trained_rows: int | None = None, materialize: bool = False) -> PositionMethod:
    """Positions by the sequence's own length.

    A position ≥ n in a sequence of at most n tokens (explicit position_ids, masked tokens in between) has no vector and gives
    NaN.

    Args:
      cfg: the model's config.
      max_length: m, at least n. Default: 4n.
      trained_rows: n, where only the first rows of the table were trained. Default: all.
      materialize: build the stretched table once, with free rows (the paper's: train those with `rows` −1); needs max_length.

    Raises:
      ValueError: a value outside its range.
    """
    n = table.count(cfg, "preserve_short", trained_rows)
    m = table.check_length(
        "preserve_short", max_length, checks.REACH - n, checks.FACTOR * n, n, materialize=materialize
    )  # fmt: skip
    s = -(-m // n)

    def source(k: Array) -> Array:
        return jnp.where(k >= (n - 1) * s, n - 1, jnp.where(k % s == 0, k // s, -1))

    def rule(p_nD: Array, k: Array) -> Array:
        low, high = jnp.minimum(k // s, n - 1), jnp.minimum(k // s + 1, n - 1)
        below = table.row(p_nD, low)
        weight = (k % s).astype(jnp.float32) / s
        return below + weight[..., None] * (table.row(p_nD, high) - below)

    def place(tok: Tokens) -> Array:
        short = jnp.where(tok.position < n, tok.position * s, -1)
        return jnp.where(tok.length <= n, short, tok.position)

    return table.from_rule(
        cfg, "preserve_short", rule, source, n=n, max_length=m, place=place, places=max(m, (n - 1) * s + 1),
        claims=frozenset({"identity_on_trained", "length_dependent"}), materialize=materialize,
    )  # fmt: skip
