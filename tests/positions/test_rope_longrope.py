"""rope_longrope: the list by each sequence's own length; at exactly the trained length it is the short one."""

import math

import numpy as np
import pytest

from lpe.positions import rope_longrope

from . import equations
from .common import N, config

SHORT, LONG = (1.0, 1.1, 1.2, 1.5), (1.0, 2.0, 5.0, 8.0)
VARIANTS = [{}, {"long_factor": LONG}, {"short_factor": SHORT}, {"attention_factor": 1.3}]


def attention(n, s, short=(1.0,) * 4, long=LONG, factor=None):
    inv = 10000.0 ** (-np.arange(0, 8, 2) / 8)

    def want(q, k, v, p, w):
        scale = math.sqrt(1 + math.log(s) / math.log(n)) if factor is None else factor
        chosen = np.array(long if len(p) > n else short)
        return equations.rope(q, k, v, p, inv_freq=inv / chosen, attention_factor=scale)

    return want


VALUES = [
    ({"long_factor": LONG}, attention(N, 4)),
    ({}, attention(N, 4, long=(4.0,) * 4)),
    (
        {"long_factor": LONG, "short_factor": SHORT, "original_max_position_embeddings": 9, "factor": 2.0},
        attention(9, 2, SHORT),
    ),
    (
        {"long_factor": LONG, "short_factor": SHORT, "original_max_position_embeddings": 19, "attention_factor": 1.7},
        attention(19, 4, SHORT, factor=1.7),
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kw", "message"),
    [
        ({"long_factor": (1.0, 2.0)}, "long_factor has 2 numbers, needed is a list of 4"),
        ({"short_factor": 2.0}, "short_factor has 2.0, needed is a list of 4"),
        ({"long_factor": (1.0, 2.0, -1.0, 3.0)}, r"long_factor\[2\]=-1.0, allowed are numbers above 0"),
        ({"original_max_position_embeddings": 1}, "original_max_position_embeddings=1, allowed are whole numbers from 2"),
    ],
)
def test_options_outside_are_refused(kw, message):
    with pytest.raises(ValueError, match=message):
        rope_longrope.make(config(), **kw)
