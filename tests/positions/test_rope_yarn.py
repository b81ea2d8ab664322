"""rope_yarn: frequencies and factors are transformers' (test_rope_golden.py); here the whole attention and what is refused."""

import math

import numpy as np
import pytest

from lpe.positions import rope_yarn

from . import equations
from .common import config

VARIANTS = [
    {"original_max_position_embeddings": 512, **kw}
    for kw in (
        {}, {"beta_fast": 4.0, "beta_slow": 0.5}, {"attention_factor": 1.5}, {"truncate": False},
        {"mscale": 1.0, "mscale_all_dim": 0.5},
    )
]  # fmt: skip


def loops(s, n, fast=32.0, slow=1.0, factor=None, d=8, truncate=True):
    """arXiv 2309.00071, eqs. 17 to 22, pair by pair, with the ends of the ramp as transformers rounds them."""
    low, high = (d * math.log(n / (2 * math.pi * turns)) / (2 * math.log(10000)) for turns in (fast, slow))
    low, high = (math.floor(low), math.ceil(high)) if truncate else (low, high)
    low, high = max(low, 0), min(max(high, 0), d - 1)
    found = []
    for k in range(d // 2):
        inv = 10000.0 ** (-2 * k / d)
        ramp = min(max((k - low) / (high - low if high > low else 0.001), 0), 1)
        found.append(inv / s * ramp + inv * (1 - ramp))
    return dict(inv_freq=np.array(found), attention_factor=0.1 * math.log(s) + 1 if factor is None else factor)


VALUES = [
    ({"original_max_position_embeddings": 512}, lambda q, k, v, p, w: equations.rope(q, k, v, p, **loops(4, 512))),
    (
        {"factor": 8.0, "original_max_position_embeddings": 2048, "truncate": False},
        lambda q, k, v, p, w: equations.rope(q, k, v, p, **loops(8, 2048, truncate=False)),
    ),
    (
        {"factor": 2.0, "attention_factor": 1.5, "beta_fast": 4.0, "beta_slow": 0.5, "max_length": 999},
        lambda q, k, v, p, w: equations.rope(q, k, v, p, **loops(2, 8, 4.0, 0.5, 1.5)),
    ),
]


@pytest.mark.parametrize(
    ("kw", "message"),
    [
        ({"mscale": 1.0}, "mscale=1.0, mscale_all_dim=None; give both or none"),
        ({"beta_fast": 1.0, "beta_slow": 2.0}, "beta_fast=1.0, allowed are numbers from 2"),
        ({"beta_slow": 0}, "beta_slow=0, allowed are numbers above 0"),
        ({"factor": 0.5}, "factor=0.5, allowed are numbers from 1"),
        ({"attention_factor": 0.0}, "attention_factor=0.0, allowed are numbers above 0"),
        ({"truncate": "yes"}, "truncate='yes', allowed are False, True"),
        ({"original_max_position_embeddings": 0}, "original_max_position_embeddings=0, allowed are whole numbers from 1"),
    ],
)
def test_options_outside_are_refused(kw, message):
    with pytest.raises(ValueError, match=message):
        rope_yarn.make(config(), **kw)
