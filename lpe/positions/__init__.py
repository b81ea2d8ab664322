"""Position methods, one file each, and what a notebook needs for a table at hand: `extend_table`, `table_report`."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
from jax import Array

from lpe import registry, tokens
from lpe.positions import checks
from lpe.positions.report import TableReport, table_report

ADVICE = {  # names that a user may look for here
    "ntk": "NTK-aware scaling changes the base of waves: sinusoidal_ntk for sinusoidal positions, rope_ntk or rope_dynamic for "
    "rotary ones. A learned table has no base, so NTK has no meaning for it: take hierarchical, interpolate or copy",
    "linear": "linear interpolation of a learned table is {'name': 'interpolate'}, of rotary positions {'name': 'rope_linear'}",
    "rotary": "rotary positions are {'name': 'rope'}, and extended ones rope_linear, rope_ntk, rope_dynamic, rope_yarn, …",
    "relative": "relative positions are shaw, nezha, t5, transformer_xl and alibi",
    "relative_key": "BERT's relative_key is Shaw et al. with keys alone: {'name': 'shaw'} has keys and values",
}
ADVICE["ntk-aware"] = ADVICE["learned_ntk"] = ADVICE["ntk"]

__all__ = ["TableReport", "extend_table", "table_report"]


def extend_table(
    table,
    length: int,
    name: str = "hierarchical",
    *,
    reserved_rows: int = 0,
    initializer_range: float = 0.02,
    seed: int = 0,
    **kw,
) -> Array:
    """The position table of `length` positions that a method makes of a trained one, as stock classes hold it.

    Reserved rows come first, unchanged, and are no positions: they are counted neither in n, nor in `length`, nor in the
    method's options (`pin_rows`, `reference_row`, `trained_rows`). So of a RoBERTa table with 514 rows and reserved_rows=2,
    n is 512, extend_table(table, 2048, reserved_rows=2) has 2,050 rows, and position k is its row 2 + k.

    Args:
      table: [reserved_rows + n, D], numpy or jax, a float dtype.
      length: positions wanted.
      name: a method of this package that extends a table.
      reserved_rows: rows before position 0 (RoBERTa, XLM-R, BART 2, BERT 0).
      initializer_range: σ of rows drawn anew (`random`), and of the check for untrained rows.
      seed: for rows drawn anew.
      **kw: the method's options, as alpha=0.4.

    Returns:
      [reserved_rows + length, D] in the table's dtype (float32 for float64), computed in float32. Where the vectors depend
      on the sequence's length (`preserve_short`), those that a sequence of `length` tokens reads.

    Raises:
      ValueError: no table, an unknown method or option, or a length that the method does not reach.
    """
    table = jnp.asarray(table)
    if table.ndim != 2 or not jnp.issubdtype(table.dtype, jnp.floating):
        raise ValueError(f"extend_table: a float table [reserved_rows + n, D] is needed, not {table.dtype}{list(table.shape)}")
    checks.whole("extend_table", "reserved_rows", reserved_rows, 0, table.shape[0] - 1)
    checks.whole("extend_table", "length", length, 1, checks.REACH)
    rows, size = table.shape
    cfg = SimpleNamespace(
        max_position_embeddings=rows, reserved_rows=reserved_rows, hidden_size=size, embedding_width=size,
        initializer_range=initializer_range,
        num_hidden_layers=1, num_attention_heads=1, head_dim=size, attention_scale=1.0,
    )  # fmt: skip
    method = registry.make("positions", {"name": name, "max_length": length, **kw}, cfg)
    if "table" not in method.specs:
        raise ValueError(
            f"extend_table: {name!r} keeps no table of positions, so there is none to extend. A learned table has no waves "
            "whose base or speed could be changed: take hierarchical, interpolate or copy, which make rows of those there are"
        )
    params = method.adopt({"table": table}, jax.random.key(seed))
    tok = tokens.from_batch({"input_ids": jnp.zeros((1, length), jnp.int32)})
    q_mD = jax.jit(method.embed)(params, jnp.zeros((1, length, size), jnp.float32), tok)[0]
    return jnp.concatenate([table[:reserved_rows], q_mD.astype(table.dtype)])
