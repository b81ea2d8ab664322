"""copy: the rows again and again."""

import pytest

from lpe.positions import copy

from . import reference
from .common import N, config

VARIANTS = [{}, {"pin_rows": 1}, {"trained_rows": 5}]
VALUES = [
    ({}, lambda P: reference.copy(P, 30)),
    ({"pin_rows": 1}, lambda P: reference.copy(P, 30, 1)),
    ({"pin_rows": N - 1, "max_length": 11}, lambda P: reference.copy(P, 11, N - 1)),
    ({"trained_rows": 5, "pin_rows": 2}, lambda P: reference.copy(P[:5], 21, 2)),
]


@pytest.mark.parametrize("value", [-1, N, 1.0, True])
def test_pin_rows_outside_the_table_is_refused(value):
    with pytest.raises(ValueError, match=f"pin_rows={value}, allowed are whole numbers from 0 to {N - 1}"):
        copy.make(config(), pin_rows=value)
