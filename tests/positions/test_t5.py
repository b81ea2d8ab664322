"""t5: buckets at every distance, and the attention."""

import numpy as np
import pytest

from lpe.positions import t5

from . import equations
from .common import config

VARIANTS = [{}, {"num_buckets": 8, "max_distance": 5}, {"max_distance": 20}]
VALUES = [
    (
        {"num_buckets": b, "max_distance": m},
        lambda q, k, v, p, w, b=b, m=m: equations.t5(q, k, v, p, w["relative_attention_bias"], b, m),
    )
    for b, m in ((32, 128), (8, 5), (32, 20))
]


@pytest.mark.parametrize("settings", [(32, 128), (8, 5), (32, 20), (4, 2), (64, 1000), (32, 2048)])
def test_every_bucket(settings):
    d = np.arange(-2500, 2501)
    np.testing.assert_array_equal(t5.buckets(d, *settings), [equations.t5_bucket(int(x), *settings) for x in d])


@pytest.mark.parametrize(
    ("kw", "message"),
    [
        ({"num_buckets": 30}, "num_buckets=30, allowed are multiples of 4"),
        ({"num_buckets": 0}, "num_buckets=0, allowed are whole numbers from 4"),
        ({"max_distance": 8}, "max_distance=8, allowed are whole numbers from 9"),
    ],
)
def test_options_outside_are_refused(kw, message):
    with pytest.raises(ValueError, match=message):
        t5.make(config(), **kw)
