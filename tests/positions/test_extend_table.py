"""extend_table, for notebooks and converters."""

import jax.numpy as jnp
import numpy as np
import pytest

from lpe import model, positions, registry
from lpe.positions.base import PositionMethod

from . import reference
from .common import N, config, table


def test_hierarchical_is_the_default():
    P = table()
    got = positions.extend_table(P, 20)
    assert got.shape == (20, P.shape[1]) and got.dtype == jnp.float32
    np.testing.assert_allclose(got, reference.hierarchical(P.astype(float), 20), atol=1e-6)
    np.testing.assert_allclose(
        positions.extend_table(P, 20, "copy", pin_rows=1), reference.copy(P.astype(float), 20, 1), atol=1e-6
    )


def test_reserved_rows_come_first_and_count_for_nothing():
    P = table(2)
    got = positions.extend_table(P, 20, reserved_rows=2, alpha=0.1)
    assert got.shape == (22, P.shape[1])
    np.testing.assert_array_equal(got[: 2 + N], P)
    np.testing.assert_allclose(got[2:], reference.hierarchical(P[2:].astype(float), 20, 0.1), atol=1e-6)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_the_dtype_stays_and_is_cast_once(dtype):
    P = jnp.asarray(table()).astype(dtype)
    got = positions.extend_table(P, 20)
    np.testing.assert_array_equal(got, positions.extend_table(P.astype(jnp.float32), 20).astype(dtype))
    np.testing.assert_array_equal(got[:N], P)


@pytest.mark.parametrize("name", registry.names("positions"))
def test_a_model_gives_the_same_table(name):
    m = model.initialise(config(2), ())
    method = registry.load("positions", name).make(config())
    if "table" not in method.specs or "length_dependent" in method.claims:
        return  # no table holds its vectors
    want = positions.extend_table(m.params["position"]["table"], N, name, reserved_rows=2, initializer_range=0.5)
    np.testing.assert_allclose(m.extend(position={"name": name}, max_length=N).position_table(), want, atol=1e-6)


def test_a_model_extended_from_its_trained_part_can_be_extended_again():
    m = model.initialise(config(2), ())
    P = m.params["position"]["table"]
    once = m.extend(position={"name": "hierarchical", "trained_rows": 5, "max_length": 20})
    assert once.params["position"]["table"].shape[0] == 2 + 5
    assert once.extend(attention={"name": "full"}).recipe == once.recipe
    twice = once.extend(position={"name": "copy", "max_length": 11})
    np.testing.assert_array_equal(twice.position_table()[2:], reference.copy(np.asarray(P[2:7]), 11))
    free = m.extend(position={"name": "copy", "materialize": True}, max_length=20)
    again = free.extend(max_length=40)
    np.testing.assert_array_equal(again.position_table()[:22], free.params["position"]["table"])


def test_a_table_without_an_end_is_not_written():
    with pytest.raises(ValueError, match="no limit; give one"):
        model.initialise(config(), ()).extend(position={"name": "copy"}).position_table()


@pytest.mark.parametrize(
    "args, kw, message",
    [
        ((np.zeros((8, 4), int), 20), {}, r"a float table \[reserved_rows \+ n, D\] is needed, not int32\[8, 4\]"),
        ((np.zeros(8), 20), {}, r"not float32\[8\]"),
        ((table(), 20), {"reserved_rows": 8}, "reserved_rows=8, allowed are whole numbers from 0 to 7"),
        ((table(), None), {}, "length=None, allowed are whole numbers from 1"),
        ((table(), 65), {}, "max_length=65, allowed are whole numbers from 1 to 64"),
        ((table(), 20, "hierarchial"), {}, "no method 'hierarchial'; did you mean 'hierarchical'"),
        ((table(), 20), {"alfa": 0.1}, "positions.hierarchical has no option 'alfa'; did you mean 'alpha'"),
        ((table(), 20, "copy"), {"reference_row": 1}, "positions.copy has no option 'reference_row'"),
    ],
)
def test_errors_name_value_and_way_out(args, kw, message):
    with pytest.raises(ValueError, match=message):
        positions.extend_table(*args, **kw)


def test_a_method_without_a_table_is_refused(monkeypatch):
    monkeypatch.setattr(registry, "make", lambda *args: PositionMethod({}))
    with pytest.raises(ValueError, match="'hierarchical' keeps no table of positions"):
        positions.extend_table(table(), 20)
