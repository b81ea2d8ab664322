"""shaw: two tables, clipped distances."""

import pytest

from lpe.positions import shaw

from . import equations
from .common import config

VARIANTS = [{}, {"clip": 3}, {"clip": 1}]
VALUES = [
    ({"clip": c}, lambda q, k, v, p, w, c=c: equations.shaw(q, k, v, p, w["relative_key"], w["relative_value"], c))
    for c in (16, 3, 1, 40)
]


@pytest.mark.parametrize("value", [0, -1, 2.0, True, 2**21])
def test_a_clip_that_is_none_is_refused(value):
    with pytest.raises(ValueError, match=f"clip={value}, allowed are whole numbers from 1 to {2**20}"):
        shaw.make(config(), clip=value)
