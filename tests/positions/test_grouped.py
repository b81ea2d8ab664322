"""grouped: neighbours share a row."""

import pytest

from lpe.positions import grouped

from . import reference
from .common import N, config

VARIANTS = [{}, {"max_length": 16}, {"trained_rows": 5}]
VALUES = [
    ({}, lambda P: reference.grouped(P, 4 * N)),
    *(({"max_length": m}, lambda P, m=m: reference.grouped(P, m)) for m in (N, N + 1, 13, 2 * N, 31)),
    ({"trained_rows": 5, "max_length": 12}, lambda P: reference.grouped(P[:5], 12)),
]


def test_a_shorter_table_is_refused_with_the_way_out():
    with pytest.raises(ValueError, match=f"max_length=7, allowed are whole numbers from {N} .*'learned'"):
        grouped.make(config(), max_length=7)


def test_products_of_positions_stay_within_int32():
    with pytest.raises(ValueError, match=f"from {N} to {(2**31 - 1) // N}"):
        grouped.make(config(), max_length=2**31 // N + 1)
