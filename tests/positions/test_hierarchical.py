"""hierarchical: the author's equations, the two variants, and what alpha may be."""

import jax.numpy as jnp
import numpy as np
import pytest

from lpe.positions import hierarchical

from . import reference
from .common import N, adopted, at, compare, config, table

VARIANTS = [
    {}, {"alpha": 0.1}, {"reference_row": 1}, {"pin_rows": 1}, {"reference_row": 1, "pin_rows": 1}, {"trained_rows": 5},
]  # fmt: skip
VALUES = [
    ({}, lambda P: reference.hierarchical(P, N * N)),
    ({"alpha": 0.1}, lambda P: reference.hierarchical(P, N * N, 0.1)),
    ({"alpha": 0.25, "max_length": N + 1}, lambda P: reference.hierarchical(P, N + 1, 0.25)),
    ({"max_length": 3}, lambda P: reference.hierarchical(P, 3)),
    ({"reference_row": 1}, lambda P: reference.hierarchical_variant(P, N * (N - 1), 0.4, 1)),
    ({"pin_rows": 1}, lambda P: reference.hierarchical_variant(P, N + (N - 1) ** 2, 0.4, 0, 1)),
    ({"reference_row": 1, "pin_rows": 3}, lambda P: reference.hierarchical_variant(P, N + 6 * 5, 0.4, 1, 3)),
    ({"reference_row": N - 1}, lambda P: P),
    ({"trained_rows": 5}, lambda P: reference.hierarchical(P[:5], 25)),
]


def test_alpha_above_a_half_is_allowed_and_warns():
    with pytest.warns(UserWarning, match="alpha=0.7 > 0.5"):
        compare(hierarchical.make, {"alpha": 0.7}, lambda P: reference.hierarchical(P, N * N, 0.7))


@pytest.mark.parametrize("alpha", [0, 1, -0.1, 1.2, float("nan"), True, "0.4", None])
def test_alpha_outside_is_refused(alpha):
    with pytest.raises(ValueError, match="alpha=.*allowed are 0 < alpha < 1 except 0.5; the author's is 0.4"):
        hierarchical.make(config(), alpha=alpha)


def test_alpha_of_a_half_is_refused_because_positions_collide():
    with pytest.raises(ValueError, match=r"alpha=0.5 gives the positions \(i, j\) and \(j, i\) the same vector"):
        hierarchical.make(config(), alpha=0.5)
    q = reference.hierarchical(table().astype(np.float64), N * N, 0.5)
    np.testing.assert_allclose(q[2 * N + 5], q[5 * N + 2])


@pytest.mark.parametrize(
    "kw, reach", [({}, 64), ({"reference_row": 1}, 56), ({"pin_rows": 1}, 57), ({"reference_row": 2, "pin_rows": 3}, 33)]
)
def test_reach(kw, reach):
    assert hierarchical.make(config(2), **kw).max_length == reach
    with pytest.raises(ValueError, match=f"max_length={reach + 1}, allowed are whole numbers from 1 to {reach}"):
        hierarchical.make(config(2), max_length=reach + 1, **kw)


@pytest.mark.parametrize("option", ["reference_row", "pin_rows"])
@pytest.mark.parametrize("value", [-1, N, 1.0, True])
def test_rows_outside_the_table_are_refused(option, value):
    with pytest.raises(ValueError, match=f"{option}={value}, allowed are whole numbers from 0 to {N - 1}"):
        hierarchical.make(config(), **{option: value})


def test_the_textbook_form_would_lose_the_first_rows_in_bfloat16():
    P = table().astype(jnp.bfloat16)
    u = (P - jnp.bfloat16(0.4) * P[0]) / jnp.bfloat16(0.6)
    textbook = jnp.bfloat16(0.4) * u[0] + jnp.bfloat16(0.6) * u
    method, params = adopted(hierarchical.make, np.asarray(P))
    assert np.abs(textbook - P).max() > 0
    assert np.abs(at(method, params, np.arange(N), dtype=jnp.bfloat16) - np.asarray(P, np.float32)).max() == 0
