"""learned: the table as it is."""

import pytest

from lpe.positions import learned

from .common import N, config

VARIANTS = [{}, {"max_length": 5}]
VALUES = [({}, lambda P: P), ({"max_length": 5}, lambda P: P[:5])]


def test_more_than_the_table_has_is_refused():
    with pytest.raises(ValueError, match=rf"max_length={N + 1}, allowed are whole numbers from 1 to {N}"):
        learned.make(config(2), max_length=N + 1)
