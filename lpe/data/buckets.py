"""Batches of items of about one length, so that few places are padding and few shapes are compiled.

sizes = choose(lengths, capacity, target=0.05)
plan = Plan(lengths, sizes, tokens=4096, multiple_of=8, seed=0)
batches = grain.MapDataset.source(plan).map(lambda b: ...)  # b.length, b.items
"""

import logging
import sys
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

log = logging.getLogger(__name__)


def choose(
    lengths: Sequence[int] | np.ndarray,
    capacity: int,
    *,
    count: int | None = None,
    target: float | None = None,
    multiple: int = 8,
) -> tuple[int, ...]:
    """The static lengths with the least padding, rising; the last one holds the longest item.

    All are multiples of `multiple` (a TPU wants 128), but none exceeds `capacity`. Found exactly, by dynamic programming.

    Args:
      lengths: of the items, in tokens.
      capacity: the longest input, in tokens.
      count: how many lengths; or
      target: the fewest lengths whose padding is at most this share.

    Raises:
      ValueError: an item that does not fit, or a target that no number of lengths reaches.
    """
    if (count is None) == (target is None) or (count is not None and count < 1):
        raise ValueError(f"count={count}, target={target}: give one of them, a count from 1 or a share of padding")
    sizes = _fitting(lengths, capacity)
    top = -(-int(sizes.max()) // multiple)
    edges = np.minimum(np.arange(top + 1) * multiple, capacity)
    below = np.searchsorted(np.sort(sizes), edges, side="right")  # items of at most edges[i]
    cost = np.where(np.tri(top + 1, k=-1, dtype=bool), (below[:, None] - below[None]) * edges[:, None], np.inf)  # [j, i], i < j
    best, back = cost[:, 0], []
    limit = min(count or top, top)
    while len(back) + 1 < limit and (target is None or 1.0 - sizes.sum() / best[top] > target):
        total = best[None] + cost
        total[:, 0] = np.inf
        back.append(total.argmin(1))
        best = total.min(1)
    if target is not None and 1.0 - sizes.sum() / best[top] > target:
        raise ValueError(
            f"{1.0 - sizes.sum() / best[top]:.1%} of the places are padding even with {limit} lengths, wanted were "
            f"{target:.1%}; lower multiple={multiple}"
        )
    chosen = [top]
    for step in reversed(back):
        chosen.append(int(step[chosen[-1]]))
    used = np.unique(np.searchsorted(edges[chosen[::-1]], sizes))
    return tuple(int(edges[i]) for i in np.asarray(chosen[::-1])[used])


class Batch(NamedTuple):
    """Which items are read together, i64[rows], and the length that they are padded to."""

    length: int
    items: np.ndarray


class Plan:
    """The batches of endless epochs, by number: a source for grain.MapDataset. A batch depends on the seed and its number only.

    Every item comes once an epoch, in its own order each time. What does not fill a batch is carried to the next longer
    bucket; the last batch of the longest one is filled with items drawn again, fewer than its rows. All batches of a
    bucket have one shape: `length` × about `tokens` / `length` rows.
    """

    def __init__(
        self,
        lengths: Sequence[int] | np.ndarray,
        sizes: Sequence[int],
        *,
        tokens: int,
        multiple_of: int = 1,
        seed: int = 0,
    ):
        """
        Args:
          lengths: of the items, in tokens.
          sizes: rising static lengths, as `choose` gives them.
          tokens: places of a batch, at most, unless `multiple_of` rows need more.
          multiple_of: the rows of every batch are a multiple of it: the size of the data-parallel axis.
        """
        self.lengths = _fitting(lengths, sizes[-1])
        self.sizes, self.seed = tuple(sizes), seed
        self.rows = tuple(max(1, tokens // (size * multiple_of)) * multiple_of for size in sizes)
        self.bucket = np.searchsorted(np.asarray(sizes), self.lengths)
        count, self.batches = 0, []  # batches of each bucket in an epoch
        for here, rows in zip(np.bincount(self.bucket, minlength=len(sizes)), self.rows, strict=True):
            self.batches.append((count + int(here)) // rows)
            count = (count + int(here)) % rows
        self.repeated = -count % self.rows[-1]
        self.batches[-1] += self.repeated > 0
        self._epoch: tuple[int, list[Batch]] = (-1, [])
        shapes = ", ".join(f"{n} × {r} × {s}" for n, r, s in zip(self.batches, self.rows, self.sizes, strict=True))
        log.info(
            "an epoch of %d items: batches × rows × length %s; %.1f %% padding, %d items read twice",
            len(self.lengths), shapes, 100 * self.padding, self.repeated,
        )  # fmt: skip

    @property
    def per_epoch(self) -> int:
        """Batches of an epoch."""
        return sum(self.batches)

    @property
    def padding(self) -> float:
        """Share of an epoch's places that hold no token, or one of an item that is read again to fill a batch."""
        places = sum(n * r * s for n, r, s in zip(self.batches, self.rows, self.sizes, strict=True))
        return 1.0 - int(self.lengths.sum()) / places

    def __len__(self) -> int:
        return sys.maxsize

    def __getitem__(self, number: int) -> Batch:
        epoch, at = divmod(int(number), self.per_epoch)
        known = self._epoch  # one assignment, so that threads may share a plan
        if known[0] != epoch:
            known = self._epoch = (epoch, self._arrange(epoch))
        return known[1][at]

    def _arrange(self, epoch: int) -> list[Batch]:
        rng = np.random.default_rng((self.seed, epoch))
        carried, batches = np.zeros(0, np.int64), []
        for b, (size, rows) in enumerate(zip(self.sizes, self.rows, strict=True)):
            pool = np.concatenate([carried, rng.permutation(np.flatnonzero(self.bucket == b))])
            if b == len(self.sizes) - 1 and self.repeated:
                others = np.setdiff1d(np.arange(len(self.lengths)), pool[len(pool) // rows * rows :])
                pool = np.concatenate([pool, np.resize(rng.permutation(others) if others.size else pool, self.repeated)])
            full = len(pool) // rows * rows
            batches += [Batch(size, items) for items in pool[:full].reshape(-1, rows)]
            carried = pool[full:]
        return [batches[i] for i in rng.permutation(len(batches))]


def _fitting(lengths: Sequence[int] | np.ndarray, capacity: int) -> np.ndarray:
    sizes = np.asarray(lengths, np.int64)
    bad = np.flatnonzero((sizes < 1) | (sizes > capacity))
    if bad.size or not sizes.size:
        what = f"item {bad[0]} has length {sizes[bad[0]]}" if bad.size else "there are no items"
        raise ValueError(f"{what}, allowed are 1 to {capacity}: cut it first, or leave it out")
    return sizes
