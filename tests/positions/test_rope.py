"""rope: both layouts, part of the channels, turned values."""

import numpy as np
import pytest

from lpe.positions import rope

from . import equations
from .common import config

VARIANTS = [{}, {"rope_theta": 100.0}, {"layout": "interleaved"}, {"partial_rotary_factor": 0.5}, {"rotary_value": True}]
VALUES = [
    ({}, lambda q, k, v, p, w: equations.rope(q, k, v, p)),
    ({"rope_theta": 100.0, "layout": "interleaved"}, lambda q, k, v, p, w: equations.rope(q, k, v, p, 100.0, "interleaved")),
    ({"partial_rotary_factor": 0.5}, lambda q, k, v, p, w: equations.rope(q, k, v, p, rotary_dim=4)),
    (
        {"partial_rotary_factor": 0.75, "layout": "interleaved"},
        lambda q, k, v, p, w: equations.rope(q, k, v, p, layout="interleaved", rotary_dim=6),
    ),
    ({"rotary_value": True}, lambda q, k, v, p, w: equations.rope(q, k, v, p, rotary_value=True)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kw", "message"),
    [
        ({"layout": "neox"}, "layout='neox', allowed are 'half', 'interleaved'"),
        ({"rope_theta": 1.0}, "rope_theta=1.0, allowed are numbers above 1"),
        ({"rope_theta": float("nan")}, "rope_theta=nan, allowed are numbers above 1"),
        ({"partial_rotary_factor": 0.4}, "3 of the 8 channels of a head would turn, and an even number from 2 is needed"),
        ({"partial_rotary_factor": 0.0}, "partial_rotary_factor=0.0, allowed are numbers above 0 up to 1"),
        ({"partial_rotary_factor": 1.5}, "partial_rotary_factor=1.5, allowed are numbers above 0 up to 1"),
        ({"rotary_value": 1}, "rotary_value=1, allowed are False, True"),
    ],
)
def test_options_outside_are_refused(kw, message):
    with pytest.raises(ValueError, match=message):
        rope.make(config(), **kw)


def test_turned_values_are_not_relative():
    assert "relative" in rope.make(config()).claims and "relative" not in rope.make(config(), rotary_value=True).claims
    q, k, v = np.random.default_rng(0).normal(size=(3, 5, 2, 8))
    here, there = (equations.rope(q, k, v, np.arange(5) + shift, rotary_value=True) for shift in (0, 3))
    assert np.abs(here - there).max() > 0.1
