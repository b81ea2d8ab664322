"""rope_dynamic: each sequence by its own length."""

import numpy as np
import pytest

from lpe.positions import rope, rope_dynamic

from . import equations
from .common import N, config, heads_of, placed

VARIANTS = [{}, {"factor": 4.0}, {"original_max_position_embeddings": 2}]


def attention(f, n):
    def want(q, k, v, p, w):
        base = 10000.0 * (f * max(len(p), n) / n - (f - 1)) ** (8 / 6)
        return equations.rope(q, k, v, p, theta=base)

    return want


VALUES = [
    ({}, attention(1.0, N)),
    ({"factor": 2.0}, attention(2.0, N)),
    ({"original_max_position_embeddings": 5}, attention(1.0, 5)),
    ({"original_max_position_embeddings": 64}, lambda q, k, v, p, w: equations.rope(q, k, v, p)),
]


def test_up_to_the_trained_length_it_is_plain_rope_and_beyond_it_no_more():
    method, plain = rope_dynamic.make(config(), factor=2.0), rope.make(config())
    qkv, k = heads_of(0, 5), np.arange(5)
    for length, same in ((5, True), (N, True), (N + 1, False)):
        got, want = (m.rotate({}, *qkv, *[placed(k, length)] * 2)[0] for m in (method, plain))
        assert (np.abs(got - want).max() < 1e-6) == same, length


def test_a_factor_below_one_is_refused():
    with pytest.raises(ValueError, match="factor=0.5, allowed are numbers from 1"):
        rope_dynamic.make(config(), factor=0.5)
