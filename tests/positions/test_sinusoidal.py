"""sinusoidal: Vaswani's table, of any length."""

import numpy as np
import pytest

from lpe.positions import sinusoidal

from . import equations
from .common import D, adopted, at, config, table

VARIANTS = [{}, {"base": 100.0}]
VALUES = [
    ({}, lambda P: equations.sinusoidal(np.arange(40), D)),
    ({"base": 100.0, "max_length": 9}, lambda P: equations.sinusoidal(np.arange(9), D, 100.0)),
]


def test_far_positions_are_those_of_float64_as_far_as_float32_can_tell():
    method, params = adopted(sinusoidal.make, table())
    k = np.array([8_191, 262_143])
    np.testing.assert_allclose(at(method, params, k), equations.sinusoidal(k, D), rtol=0, atol=2e-2)
    np.testing.assert_allclose(at(method, params, k[:1]), equations.sinusoidal(k[:1], D), rtol=0, atol=1e-3)


def test_an_odd_hidden_size_is_refused():
    cfg = config(d=16)
    object.__setattr__(cfg, "hidden_size", 15)
    with pytest.raises(ValueError, match="embeddings have a width of 15, but sines and cosines come in pairs"):
        sinusoidal.make(cfg)
