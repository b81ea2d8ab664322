"""Several short items in one row: first-fit decreasing (Johnson 1973), which needs at most 11/9 of the fewest rows, plus 1."""

from collections.abc import Sequence

import numpy as np


def pack(lengths: Sequence[int] | np.ndarray, capacity: int) -> list[list[int]]:
    """Rows of item indices whose lengths sum to at most `capacity`; every item in exactly one row.

    Deterministic: items by falling length, equal ones by index, each into the first row with room. Inside a row the order is
    by index, and so is that of the rows by their first item.

    Raises:
      ValueError: an item that is empty or longer than `capacity`, by index.
    """
    sizes = np.asarray(lengths, np.int64)
    bad = np.flatnonzero((sizes < 1) | (sizes > capacity))
    if bad.size:
        raise ValueError(f"item {bad[0]} has length {sizes[bad[0]]}, allowed are 1 to {capacity}: cut it before packing")
    leaves = 1 << max(0, len(sizes) - 1).bit_length()
    room = [capacity] * (
        2 * leaves
    )  # a tree: each node has the most room of the rows below it, so that a row is found in log n
    rows: list[list[int]] = []
    for item in np.argsort(-sizes, kind="stable").tolist():
        size, node = int(sizes[item]), 1
        while node < leaves:
            node *= 2
            node += room[node] < size
        if node - leaves == len(rows):
            rows.append([])
        rows[node - leaves].append(item)
        room[node] -= size
        while node > 1:
            node //= 2
            room[node] = max(room[2 * node], room[2 * node + 1])
    return sorted(sorted(row) for row in rows)


def padding(lengths: Sequence[int] | np.ndarray, rows: Sequence[Sequence[int]], capacity: int) -> float:
    """Share of the places of `rows` of `capacity` that hold no token."""
    return 1.0 - int(np.asarray(lengths, np.int64).sum()) / (len(rows) * capacity)
