"""262,144 positions cost the trained rows: no long table is built, as a parameter or on the way."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lpe import registry
from lpe.positions import table as tables

from .common import adopted, at, table, token_ids

LONG, TRAINED, WIDTH = 262_144, 512, 8


@pytest.mark.parametrize("name", ["hierarchical", "hierarchical_naive", "copy", "grouped", "interpolate", "preserve_short"])
def test_the_longest_table_is_never_there(name):
    make = registry.load("positions", name).make
    method, params = adopted(make, table(0, TRAINED, WIDTH), max_length=LONG)
    assert method.max_length == LONG and params["table"].shape == method.rows.shape + (WIDTH,) == (TRAINED, WIDTH)
    tok = token_ids(3)._replace(position=jnp.array([[0, 1000, LONG - 1]]))
    program = jax.make_jaxpr(method.embed)(params, jnp.zeros((1, 3, WIDTH)), tok)
    made = [v.aval.shape for e in program.jaxpr.eqns for v in e.outvars] + [np.shape(c) for c in program.consts]
    assert max(np.prod(shape) for shape in made) <= max(2 * LONG, TRAINED * WIDTH) < LONG * WIDTH
    assert np.isfinite(at(method, params, [0, 1000, LONG - 1], length=LONG)).all()


def test_rows_outside_are_nan_and_never_the_nearest():
    P = jnp.ones((3, 2))
    np.testing.assert_array_equal(np.isnan(tables.row(P, jnp.array([-1, 0, 2, 3]))[:, 0]), [True, False, False, True])
