"""What all absolute methods share: a trained table P[n, D] and a rule that gives the vector of any position from it.

`reserved_rows` r (RoBERTa 2, BERT 0): the first r rows of the stored table serve padding; position p is row r + p.
"""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import Array

from lpe.params import Spec, normal
from lpe.positions.base import PositionMethod
from lpe.tokens import Tokens


def trained_rows(cfg) -> int:
    """n: how many positions the trained table holds."""
    return cfg.max_position_embeddings - cfg.reserved_rows


def row(table: Array, k: Array) -> Array:
    """table[k], with NaN where k is outside: never a silent clamp."""
    return table.at[k].get(mode="fill", fill_value=jnp.nan)


def check_length(max_length: int | None, limit: int, method: str) -> int:
    """The number of positions offered: `max_length` if given.

    Raises:
      ValueError: not a positive integer, or more than the method reaches.
    """
    if max_length is None:
        return limit
    if isinstance(max_length, bool) or not isinstance(max_length, (int, np.integer)) or not 1 <= max_length <= limit:
        raise ValueError(
            f"positions.{method}: max_length={max_length!r}, allowed are whole numbers from 1 to {limit} with this table"
        )
    return int(max_length)


def from_rule(
    cfg, rule: Callable[[Array, Array], Array], max_length: int, claims=frozenset(), new_rows: int = 0
) -> PositionMethod:
    """A PositionMethod whose position k has the vector rule(P, k), built in float32 and cast once.

    Args:
      cfg: max_position_embeddings, reserved_rows, hidden_size, initializer_range.
      rule: (P f32[n + new_rows, D], k i32[...]) -> f32[..., D].
      max_length: positions offered; outside of them a vector is NaN.
      claims: what the contract test shall check.
      new_rows: freshly initialised rows that the method appends to the loaded table.
    """
    loaded, r = cfg.max_position_embeddings, cfg.reserved_rows
    spec = Spec((loaded + new_rows, cfg.hidden_size), ("position", "embed"), normal(cfg.initializer_range))

    def adopt(source: dict[str, Array], key: Array) -> dict[str, Array]:
        table = jnp.asarray(source["table"])
        fresh = spec.init(key, (new_rows, cfg.hidden_size), table.dtype)
        return {"table": jnp.concatenate([table, fresh]) if new_rows else table}

    def embed(params: dict, x_BTD: Array, tok: Tokens) -> Array:
        q_BTD = rule(params["table"][r:].astype(jnp.float32), tok.position)
        inside = (tok.position >= 0) & (tok.position < max_length)
        return x_BTD + jnp.where(inside[..., None], q_BTD, jnp.nan).astype(x_BTD.dtype)

    rows = np.concatenate([np.arange(loaded), np.full(new_rows, -1)]).astype(np.int32)
    return PositionMethod({"table": spec}, adopt, embed, rows=rows, max_length=max_length, claims=claims)
