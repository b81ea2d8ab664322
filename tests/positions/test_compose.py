"""A list of methods does what its members do; what does not go together is refused by name."""

import logging

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lpe
from lpe import build, model
from lpe.attention.base import AttentionPattern, dense
from lpe.positions import alibi, base, learned, logn, rope, shaw, t5

from . import equations
from .common import N, adopted, attention, config, heads_of, pattern, placed, table


def tiny() -> model.Model:
    return model.initialise(config(2), ("mlm",))


def test_a_list_does_what_its_members_do():
    parts = [("alibi", alibi.make), ("logn", lambda cfg: logn.make(cfg, original_max_position_embeddings=3)), ("t5", t5.make)]
    make = lambda cfg: base.compose([(name, m(cfg)) for name, m in parts])  # noqa: E731
    method, params = adopted(make, table())
    positions, qkv = np.arange(9), heads_of(0, 9)
    q, k, v = (x[0].astype(np.float64) for x in qkv)
    logits = equations.dots(q * np.log(9) / np.log(3), k) / np.sqrt(8)
    logits -= equations.alibi_slopes(2)[:, None, None] * np.abs(equations.key_minus_query(positions))
    bias = np.asarray(params["relative_attention_bias"])
    buckets = np.vectorize(equations.t5_bucket)(equations.key_minus_query(positions))
    want = equations.attend(logits + bias[buckets].transpose(2, 0, 1), v)
    got = attention(method, params, run=pattern(method).attend, qkv=qkv, tok=placed(positions))[0]
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5)


def test_values_of_several_add_up():
    two = base.compose([("shaw", shaw.make(config(), clip=2)), ("nezha", _values_only(7.0))])
    params = {n: x[0] for n, x in two.adopt({}, jax.random.key(0)).items()}
    tok, weights = placed(np.arange(4)), jnp.ones((1, 2, 4, 4))
    got = two.values(params, weights, tok, tok, slice(0, 2))
    alone = shaw.make(config(), clip=2).values(params, weights, tok, tok, slice(0, 2))
    np.testing.assert_allclose(got, alone + 7.0, atol=1e-5)


def _values_only(x: float) -> base.PositionMethod:
    return base.PositionMethod({}, values=lambda params, w, *_: jnp.full((1, 4, 2, 8), x))


def test_claims_and_limits_of_a_list():
    cfg = config()
    both = base.compose([("learned", learned.make(cfg)), ("alibi", alibi.make(cfg))])
    assert both.max_length == N and not both.claims and base.hooks(both) == {"embed", "logits"}
    both = base.compose([("rope", rope.make(cfg, max_length=20)), ("logn", logn.make(cfg))])
    assert both.max_length == 20 and both.claims == {"relative", "length_dependent"}
    both = base.compose([("rope", rope.make(cfg)), ("alibi", alibi.make(cfg))])
    assert both.max_length is None and both.claims == {"relative"}
    both = base.compose([("alibi", alibi.make(cfg)), ("logn", logn.make(cfg, causal=True))])
    assert both.claims == {"causal_only"}


@pytest.mark.parametrize(
    ("position", "message"),
    [
        ([{"name": "rope"}, {"name": "rope_yarn"}], "'rope' and 'rope_yarn' both rotate or move queries and keys"),
        ([{"name": "rope"}, {"name": "transformer_xl"}], "both rotate or move"),
        ([{"name": "rope"}, {"name": "shaw"}], "'rope' moves the queries that 'shaw' compares with its own vectors"),
        ([{"name": "nezha"}, {"name": "transformer_xl"}], "'transformer_xl' moves the queries that 'nezha' compares"),
        ({"name": 5}, "name=5, allowed is the name of a method"),
        ({"name": "rotary"}, "rotary positions are"),
        ([{"name": "learned"}, {"name": "sinusoidal"}], "'learned' and 'sinusoidal' both add a vector to each token"),
        ([{"name": "alibi"}, {"name": "alibi"}], "position names 'alibi' twice"),
        ([], r"position=\[\] names no method"),
        ([{"name": "xpos"}, {"name": "logn"}], "'xpos' . 'logn' is for causal attention only, and attention 'full' as given"),
        ({"name": "logn", "causal": True}, "is for causal attention only"),
        ([{"name": "rope"}, "logn"], "allowed are {'name': …, options} or a list of such"),
        ([{"rope": 1}], "a method of lpe.positions is given as"),
        ({"name": "rope_yran"}, "no method 'rope_yran'; did you mean 'rope_yarn'"),
        ({"name": "linear"}, "linear interpolation of a learned table is .*'interpolate'"),
        ({"name": "alibi", "max_length": 20}, "alibi has no option 'max_length'"),
    ],
)
def test_what_does_not_go_together_is_refused(position, message):
    with pytest.raises(ValueError, match=message):
        tiny().extend(position=position)


def test_max_length_goes_to_the_methods_that_take_it():
    m = tiny().extend(max_length=30, position=[{"name": "hierarchical"}, {"name": "alibi"}])
    assert m.max_length == 30 and dict(m.recipe.position[0])["max_length"] == 30
    for position, message in (
        ({"name": "alibi"}, "max_length=30: position .*alibi.* has no limit, so leave max_length out"),
        ({"name": "rope", "max_length": 20}, "max_length=30 and position .* say two lengths; leave one out"),
        ([], r"position=\[\] names no method"),
    ):
        with pytest.raises(ValueError, match=message):
            tiny().extend(max_length=30, position=position)


