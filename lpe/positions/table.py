"""What all absolute methods share: a trained table P[n, D] and a rule that gives the vector of any position from it.

`reserved_rows` r (RoBERTa 2, BERT 0): the first r rows of the stored table serve padding; position p is row r + p.
"""

import numbers
import warnings
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

from lpe.params import Spec, normal
from lpe.positions import checks
from lpe.positions.base import PositionMethod
from lpe.positions.report import table_report
from lpe.tokens import Tokens


def check_alpha(method: str, alpha: float) -> None:
    """Raises ValueError unless 0 < alpha < 1 and alpha != 0.5; warns above 0.5."""
    if isinstance(alpha, bool) or not isinstance(alpha, numbers.Real) or not 0.0 < alpha < 1.0:
        raise ValueError(f"positions.{method}: alpha={alpha!r}, allowed are 0 < alpha < 1 except 0.5; the author's is 0.4")
    if alpha == 0.5:
        raise ValueError(
            f"positions.{method}: alpha=0.5 gives the positions (i, j) and (j, i) the same vector; "
            "take another value in (0, 1), the author's is 0.4"
        )
    if alpha > 0.5:
        warnings.warn(
            f"positions.{method}: alpha={alpha} > 0.5, so the block outweighs the place within the block; "
            "the author recommends alpha < 0.5",
            stacklevel=3,
        )


def count(cfg, method: str, trained_rows: int | None = None) -> int:
    """n: how many positions the trained table holds; with `trained_rows`, how many of them are used.

    Raises:
      ValueError: more trained rows than the table has, or none.
    """
    n = cfg.max_position_embeddings - cfg.reserved_rows
    hint = f": the table holds {n} positions; lpe.positions.table_report says which rows are trained"
    return n if trained_rows is None else checks.whole(method, "trained_rows", trained_rows, 1, n, hint)


def check_length(
    method: str, max_length: int | None, high: int, default: int, low: int = 1, *, materialize: bool = False
) -> int:
    """The number of positions offered: `max_length` if given, else `default`.

    Raises:
      ValueError: not a whole number from `low` to `high`; or a table to materialize whose length is not given.
    """
    if not isinstance(materialize, bool):
        raise ValueError(f"positions.{method}: materialize={materialize!r}, allowed are True and False")
    if max_length is None:
        if materialize:
            raise ValueError(f"positions.{method}: materialize=True needs max_length, the number of rows to build")
        return default
    hint = " with this table"
    if low > 1 and isinstance(max_length, (int, np.integer)) and max_length < low:
        hint += f"; {low} positions need no extension: take {{'name': 'learned'}}"
    return checks.whole(method, "max_length", max_length, low, high, hint)


def row(table: Array, k: Array) -> Array:
    """table[k], with NaN where k is outside: never a silent clamp."""
    return table.at[k].get(mode="fill", fill_value=jnp.nan, wrap_negative_indices=False)


def _place(tok: Tokens) -> Array:
    return tok.position


def from_rule(
    cfg,
    method: str,
    rule: Callable[[Array, Array], Array],
    source: Callable[[Array], Array],
    *,
    n: int,
    max_length: int | None,
    claims: frozenset[str] = frozenset(),
    new_rows: int = 0,
    materialize: bool = False,
    places: int | None = None,
    place: Callable[[Tokens], Array] = _place,
) -> PositionMethod:
    """A PositionMethod whose position k has the vector rule(P, k), built in float32 and cast once.

    Args:
      cfg: max_position_embeddings, reserved_rows, embedding_width, initializer_range.
      method: its name, for messages.
      rule: (P f32[n + new_rows, D], k i32[...]) -> f32[..., D].
      source: k i32[...] -> i32[...], the row of P that position k repeats, -1 where it repeats none.
      n: positions that are read from the loaded table; rows after them are left out of the parameters.
      max_length: positions offered, None = no limit; outside of them a vector is NaN.
      claims: what the contract test shall check.
      new_rows: freshly initialised rows that the method appends to the loaded table.
      materialize: the vectors of all places are built at adopt and become the parameters, each row free.
      places: how many that are. Default: max_length.
      place: Tokens -> i32[B, T], the k of each token, negative where it has none. Default: its position.
    """
    r, places = cfg.reserved_rows, places or max_length
    size = r + (places if materialize and places else n + new_rows)
    spec = Spec((size, cfg.embedding_width), ("position", "embed"), normal(cfg.initializer_range))
    vectors = row if materialize else rule

    def adopt(loaded: dict[str, Array], key: Array) -> dict[str, Array]:
        if "table" not in loaded:
            raise ValueError(
                f"positions.{method}: this model has no trained position table to read; if its checkpoint has one, load it "
                f'again with position={{"name": "{method}", …}}, else choose a method without a table, as rope_yarn'
            )
        table = jnp.asarray(loaded["table"])[: r + n]
        if max_length is None or max_length > n:
            _warn_untrained(method, table, cfg)
        if new_rows:
            table = jnp.concatenate([table, spec.init(key, (new_rows, cfg.embedding_width), table.dtype)])
        if materialize:
            q_mD = rule(table[r:].astype(jnp.float32), jnp.arange(size - r)).astype(table.dtype)
            table = jnp.concatenate([table[:r], q_mD])
        return {"table": table}

    def embed(params: dict, x_BTD: Array, tok: Tokens) -> Array:
        k = place(tok)
        inside = (k >= 0) & (tok.position >= 0) & (True if max_length is None else tok.position < max_length)
        q_BTD = vectors(params["table"][r:].astype(jnp.float32), k)
        return x_BTD + jnp.where(inside[..., None], q_BTD, jnp.nan).astype(x_BTD.dtype)

    return PositionMethod(
        {"table": spec}, adopt, embed, rows=_rows(size, r, n, source, materialize), max_length=max_length, claims=claims
    )


def _rows(size: int, r: int, n: int, source: Callable[[Array], Array], materialize: bool) -> np.ndarray:
    """The row of the loaded table that each row of the parameters repeats, -1 = none."""
    k = np.arange(size - r, dtype=np.int32)
    if not materialize:
        from_table = np.where(k < n, k, -1)
    else:
        with jax.ensure_compile_time_eval():  # make may run while a model is being traced
            from_table = np.asarray(source(jnp.asarray(k)))
    return np.concatenate([np.arange(r), np.where(from_table < 0, -1, r + from_table)]).astype(np.int32)


def _warn_untrained(method: str, table: Array, cfg) -> None:
    """Warns when some rows, but not all, are as the initialiser left them: a table of fresh rows is no mistake."""
    if isinstance(table, Tracer):
        return
    report = table_report(table, cfg.reserved_rows, cfg.initializer_range)
    if 0 < report.trained < report.positions:
        warnings.warn(
            f"positions.{method}: rows {report.trained} to {report.positions - 1} of this table look untrained (they are still "
            "at initialiser statistics), and the extension would build on them; extend from the trained part: "
            f'position={{"name": "{method}", "trained_rows": {report.trained}, …}}',
            stacklevel=3,
        )
