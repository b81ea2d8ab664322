"""rope_llama3: frequencies are transformers' (test_rope_golden.py); here the whole attention and what is refused."""

import math

import pytest

from lpe.positions import rope_llama3

from . import equations
from .common import config

VARIANTS = [{}, {"low_freq_factor": 0.5}, {"factor": 8.0, "max_length": 32}]


def by_wavelength(s, n, low=1.0, high=4.0, d=8):
    found = []
    for k in range(d // 2):
        inv = 10000.0 ** (-2 * k / d)
        wavelength = 2 * math.pi / inv
        if wavelength > n / low:
            found.append(inv / s)
        elif wavelength < n / high:
            found.append(inv)
        else:
            g = (n / wavelength - low) / (high - low)
            found.append((1 - g) * inv / s + g * inv)
    return found


VALUES = [
    ({}, lambda q, k, v, p, w: equations.rope(q, k, v, p, inv_freq=by_wavelength(4, 8))),
    (
        {"factor": 8.0, "original_max_position_embeddings": 128, "low_freq_factor": 0.5, "high_freq_factor": 8.0},
        lambda q, k, v, p, w: equations.rope(q, k, v, p, inv_freq=by_wavelength(8, 128, 0.5, 8.0)),
    ),
]


def test_factors_that_cross_are_refused():
    with pytest.raises(ValueError, match="high_freq_factor=1.0, allowed are numbers above 1"):
        rope_llama3.make(config(), high_freq_factor=1.0)
