"""The trained table stretched over m positions by lines or splines (`001…txt` §4; position interpolation: arXiv 2306.15595).

Position k takes the value at t of the curve through p_0 … p_{n−1}, which is scipy.interpolate.interp1d's, per dimension:
align="endpoint" t = k (n−1)/(m−1); align="pi" t = k n/m, the tail clamped at n − 1. The article names a low-pass filter and
a periodic continuation without defining them; the definitions here are this library's.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lpe.positions import checks, splines, table
from lpe.positions.base import PositionMethod
from lpe.registry import nearest

DEGREES = {"linear": 1, "quadratic": 2, "cubic": 3}
ALIGN: tuple[str, ...] = ("endpoint", "pi")


def make(
    cfg,
    *,
    max_length: int | None = None,
    kind: str = "linear",
    align: str = "endpoint",
    low_pass: float = 0.0,
    periodic_after: int | None = None,
    pin_rows: int = 0,
    trained_rows: int | None = None,
    materialize: bool = False,
) -> PositionMethod:
    """Interpolated positions; parameters stay the n trained rows unless `materialize`. Changes short inputs too.

    Args:
      cfg: the model's config.
      max_length: m, at least n. Default: 4n; with periodic_after, no limit.
      kind: linear, quadratic or cubic.
      align: "endpoint" (the last position gets the last row) or "pi" (every row gets m/n positions).
      low_pass: σ ≥ 0, in new rows, of a Gaussian along positions, truncated at 4σ, edges repeated. 0: none.
      periodic_after: m0; the table is stretched to m0 instead of m, then q[k] = q[k mod m0].
      pin_rows: c first rows that stay: p_c … p_{n−1} are stretched (and filtered) over the other m − c places, and only
        those recur: q[k] = q[c + (k − m0) mod (m0 − c)] for k ≥ m0.
      trained_rows: n, where only the first rows of the table were trained. Default: all.
      materialize: build the long table once, with a free row for every position; needs max_length.

    Raises:
      ValueError: a value outside its range.
    """
    name, n = "interpolate", table.count(cfg, "interpolate", trained_rows)
    for option, value, allowed in (("kind", kind, list(DEGREES)), ("align", align, list(ALIGN))):
        if value not in allowed:
            raise ValueError(f"positions.{name}: {option}={value!r} is not known{nearest(str(value), allowed)}")
    if isinstance(low_pass, bool) or not isinstance(low_pass, (int, float)) or not 0 <= low_pass < float("inf"):
        raise ValueError(f"positions.{name}: low_pass={low_pass!r}, allowed are numbers from 0, in new rows")
    degree = DEGREES[kind]
    if n <= degree:
        raise ValueError(f"positions.{name}: kind={kind!r} needs at least {degree + 1} trained rows, there are {n}")
    c = checks.whole(name, "pin_rows", pin_rows, 0, n - 1 - degree, f": {kind} needs {degree + 1} other rows")
    high = checks.REACH // n
    if periodic_after is None:
        m = length = table.check_length(name, max_length, high, checks.FACTOR * n, n, materialize=materialize)
    else:
        m = checks.whole(name, "periodic_after", periodic_after, n, high)
        given = table.check_length(name, max_length, checks.REACH, checks.REACH, n, materialize=materialize)
        length = None if max_length is None else given

    def recur(k: Array) -> Array:
        return jnp.where(k < m, k, c + (k - m) % (m - c))

    def source(k: Array) -> Array:
        whole, broken = splines.abscissae(n - c, m - c, align)
        kept = np.where((broken == 0) & (low_pass == 0), c + whole, -1)
        return jnp.asarray(np.append(np.arange(c), kept))[recur(k)]

    def rule(p_nD: Array, k: Array) -> Array:
        op, k = splines.operator(n, m, degree, align, low_pass, c), recur(k)
        if op.coefficients is not None:
            p_nD = jnp.matmul(op.coefficients, p_nD, precision=jax.lax.Precision.HIGHEST)
        start, w = jnp.asarray(op.start)[jnp.clip(k, 0, m - 1)], table.row(jnp.asarray(op.weights), k)
        parts = [w[..., i, None] * table.row(p_nD, start + i) for i in range(w.shape[-1])]
        return functools.reduce(jnp.add, parts)

    return table.from_rule(cfg, name, rule, source, n=n, max_length=length, materialize=materialize)
