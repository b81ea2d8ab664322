"""random: the control arm."""

import jax
import numpy as np

from lpe.positions import random

from .common import N, adopted, at, config, table

VARIANTS = [{}, {"max_length": 20}, {"trained_rows": 5}]
VALUES = [({"max_length": N}, lambda P: P), ({"max_length": 5}, lambda P: P[:5])]


def test_new_rows_come_from_the_initialiser():
    method, params = adopted(random.make, table(2, d=64), 2, max_length=1000)
    new = np.asarray(params["table"][2 + N :])
    assert new.shape == (1000 - N, 64) and abs(new.std() - 0.5) < 0.01 and abs(new.mean()) < 0.01
    np.testing.assert_array_equal(at(method, params, np.arange(1000)), params["table"][2:])


def test_rows_follow_the_key():
    method = random.make(config(), max_length=20)
    one, same, other = (method.adopt({"table": table()}, jax.random.key(s))["table"] for s in (0, 0, 1))
    assert (one == same).all() and (one[:N] == other[:N]).all() and not (one[N:] == other[N:]).any()
