"""Applies a family's TABLE in both directions: import from their names, export to them. Strict on both sides.

A row is (our path, their name with {i} for the layer, operation). A name that ends in [k/n] is the k-th of n equal parts of a
tensor, along its first axis. The operations, and nothing else, change a tensor:
  same       unchanged
  or_zero    unchanged; 0 where there is none
  after_1st  unchanged; theirs has none in the first layer, and ours, which is not read, is 1
  transpose  their [out, in]  = our [in, out]
  split      their [N·H, D]   = our [D, N, H]
  split_bias their [N·H]      = our [N, H]
  merge      their [D, N·H]   = our [N, H, D]
"""

import logging
import math
import re
from collections.abc import Iterable, Sequence

import jax.numpy as jnp
import numpy as np

from lpe.params import Spec, flatten, nest

log = logging.getLogger(__name__)
Row = tuple[str, str, str]
UNTURNED = ("same", "or_zero", "after_1st", "split_bias")
PART = re.compile(r"(.*)\[(\d+)/(\d+)\]")
ADVICE = (
    "\nCorrect config.json or override its attributes (num_hidden_layers=…, num_labels=…); fetch again what is not whole; "
    "leave out what the model does not need by the beginning of its name: from_pretrained(…, ignore=("
    '"cls.other.",)), lpe.convert --ignore=cls.other.'
)


def fused(theirs: str) -> tuple[Row, ...]:
    """The rows of query, key and value that lie in one tensor, its weight and its bias."""
    parts = [(name, f"[{i}/3]") for i, name in enumerate(("query", "key", "value"))]
    kernels = [(f"layers/attention/{name}/kernel", f"{theirs}.weight{part}", "split") for name, part in parts]
    return (*kernels, *((f"layers/attention/{name}/bias", f"{theirs}.bias{part}", "split_bias") for name, part in parts))


def theirs_shape(op: str, ours: tuple[int, ...]) -> tuple[int, ...]:
    return {
        "same": ours,
        "or_zero": ours,
        "after_1st": ours,
        "transpose": ours[::-1],
        "split": (math.prod(ours[1:]), ours[0]),
        "split_bias": (math.prod(ours),),
        "merge": (ours[-1], math.prod(ours[:-1])),
    }[op]


def to_ours(op: str, x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return (x if op in UNTURNED else x.T).reshape(shape)


def to_theirs(op: str, x: np.ndarray) -> np.ndarray:
    shape = theirs_shape(op, x.shape)
    return x.reshape(shape) if op in UNTURNED else x.reshape(shape[::-1]).T


def _cut(rows: Iterable[Row], tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """`tensors`, those that rows name by parts in such parts."""
    left = dict(tensors)
    for m in [m for _, theirs, _ in rows for n in _each(theirs, tensors) if (m := PART.fullmatch(n))]:
        name, (whole, k, n) = m[0], m.groups()
        if whole in tensors and len(tensors[whole]) % int(n) == 0:
            left.pop(whole, None)
            left[name] = np.split(tensors[whole], int(n))[int(k)]
    return left


def _each(theirs: str, tensors: dict[str, np.ndarray]) -> list[str]:
    """The name for every layer that there is."""
    if "{i}" not in theirs:
        return [theirs]
    pattern = re.compile(re.escape(PART.sub(r"\1", theirs)).replace(r"\{i\}", r"(\d+)"))
    return [theirs.format(i=m[1]) for m in map(pattern.fullmatch, tensors) if m]


def _joined(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The reverse of _cut."""
    found = {n: x for n, x in tensors.items() if not PART.search(n)}
    for whole in dict.fromkeys(m[1] for m in map(PART.fullmatch, tensors) if m):
        parts = sorted((int(m[2]), n) for n, m in ((n, PART.fullmatch(n)) for n in tensors) if m and m[1] == whole)
        found[whole] = np.concatenate([tensors[n] for _, n in parts])
    return found


def import_params(table: Sequence[Row], specs: dict[str, Spec], tensors: dict[str, np.ndarray], source: str) -> dict:
    """The nested parameters for `specs`.

    Raises:
      ValueError: naming every key that is missing, left over, or of a wrong shape.
    """
    rows = {ours: (theirs, op) for ours, theirs, op in table}
    unmapped = sorted(set(specs) - set(rows))
    if unmapped:
        raise ValueError(f"the table of this family has no row for {', '.join(unmapped)}")
    left, problems, flat = _cut(table, tensors), [], {}
    for ours, spec in specs.items():
        theirs, op = rows[ours]
        stacked = spec.axes[0] == "layers"
        shape = spec.shape[1:] if stacked else spec.shape
        first = 1 if op == "after_1st" else 0
        parts = [np.ones(shape)] * first
        for name in [theirs.format(i=i) for i in range(first, spec.shape[0])] if stacked else [theirs]:
            x = left.pop(name, np.zeros(shape, np.float32) if op == "or_zero" else None)
            if x is None:
                problems.append(f"missing {name}")
            elif x.shape != theirs_shape(op, shape):
                problems.append(f"{name}: shape {x.shape}, expected {theirs_shape(op, shape)}")
            elif x.dtype.kind != "f":
                problems.append(f"{name}: dtype {x.dtype}, expected floating; lpe reads no quantised weights")
            elif not np.isfinite(x).all():
                problems.append(f"{name}: not finite (NaN or infinity)")
            else:
                parts.append(to_ours(op, x, shape))
        if len(parts) == (spec.shape[0] if stacked else 1):
            flat[ours] = jnp.asarray(np.stack(parts) if stacked else parts[0], jnp.float32)
    problems += [f"left over {name}" for name in sorted(left)]
    if problems:
        shown = problems[:20] + ([f"… and {len(problems) - 20} more"] if len(problems) > 20 else [])
        raise ValueError(f"{source}: the weights do not fit its config.json:\n  " + "\n  ".join(shown) + ADVICE)
    return nest(flat)


def export_tensors(table: Iterable[Row], params: dict) -> dict[str, np.ndarray]:
    """Their tensors from our nested parameters, float32."""
    flat, tensors = flatten(params), {}
    for ours, theirs, op in table:
        if ours not in flat:
            continue
        x = np.asarray(flat.pop(ours), np.float32)
        if "{i}" in theirs:
            tensors |= {theirs.format(i=i): to_theirs(op, x[i]) for i in range(op == "after_1st", len(x))}
        else:
            tensors[theirs] = to_theirs(op, x)
    if flat:
        raise ValueError(f"no stock name for {', '.join(sorted(flat))}")
    return _joined(tensors)
