"""Where the vector of every position comes from: found by comparing bits, whatever a method says of itself."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lpe.positions.base import PositionMethod
from lpe.tokens import Tokens

LIMIT = 2**18  # positions that are looked at: 512 rows read hierarchically reach so far
CHUNK = 2**13  # positions at a time
SPORADIC = 2  # so many rows in a row between new vectors are part of an interpolation, more are a range of their own


class Range(NamedTuple):
    """Positions start … stop − 1. rows: the source rows of the first and the last that repeats one; None: all are new.

    repeats: how many of the positions repeat a row. times: how often the range comes, one after the other.
    """

    start: int
    stop: int
    rows: tuple[int, int] | None
    repeats: int
    times: int = 1

    def __str__(self) -> str:
        return f"{span(self.start, self.stop)}: {self.words()}"

    def words(self) -> str:
        """What the positions hold."""
        size = (self.stop - self.start) // self.times
        if self.rows is None:
            return "new, computed or drawn"
        a, b = self.rows
        found = f"row {a:,}" if a == b else f"rows {a:,}–{b:,}"
        if self.repeats < self.stop - self.start:
            found += f" at {self.repeats:,} of the places, new between"
        elif a < b and size > b - a + 1:
            found += f", {size / (b - a + 1):.3g} places each"
        return found + (f", {self.times:,} times over" if self.times > 1 else "")


def span(start: int, stop: int) -> str:
    """'0–511', or '7' where that is all."""
    return f"{start:,}" if stop == start + 1 else f"{start:,}–{stop - 1:,}"


def vectors(method: PositionMethod, params: dict, width: int, count: int, length: int) -> Iterator[np.ndarray]:
    """What `embed` adds at positions 0 … count − 1 of a sequence of `length` tokens: f32[part, width], part after part."""
    size = min(CHUNK, count)

    @jax.jit
    def at(params: dict, first: Array) -> Array:
        position = jnp.minimum(first + jnp.arange(size, dtype=jnp.int32), count - 1)[None]
        ones = jnp.ones_like(position)
        tok = Tokens(position, position, ones, ones * length, jnp.zeros(position.shape, bool))
        return method.embed(params, jnp.zeros((1, size, width), jnp.float32), tok)[0]

    for first in range(0, count, size):
        yield np.asarray(at(params, jnp.int32(first)))[: count - first]


class Trace(NamedTuple):
    """source: i32[m], the row of the table that each vector equals bit for bit, −1 where none does. bad: not finite ones."""

    source: np.ndarray
    bad: np.ndarray


def trace(parts: Iterable[np.ndarray], table_nD: np.ndarray) -> Trace:
    """Of the vectors of positions from 0.

    Where several rows are equal, the one that follows the row before, else the same again, else the first.
    """
    rows: dict[bytes, list[int]] = {}
    for i, row in enumerate(np.ascontiguousarray(table_nD, np.float32) + 0.0):  # −0 and 0 are one number
        rows.setdefault(row.tobytes(), []).append(i)
    found: list[int] = []
    bad, last = [], -1
    for part in parts:
        bad.append(~np.isfinite(part).all(axis=1))
        for vector in part + 0.0:
            there = rows.get(vector.tobytes(), ())
            if there:
                last = next((i for i in (last + 1, last) if i in there), there[0])
            found.append(last if there else -1)
    return Trace(np.asarray(found, np.int32), np.flatnonzero(np.concatenate(bad)))


def ranges(source: np.ndarray) -> list[Range]:
    """Trace.source as few ranges: equal ones after another are one, and so are the places of an interpolation."""
    return _folded(_mixed(_runs(source)))


def as_data(found: Sequence[Range]) -> list[dict]:
    """The ranges as plain data."""
    return [{**r._asdict(), "rows": None if r.rows is None else list(r.rows)} for r in found]


def _runs(source: np.ndarray) -> list[Range]:
    """Maximal ranges that are new, or hold rows in order, or one row again and again; then places that share rows."""
    step = np.diff(source)
    kind = np.where((source[1:] < 0) & (source[:-1] < 0), 2, np.where((source[1:] < 0) | (source[:-1] < 0), 3, step))
    found, start = [], 0
    while start < len(source):
        stop = start + 1
        if stop < len(source) and kind[start] in (0, 1, 2):
            other = np.flatnonzero(kind[start:] != kind[start])
            stop = start + 1 + (int(other[0]) if len(other) else len(kind) - start)
        new = source[start] < 0
        rows = None if new else (int(source[start]), int(source[stop - 1]))
        found.append(Range(start, stop, rows, 0 if new else stop - start))
        start = stop
    return _shared(found)


def _shared(runs: list[Range]) -> list[Range]:
    """Neighbours that go on row by row become one where one of them repeats a row: each row has several places."""
    found: list[Range] = []
    for r in runs:
        p = found[-1] if found else None
        if p is not None and p.rows is not None and r.rows is not None and r.rows[0] - p.rows[1] in (0, 1):
            repeated = any(x.stop - x.start > x.rows[1] - x.rows[0] + 1 for x in (p, r) if x.rows)
            if repeated or r.rows[0] == p.rows[1]:
                found[-1] = Range(p.start, r.stop, (p.rows[0], r.rows[1]), p.repeats + r.repeats)
                continue
        found.append(r)
    return found


def _mixed(runs: list[Range]) -> list[Range]:
    """New vectors with single rows between, in growing order, become one range."""
    found: list[Range] = []
    i = 0
    while i < len(runs):
        j, rows = i, []
        while j < len(runs) and (
            (r := runs[j].rows) is None or (runs[j].repeats <= SPORADIC and (not rows or r[0] > rows[-1][1]))
        ):
            rows += [r] if r else []
            j += 1
        if rows and j - i > 2:
            part = runs[i:j]
            found.append(Range(part[0].start, part[-1].stop, (rows[0][0], rows[-1][1]), sum(r.repeats for r in part)))
            i = j
        else:
            found.append(runs[i])
            i += 1
    return found


def _folded(runs: list[Range]) -> list[Range]:
    """A range that comes again at once is counted."""
    found: list[Range] = []
    for r in runs:
        p = found[-1] if found else None
        if (
            p is not None
            and p.rows is not None
            and (p.rows, (p.stop - p.start) // p.times, p.repeats // p.times) == (r.rows, r.stop - r.start, r.repeats)
        ):
            found[-1] = p._replace(stop=r.stop, repeats=p.repeats + r.repeats, times=p.times + 1)
        else:
            found.append(r)
    return found
