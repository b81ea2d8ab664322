"""xpos: causal only."""

import jax.numpy as jnp
import numpy as np
import pytest

from lpe.positions import xpos

from . import equations
from .common import config, heads_of, placed

VARIANTS = [{}, {"scale_base": 32.0}, {"layout": "half"}]
VALUES = [
    ({}, lambda q, k, v, p, w: equations.xpos(q, k, v, p, layout="interleaved")),
    ({"scale_base": 8.0, "layout": "half"}, lambda q, k, v, p, w: equations.xpos(q, k, v, p, scale_base=8)),
    ({"rope_theta": 100.0}, lambda q, k, v, p, w: equations.xpos(q, k, v, p, 100.0, "interleaved")),
]


def test_the_farthest_positions_do_not_overflow_and_farther_ones_are_refused():
    method = xpos.make(config())
    tok = placed(np.array([0, method.max_length - 1]), method.max_length)
    assert all(jnp.isfinite(x).all() for x in method.rotate({}, *heads_of(0, 2), tok, tok))
    with pytest.raises(ValueError, match="max_length=40000, allowed are whole numbers from 1 to 32768"):
        xpos.make(config(), max_length=40000)
