"""From examples to batches of static shapes: one example a row, rows of like length together, or several examples in a row."""

import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import grain
import numpy as np

from lpe.data import buckets, packing

log = logging.getLogger(__name__)
PADDING = 0.08  # at most, in buckets
WAYS = ("fixed", "buckets", "packed")
EPOCHS = 2**31  # as good as endless


class Item(NamedTuple):
    """An example ready to be batched.

    tokens: arrays over its tokens, [t] each, or [C, t] in chunks; with input_ids, and attention_mask where some are padding.
    values: one number each, with "example", its own number.
    """

    tokens: dict[str, np.ndarray]
    values: dict[str, int]


def row(items: Sequence[Item], length: int, slots: int, fill: dict[str, int]) -> dict[str, np.ndarray]:
    """Items side by side in a row of `length` tokens, padded at its end.

    Returns:
      each token array [length] ([C, length] for one item in chunks), segment_ids (item s has s + 1, padding 0), attention_mask;
      each value [slots].
    """

    def padded(parts: list[np.ndarray], value: int) -> np.ndarray:
        x = np.concatenate(parts, axis=-1)
        return np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, length - x.shape[-1])], constant_values=value).astype(np.int32)

    out = {key: padded([item.tokens[key] for item in items], fill.get(key, 0)) for key in items[0].tokens}
    marks = [np.full(i.tokens["input_ids"].shape, s + 1) * i.tokens.get("attention_mask", 1) for s, i in enumerate(items)]
    out["segment_ids"] = padded(marks, 0)
    out["attention_mask"] = (out["segment_ids"] > 0).astype(np.int32)
    for key in items[0].values:
        values = [item.values[key] for item in items]
        out[key] = np.asarray(values + [fill.get(key, -1)] * (slots - len(values)), np.int32)
    return out


def dataset(
    lengths: Sequence[int],
    read: Callable[[int], Item],
    *,
    way: str,
    length: int,
    batch_size: int,
    seed: int | None,
    fill: dict[str, int],
    multiple_of: int = 1,
) -> Any:
    """A grain.MapDataset of batches, element i a function of i and the seed alone.

    Args:
      lengths: tokens of every example, special tokens included, none above `length`.
      read: the example of a number.
      way: fixed: one example a row of `length`; buckets: rows of a few lengths with as little padding, a batch holds one of
        them and about as many tokens as a fixed one; packed: several examples in a row, apart by segment_ids.
      length: tokens of a full row.
      batch_size: rows of a full batch.
      seed: of an endless shuffled stream; None: every example once.
      fill: what stands where there is nothing, by key; tokens 0 and values -1 otherwise.
      multiple_of: rows of every batch of a stream are a multiple of it.
    """
    if way == "buckets":
        sizes = _sizes(lengths, length)
        if seed is None:
            plan: Any = _once(lengths, sizes, batch_size * length)
        else:
            plan = buckets.Plan(lengths, sizes, tokens=batch_size * length, multiple_of=multiple_of, seed=seed)
        return grain.MapDataset.source(plan).map(lambda b: _stack([row([read(int(i))], b.length, 1, fill) for i in b.items]))
    rows = packing.pack(lengths, length) if way == "packed" else [[i] for i in range(len(lengths))]
    slots = max(map(len, rows))
    share = 100 * packing.padding(lengths, rows, length)
    log.info("%d examples in %d rows of %d: %.1f %% padding", len(lengths), len(rows), length, share)
    ds = grain.MapDataset.source(rows)
    if seed is not None:
        ds = endless(ds.seed(seed))
    return ds.map(lambda r: row([read(i) for i in r], length, slots, fill)).batch(batch_size, batch_fn=_stack)


def endless(ds: grain.MapDataset) -> grain.MapDataset:
    """Shuffled anew in every epoch. Not repeat() without a number: grain then counts past what batches of one row can have."""
    return ds.shuffle().repeat(EPOCHS)


def _sizes(lengths: Sequence[int], length: int) -> tuple[int, ...]:
    """Few lengths with little padding: multiples of 8 where that is enough, of less for short texts."""
    for multiple in (8, 4, 2):
        with contextlib.suppress(ValueError):
            return buckets.choose(lengths, length, target=PADDING, multiple=multiple)
    return buckets.choose(lengths, length, target=PADDING, multiple=1)


def _once(lengths: Sequence[int], sizes: Sequence[int], tokens: int) -> list[buckets.Batch]:
    """Every example once, by bucket; the last batch of each may be smaller."""
    found = np.searchsorted(np.asarray(sizes), np.asarray(lengths))
    out = []
    for b, size in enumerate(sizes):
        at, rows = np.flatnonzero(found == b), max(1, tokens // size)
        out += [buckets.Batch(size, at[i : i + rows]) for i in range(0, len(at), rows)]
    return out


def _stack(rows: Sequence[dict]) -> dict[str, np.ndarray]:
    return {k: np.stack([r[k] for r in rows]) for k in rows[0]}
