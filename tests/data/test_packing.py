"""Rows of several items: every item once, none too long, little padding."""

import grain
import numpy as np
import pytest

from lpe.data import batching, packing


@pytest.mark.parametrize("seed", range(20))
def test_every_item_once_and_rows_as_first_fit_decreasing_fills_them(seed):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 60, rng.integers(1, 80))
    rows = packing.pack(lengths, 60)
    assert sorted(i for row in rows for i in row) == list(range(len(lengths)))
    assert all(sum(lengths[i] for i in row) <= 60 and row == sorted(row) for row in rows)
    want = []  # first fit, decreasing, by search
    for i in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        row = next((r for r in want if sum(lengths[j] for j in r) + lengths[i] <= 60), None)
        want.append([i]) if row is None else row.append(i)
    assert rows == sorted(map(sorted, want))


def test_one_row_no_items_and_a_hundred_thousand():
    assert packing.pack([], 5) == [] and packing.pack([5], 5) == [[0]] and packing.pack([1] * 5, 5) == [[0, 1, 2, 3, 4]]
    lengths = np.clip(np.random.default_rng(0).lognormal(5, 0.8, 100_000), 1, 512).astype(int)
    rows = packing.pack(lengths, 512)
    assert packing.padding(lengths, rows, 512) < 0.01
    assert packing.padding([2, 3], [[0], [1]], 4) == 1 - 5 / 8


@pytest.mark.parametrize(
    ("lengths", "message"), [([3, 9], "item 1 has length 9, allowed are 1 to 8"), ([0], "item 0 has length 0")]
)
def test_what_does_not_fit(lengths, message):
    with pytest.raises(ValueError, match=message):
        packing.pack(lengths, 8)


def test_a_stream_has_batches_of_one_row_too():
    ds = batching.endless(grain.MapDataset.range(3).seed(0)).batch(1)
    assert len(ds) == 3 * batching.EPOCHS
    assert sorted(int(ds[i][0]) for i in range(3)) == sorted(int(ds[i][0]) for i in range(3, 6)) == [0, 1, 2]
    assert [int(ds[i][0]) for i in range(30)] != [int(ds[i][0]) for i in range(3)] * 10
