"""interpolate: held to scipy's interp1d and gaussian_filter1d."""

import numpy as np
import pytest

from lpe.positions import interpolate

from . import reference
from .common import N, adopted, at, compare, config, table

VARIANTS = [
    {}, {"kind": "quadratic"}, {"kind": "cubic"}, {"align": "pi"}, {"low_pass": 1.5}, {"periodic_after": 12}, {"pin_rows": 1},
    {"trained_rows": 5}, {"max_length": 20},
]  # fmt: skip
MIXED = [
    {"low_pass": 2.0, "align": "pi"},
    {"low_pass": 0.3, "kind": "cubic"},
    {"periodic_after": 12, "kind": "quadratic"},
    {"periodic_after": 12, "pin_rows": 2, "align": "pi"},
    {"pin_rows": 1, "kind": "cubic", "align": "pi"},
    {"pin_rows": 2, "low_pass": 1.0, "kind": "quadratic", "periodic_after": 20},
    {"pin_rows": N - 2},
]
VALUES = [
    *(
        ({"kind": kind, "align": align, "max_length": m}, lambda P, a=(m, kind, align): reference.interpolate(P, *a))
        for kind in ("linear", "quadratic", "cubic")
        for align in ("endpoint", "pi")
        for m in (N, N + 1, 31)
    ),
    *(({**kw, "max_length": 40}, lambda P, kw=kw: reference.interpolate(P, 40, **kw)) for kw in MIXED),
    ({"trained_rows": 5, "max_length": 12}, lambda P: reference.interpolate(P[:5], 12)),
]


@pytest.mark.parametrize("kind", ["linear", "quadratic", "cubic"])
def test_a_table_of_bert_size(kind):
    for align in ("endpoint", "pi"):
        kw = {"kind": kind, "align": align, "max_length": 1500}
        compare(interpolate.make, kw, lambda P, a=(1500, kind, align): reference.interpolate(P, *a), n=512)


def test_linear_hits_the_trained_rows_exactly():
    P = table()
    for align, m, step in (("endpoint", 4 * (N - 1) + 1, 4), ("pi", 4 * N, 4)):
        method, params = adopted(interpolate.make, P, align=align, max_length=m)
        np.testing.assert_array_equal(at(method, params, np.arange(m))[: step * N : step], P)


@pytest.mark.parametrize(
    "kw, message",
    [
        ({"kind": "cubik"}, "kind='cubik' is not known; did you mean 'cubic'"),
        ({"align": "corner"}, "align='corner' is not known .there are: endpoint, pi"),
        ({"low_pass": -1}, "low_pass=-1, allowed are numbers from 0"),
        ({"low_pass": float("inf")}, "low_pass=inf"),
        ({"periodic_after": 7}, f"periodic_after=7, allowed are whole numbers from {N}"),
        ({"max_length": 7}, f"max_length=7, allowed are whole numbers from {N} .*'learned'"),
        ({"pin_rows": N - 1}, f"pin_rows={N - 1}, allowed are whole numbers from 0 to {N - 2}: linear needs 2 other rows"),
        ({"kind": "cubic", "trained_rows": 3}, "kind='cubic' needs at least 4 trained rows, there are 3"),
    ],
)
def test_values_outside_are_refused(kw, message):
    with pytest.raises(ValueError, match=message):
        interpolate.make(config(), **kw)