def test_a_longer_length_alone_is_for_the_method_there_is():
    m = tiny().extend(max_length=20, position=[{"name": "rope_yarn"}, {"name": "logn"}])
    with pytest.raises(
        ValueError, match=r"input of 21 tokens is longer than the 20 positions of .*model.extend\(max_length=21\)"
    ):
        m.encode({"input_ids": np.ones((1, 21), int)})
    longer = m.extend(max_length=21)
    assert longer.max_length == 21 and build.names(longer.recipe) == "'rope_yarn' + 'logn'"
    assert build.names(tiny().extend(max_length=20).recipe) == "'hierarchical'"


def test_options_may_be_arrays():
    factors = {"name": "rope_longrope", "long_factor": np.arange(1.0, 5.0)}
    one, two = (tiny().extend(position=p) for p in (factors, {**factors, "long_factor": jnp.arange(1.0, 5.0)}))
    assert one.recipe == two.recipe and hash(one.recipe) == hash(two.recipe)
    assert one.recipe == tiny().extend(position={**factors, "long_factor": [1.0, 2.0, 3.0, 4.0]}).recipe
    assert one.extend(position=factors).recipe == one.recipe


def test_a_default_spelled_out_is_still_the_default(tmp_path):
    model.initialise(config(), ("mlm",)).extend(attention={"name": "full", "causal": False}).save_pretrained(tmp_path / "m")
    assert (tmp_path / "m/model.safetensors").is_file()


def test_a_pattern_without_a_hook_is_refused_by_name(monkeypatch):
    keep = lambda q, k, layer, total: jnp.ones((1, 1, 1, 1), bool)  # noqa: E731
    linear = AttentionPattern(keep, dense(keep), hooks=frozenset({"rotate"}))
    monkeypatch.setattr("lpe.attention.full.make", lambda cfg: linear)
    build.network(tiny().recipe._replace(position=build.positions({"name": "rope"})))
    with pytest.raises(ValueError, match="position 'alibi' needs the hook 'logits', which attention 'full' does not have"):
        build.network(tiny().recipe._replace(position=build.positions({"name": "alibi"})))


def test_what_the_weights_were_not_trained_for_is_said(caplog):
    with caplog.at_level(logging.WARNING, "lpe"):
        tiny().extend(position={"name": "rope_yarn"})
        assert "position 'rope_yarn' in place of 'learned': the weights were not trained with it" in caplog.text
        assert "and position/table is left out" in caplog.text
        caplog.clear()
        tiny().extend(position=[{"name": "learned"}, {"name": "alibi"}])
        assert "'learned' + 'alibi' in place of 'learned'" in caplog.text and "left out" not in caplog.text
        caplog.clear()
        rotary = tiny().extend(position={"name": "rope"})
        caplog.clear()
        rotary.extend(position={"name": "alibi"})
        assert "position 'alibi' in place of 'rope': the weights were not trained with it; they need" in caplog.text
        caplog.clear()
        tiny().extend(max_length=30)
        assert not caplog.text


def test_what_is_drawn_anew_depends_on_the_seed_and_stays_with_the_model():
    one, two = (tiny().extend(position={"name": "shaw"}, seed=seed) for seed in (0, 1))
    assert np.abs(one.params["position"]["relative_key"] - two.params["position"]["relative_key"]).max() > 0.1
    again = one.extend(position=[{"name": "shaw"}, {"name": "logn"}])
    np.testing.assert_array_equal(again.params["position"]["relative_key"], one.params["position"]["relative_key"])
    with pytest.raises(ValueError, match=r"relative_key has shape \(1, 33, 8\), these options need \(1, 7, 8\)"):
        one.extend(position={"name": "shaw", "clip": 3})


def test_a_table_that_was_left_out_is_missed_by_name():
    with pytest.raises(ValueError, match="positions.hierarchical: this model has no trained position table to read"):
        tiny().extend(position={"name": "rope"}).extend(position={"name": "hierarchical"}, max_length=20)


@pytest.mark.parametrize("position", [{"name": "rope"}, [{"name": "learned"}, {"name": "alibi"}], {"name": "t5"}])
def test_what_no_stock_class_has_is_not_saved_as_one(position, tmp_path):
    m = tiny().extend(position=position)
    for act in (lambda: m.save_pretrained(tmp_path / "m"), m.position_table):
        with pytest.raises(ValueError, match="acts within attention, and no stock bert class does so"):
            act()
    assert not (tmp_path / "m").exists()
    causal = tiny().extend(attention={"name": "full", "causal": True})
    with pytest.raises(ValueError, match="attention .*causal.* has no stock class that lpe writes"):
        causal.save_pretrained(tmp_path / "m")


def test_sinusoidal_positions_are_saved_as_a_table(tmp_path):
    m = model.initialise(config(), ("mlm",)).extend(max_length=20, position={"name": "sinusoidal"})
    m.save_pretrained(tmp_path / "m")
    again = lpe.from_pretrained(tmp_path / "m")
    batch = {"input_ids": np.arange(1, 19)[None]}
    np.testing.assert_allclose(again.encode(batch), m.encode(batch), atol=1e-5)
    with pytest.raises(ValueError, match="'sinusoidal' has no limit; give one"):
        tiny().extend(position={"name": "sinusoidal"}).save_pretrained(tmp_path / "n")
