"""by_layer: each layer turns by its own method, and what `extend` makes of it."""

import logging
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lpe import build, model
from lpe.positions import by_layer
from lpe.positions.base import Bound

from . import equations
from .common import config, heads_of, of_layer, placed

FAST, SLOW = {"name": "rope", "rope_theta": 100.0}, {"name": "rope_linear", "factor": 4}
VARIANTS = [{}, {"layers": [1]}, {"methods": [FAST, SLOW]}, {"max_length": 12}]
VALUES = [
    ({}, lambda q, k, v, p, w: equations.rope(q, k, v, p, 160000.0)),
    ({"layers": [1, 0]}, lambda q, k, v, p, w: equations.rope(q, k, v, p)),
    ({"methods": [SLOW, FAST], "layers": (1,)}, lambda q, k, v, p, w: equations.rope(q, k, v, p, 100.0)),
]


@pytest.fixture(scope="module")
def three():
    """Three layers with the methods 0, 1, 1."""
    cfg = build.BertConfig(
        vocab_size=20, hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=16, initializer_range=0.5,
        max_position_embeddings=16,
    )  # fmt: skip
    return model.initialise(cfg, ()).extend(position={"name": "by_layer", "methods": [FAST, SLOW], "layers": [0, 1, 1]})


def test_each_layer_has_its_own(three):
    method, (q, k, v) = build.network(three.recipe).position, map(jnp.asarray, heads_of(0, 9))
    tok = placed(np.arange(9))
    for layer, spec in enumerate((FAST, SLOW, SLOW)):
        alone = build.position_method(three.recipe._replace(position=build.positions(spec)))
        got = jax.jit(Bound(of_layer(method, {}, layer), method).rotate)(q, k, v, tok, tok)
        for a, b in zip(got, Bound({}, alone).rotate(q, k, v, tok, tok), strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-6)


def test_the_model_is_that_of_its_layers(three):
    """With one method in all layers it is that method; in others it is not, and the order counts."""
    batch = {"input_ids": np.arange(12)[None]}
    for spec in (FAST, SLOW):
        same = three.extend(position={"name": "by_layer", "methods": [spec, spec], "layers": [0, 1, 1]})
        plain = three.extend(position=[{"name": "logn"}]).extend(position=spec)
        np.testing.assert_allclose(same.encode(batch), plain.encode(batch), rtol=0, atol=1e-5)
        assert np.abs(same.encode(batch) - three.encode(batch)).max() > 1e-3
    other = three.extend(position={"name": "by_layer", "methods": [FAST, SLOW], "layers": [1, 1, 0]})
    assert np.abs(other.encode(batch) - three.encode(batch)).max() > 1e-3


def test_a_single_method_replaces_the_first(three, caplog):
    with caplog.at_level(logging.WARNING):
        got = three.extend(position={"name": "rope_yarn", "max_length": 64})
    spec = dict(got.recipe.position[0])
    first, second = map(dict, spec["methods"])
    assert first == {"name": "rope_yarn", "max_length": 64, "rope_theta": 100.0}  # the base belongs to the weights
    assert second == SLOW and spec["layers"] == (0, 1, 1) and got.max_length == 64
    assert "not trained" not in caplog.text
    assert three.extend(max_length=24).max_length == 24
    assert three_methods(three.extend(max_length=24)) == three_methods(three)
    assert got.extend(max_length=32).max_length == 32 and got.extend(max_length=99).max_length == 99
    assert model.initialise(three.config, ()).extend(position={"name": "by_layer"}).extend(position=SLOW).max_length == 64
    beside = three.extend(position=[{"name": "logn"}, {"name": "rope_ntk", "factor": 2}])
    assert [dict(s)["name"] for s in beside.recipe.position] == ["logn", "by_layer"]


def three_methods(m) -> tuple:
    return dict(m.recipe.position[0])["methods"]


@pytest.mark.parametrize(
    ("kw", "message"),
    [
        ({"methods": [FAST]}, "methods=[{'name': 'rope', 'rope_theta': 100.0}], needed is a list of at least two"),
        (
            {"methods": ["rope", "rope"]},
            "methods=['rope', 'rope'], needed is a list of at least two, {'name': …, options} each",
        ),
        ({"methods": [FAST, {"name": "alibi"}]}, "'alibi' does more than rotate"),
        ({"methods": [FAST, {"name": "by_layer"}]}, "'by_layer' does more than rotate"),
        ({"methods": [FAST, {"name": "rop"}]}, "no method 'rop'; did you mean 'rope'?"),
        ({"methods": [FAST, SLOW], "layers": [0, 2]}, "layers has 2, allowed are 0 to 1"),
        ({"layers": []}, "layers=[], needed is a list of whole numbers"),
        ({"layers": [True]}, "layers=[True], needed is a list of whole numbers"),
        ({"max_length": 0}, "max_length=0, allowed are whole numbers from 1"),
    ],
)
def test_options_outside_are_refused(kw, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        by_layer.make(config(), **kw)
