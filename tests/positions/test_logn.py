"""logn: by the length, or by what a causal query sees; the order of a list does not matter."""

import numpy as np
import pytest

from lpe import model
from lpe.positions import logn

from . import equations
from .common import N, config

VARIANTS = [{}, {"original_max_position_embeddings": 3}, {"causal": True}]
VALUES = [
    ({}, lambda q, k, v, p, w: equations.logn(q, k, v, p, N, length=len(p))),
    ({"original_max_position_embeddings": 30}, lambda q, k, v, p, w: equations.logn(q, k, v, p, 30, length=len(p))),
    (
        {"original_max_position_embeddings": 3, "causal": True},
        lambda q, k, v, p, w: equations.logn(q, k, v, p, 3, causal=True),
    ),
]  # fmt: skip


def test_one_trained_position_is_refused():
    with pytest.raises(ValueError, match="original_max_position_embeddings=1, allowed are whole numbers from 2"):
        logn.make(config(), original_max_position_embeddings=1)


@pytest.mark.parametrize("other", ["rope_dynamic", "transformer_xl", "t5", "shaw", "learned"])
def test_the_order_of_a_list_does_not_matter(other):
    m = model.initialise(config(), ())
    batch = {"input_ids": np.arange(N)[None] + 1}
    parts = [{"name": other}, {"name": "logn", "original_max_position_embeddings": 3}]
    one, two = (m.extend(position=listed).encode(batch) for listed in (parts, parts[::-1]))
    np.testing.assert_array_equal(one, two)
    alone = m.extend(position=parts[:1]).encode(batch)
    assert np.abs(one - alone).max() > 1e-4
