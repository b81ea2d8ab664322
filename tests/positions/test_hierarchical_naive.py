"""hierarchical_naive: the printed form, which is not the method."""

import numpy as np
import pytest

from lpe.positions import hierarchical_naive

from . import reference
from .common import N, adopted, at, config, table

VARIANTS = [{}, {"alpha": 0.1}, {"trained_rows": 5}]
VALUES = [
    ({}, lambda P: reference.hierarchical_naive(P, N * N)),
    ({"alpha": 0.2, "max_length": 13}, lambda P: reference.hierarchical_naive(P, 13, 0.2)),
    ({"trained_rows": 5}, lambda P: reference.hierarchical_naive(P[:5], 25)),
]


def test_it_changes_the_first_rows_and_claims_nothing():
    P = table()
    method, params = adopted(hierarchical_naive.make, P)
    assert method.claims == frozenset()
    assert np.abs(at(method, params, np.arange(1, N)) - P[1:]).max() > 0.1
    assert "NOT identical" in hierarchical_naive.__doc__


def test_alpha_is_checked():
    for alpha in (0, 0.5, 1):
        with pytest.raises(ValueError, match=rf"hierarchical_naive: alpha={alpha}"):
            hierarchical_naive.make(config(), alpha=alpha)
    with pytest.warns(UserWarning, match="alpha=0.7"):
        hierarchical_naive.make(config(), alpha=0.7)
