"""rope_linear: frequencies are transformers' (test_rope_golden.py); here the whole attention."""

import pytest

from lpe.positions import rope_linear

from . import equations
from .common import config

VARIANTS = [{}, {"factor": 2.0}, {"factor": 2.0, "max_length": 32}, {"layout": "interleaved"}]
VALUES = [
    ({"factor": 2.0}, lambda q, k, v, p, w: equations.rope(q, k, v, p / 2)),
    ({"max_length": 40}, lambda q, k, v, p, w: equations.rope(q, k, v, p / 5)),
    ({}, lambda q, k, v, p, w: equations.rope(q, k, v, p / 4)),
    ({"original_max_position_embeddings": 16, "max_length": 40}, lambda q, k, v, p, w: equations.rope(q, k, v, p / 2.5)),
]  # fmt: skip


@pytest.mark.parametrize(("kw", "length"), [({}, 32), ({"factor": 2.3}, 18), ({"max_length": 5}, 5), ({"factor": 1.5}, 12)])
def test_the_length_follows_from_the_factor(kw, length):
    assert rope_linear.make(config(), **kw).max_length == length


@pytest.mark.parametrize("factor", [0.9, 0, -1, "2", True, float("inf")])
def test_a_factor_that_is_none_is_refused(factor):
    with pytest.raises(ValueError, match="factor=.*allowed are numbers from 1"):
        rope_linear.make(config(), factor=factor)
