"""preserve_short: the sequence's length chooses the rows."""

import jax.numpy as jnp
import numpy as np
import pytest

from lpe import model
from lpe.positions import preserve_short

from . import reference
from .common import N, adopted, at, config, table

VARIANTS = [{}, {"max_length": 20}, {"trained_rows": 5}]
VALUES = [
    *(({"max_length": m}, lambda P, m=m: reference.preserve_short(P, m)) for m in (N + 1, 2 * N, 20, 31)),
    ({"trained_rows": 5, "max_length": 12}, lambda P: reference.preserve_short(P[:5], 12)),
]


@pytest.mark.parametrize("materialize", [False, True])
def test_each_sequence_of_a_batch_chooses_for_itself(materialize):
    P = table()
    method, params = adopted(preserve_short.make, P, max_length=20, materialize=materialize)
    np.testing.assert_array_equal(at(method, params, np.arange(N), length=N), P)
    long = reference.preserve_short(P.astype(float), 20)
    np.testing.assert_allclose(at(method, params, np.arange(N), length=N + 1), long[:N], atol=1e-6)
    assert np.abs(long[1:N] - P[1:]).max() > 0.1


def test_a_batch_of_a_short_and_a_long_sequence_equals_each_alone():
    m = model.initialise(config(), ()).extend(position={"name": "preserve_short", "max_length": 20})
    ids = np.arange(24).reshape(2, 12) % 20
    mask = np.array([[1] * 5 + [0] * 7, [1] * 12])
    both = m.encode({"input_ids": ids, "attention_mask": mask})
    np.testing.assert_allclose(both[0, :5], m.encode({"input_ids": ids[:1, :5]})[0], atol=1e-5)
    np.testing.assert_allclose(both[1], m.encode({"input_ids": ids[1:]})[0], atol=1e-5)


def test_a_position_that_a_short_sequence_cannot_have_is_nan():
    method, params = adopted(preserve_short.make, table(), max_length=20)
    got = at(method, params, [N - 1, N], length=2)
    assert np.isfinite(got[0]).all() and np.isnan(got[1]).all()


def test_no_table_expresses_it():
    m = model.initialise(config(), ()).extend(position={"name": "preserve_short"})
    with pytest.raises(ValueError, match="no table and no stock class expresses; extend with another method, as"):
        m.position_table()


def test_new_rows_are_those_between():
    method, _ = adopted(preserve_short.make, table(2), 2, max_length=2 * N, materialize=True)
    expected = [0, 1, *np.stack([2 + np.arange(N), np.full(N, -1)], 1).ravel()]
    expected[-1] = 2 + N - 1  # after the last trained row it repeats
    np.testing.assert_array_equal(method.rows, expected)
    assert method.rows.dtype == jnp.int32
