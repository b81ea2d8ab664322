"""What every position method keeps, found by walking the package; no method is known by name here.

The test file of a method, test_<name>.py, lists VARIANTS, settings of which any two must differ, and VALUES, settings with
the reference of what they give (common.compare).
"""

import dataclasses
import importlib
from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from lpe import build, model, params, registry
from lpe.positions.base import hooks

from .claims import CLAIMS, base, encode
from .common import D, N, adopted, at, compare, config, heads_of, of_layer, options, placed, table, token_ids

NAMES = registry.names("positions")
TESTS = {name: importlib.import_module(f".test_{name}", __package__) for name in NAMES}
VARIANTS = [(name, kw) for name in NAMES for kw in TESTS[name].VARIANTS]
VALUES = [(name, kw, want) for name in NAMES for kw, want in TESTS[name].VALUES]


def make(name: str):
    return registry.load("positions", name).make


def extended(name: str, kw: dict, dtype: str = "float32") -> model.Model:
    causal = "causal_only" in make(name)(config(), **kw).claims
    m = base().extend(position={"name": name, **kw}, attention={"name": "full", "causal": True} if causal else None)
    return dataclasses.replace(m, recipe=m.recipe._replace(dtype=dtype))


def span(limit: int | None) -> int:
    """A length beyond the trained rows, where the method goes there."""
    return 2 * N + 3 if limit is None else min(limit, 2 * N + 3)


def ids(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).integers(1, 20, shape)


def batch_of(m: model.Model) -> dict[str, np.ndarray]:
    """A short sequence padded left, the same padded right, a longer one so, and a full one. One shape for all tests."""
    size = span(m.max_length)
    x, mask = np.zeros((5, size), int), np.zeros((5, size), int)
    for i, length in ((0, 5), (2, size - 2)):
        x[i, -length:] = x[i + 1, :length] = ids(length)
        mask[i, -length:] = mask[i + 1, :length] = 1
    x[4], mask[4] = ids(size), 1
    return {"input_ids": x, "attention_mask": mask}


@pytest.mark.parametrize("name", NAMES)
def test_defaults_suffice(name):
    m = extended(name, {})
    params.check(build.network(m.recipe).specs, m.params)
    assert np.isfinite(m.encode(batch_of(m))).all()
    assert all(p.dtype == jnp.float32 for p in jax.tree.leaves(m.params.get("position", {})))


@pytest.mark.parametrize("name, kw, want", VALUES)
def test_values(name, kw, want):
    compare(make(name), kw, want)


@pytest.mark.parametrize("name, kw", [v for v in VARIANTS if "materialize" in options(make(v[0]))])
def test_free_rows_hold_the_same_vectors(name, kw):
    P, kw = table(2), {**kw, "max_length": 13}
    rule, shared = adopted(make(name), P, 2, **kw)
    free, got = adopted(make(name), P, 2, **kw, materialize=True)
    np.testing.assert_allclose(at(free, got, np.arange(13)), at(rule, shared, np.arange(13)), rtol=0, atol=1e-6)
    np.testing.assert_array_equal(got["table"][:2], P[:2])


@pytest.mark.parametrize("name, kw", VARIANTS)
def test_rows_say_where_each_parameter_comes_from(name, kw):
    P = table(2)
    for free in [{}, {"max_length": 13, "materialize": True}] if "materialize" in options(make(name)) else [{}]:
        method, got = adopted(make(name), P, 2, **{**kw, **free})
        for path, array in got.items() if method.rows is not None else ():
            assert method.rows.dtype == np.int32 and method.rows.shape == array.shape[:1] == method.specs[path].shape[:1]
            kept = method.rows >= 0
            np.testing.assert_allclose(array[kept], P[method.rows[kept]], rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_jit_equals_eager_and_bfloat16_is_near(name):
    m, m16 = extended(name, {}), extended(name, {}, "bfloat16")
    batch = jax.tree.map(jnp.asarray, batch_of(m))
    eager, _ = build.network(m.recipe).encode(m.params, batch)
    np.testing.assert_allclose(m.encode(batch), eager, rtol=0, atol=1e-5)
    assert jax.eval_shape(build.network(m16.recipe).encode, m.params, batch)[0].dtype == jnp.bfloat16
    np.testing.assert_allclose(m16.encode(batch), eager, rtol=0, atol=0.1)


@pytest.mark.parametrize("name", NAMES)
def test_gradients(name):
    m = extended(name, {})
    batch = jax.tree.map(jnp.asarray, batch_of(m))
    weight = jax.random.normal(jax.random.key(2), (*batch["input_ids"].shape, D))

    @jax.jit
    def loss(position, word):
        tree = {**m.params, "position": position, "embeddings": {**m.params["embeddings"], "word": word}}
        return (build.network(m.recipe).encode(tree, batch)[0] * weight).sum() / 20

    word = m.params["embeddings"]["word"]
    check_grads(loss, (m.params.get("position", {}), word), order=1, modes=["rev"], eps=1e-2, atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize("name", NAMES)
def test_padding_changes_nothing_for_real_tokens(name):
    m = extended(name, {})
    batch = batch_of(m)
    out = m.encode(batch)
    assert np.isfinite(out).all()
    for i in (0, 2):
        length = batch["attention_mask"][i].sum()
        np.testing.assert_allclose(out[i, -length:], out[i + 1, :length], rtol=0, atol=1e-5)
    np.testing.assert_allclose(out[1, :5], m.encode({"input_ids": batch["input_ids"][1:2, :5]})[0], rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_other_settings_are_another_method(name):
    models = [extended(name, kw) for kw in TESTS[name].VARIANTS]
    assert len(models) > 1 or not options(make(name))
    for a, b in combinations(models, 2):
        if a.max_length == b.max_length:
            assert np.abs(a.encode(batch_of(a)) - b.encode(batch_of(b))).max() > 1e-4


@pytest.mark.parametrize("name", NAMES)
def test_equal_models_share_one_compilation(name):
    one, two = extended(name, {}), extended(name, {})
    one.encode(batch_of(one))
    before = model._run._cache_size()
    one.encode(batch_of(one)), two.encode(batch_of(two))
    assert model._run._cache_size() == before


@pytest.mark.parametrize("name, kw", VARIANTS)
def test_every_position_is_finite_and_the_next_refused(name, kw):
    for reserved in (0, 2):
        method, got = adopted(make(name), table(reserved), reserved, **kw)
        limit = method.max_length or 5 * N * N
        assert np.isfinite(at(method, got, np.arange(limit))).all()
    if method.max_length is None:
        return
    vectors = at(method, got, [-1, limit, limit + 1, 0], length=limit)
    touched = at(method, got, [0], length=limit).any()  # a method that embeds nothing is held by the encoder alone
    assert not touched or (np.isnan(vectors[:3]).all() and np.isfinite(vectors[3]).all())
    m = extended(name, kw)
    with pytest.raises(ValueError, match=f"{limit + 1} tokens is longer than the {limit} positions of '{name}'"):
        m.encode({"input_ids": ids(1, limit + 1)})
    with pytest.raises(ValueError, match="longer than"):
        m.encode({"input_ids": ids(1, 1), "position_ids": np.array([[limit]])})


@pytest.mark.parametrize("name", [n for n in NAMES if "max_length" in options(make(n))])
@pytest.mark.parametrize("value", [0, -3, 2**31, 12.0, True, "12"])
def test_a_length_that_is_none_is_refused(name, value):
    with pytest.raises(ValueError, match=rf"positions\.{name}: max_length=.*allowed are whole numbers from \d+ to \d+"):
        make(name)(config(), max_length=value)


@pytest.mark.parametrize("name", [n for n in NAMES if "trained_rows" in options(make(n))])
def test_extending_from_the_trained_part(name):
    fresh = 0.5 * np.random.default_rng(3).normal(size=(12, 512)).astype(np.float32)
    P = np.concatenate([table(2, 20, 512, seed=4) * 3, fresh])
    with pytest.warns(UserWarning, match=f'rows 20 to 31 of this table look untrained.*\'?{name}.*"trained_rows": 20'):
        adopted(make(name), P, 2, max_length=40)
    method, got = adopted(make(name), P, 2, max_length=40, trained_rows=20)
    short, want = adopted(make(name), P[:22], 2, max_length=40)
    np.testing.assert_array_equal(at(method, got, np.arange(40)), at(short, want, np.arange(40)))
    np.testing.assert_array_equal(got["table"][:22], P[:22])
    for value in (0, 33, 2.0, True):
        with pytest.raises(ValueError, match=f"trained_rows={value}, allowed are whole numbers from 1 to 32"):
            adopted(make(name), P, 2, trained_rows=value)


@pytest.mark.parametrize("name", [n for n in NAMES if "materialize" in options(make(n))])
def test_free_rows_are_parameters_of_their_own(name):
    with pytest.raises(ValueError, match="materialize=True needs max_length"):
        make(name)(config(), materialize=True)
    with pytest.raises(ValueError, match="materialize=1, allowed are True and False"):
        make(name)(config(), max_length=20, materialize=1)
    method, got = adopted(make(name), table(2), 2, max_length=20, materialize=True)
    assert got["table"].shape[0] >= 22

    def total(p):
        return method.embed(p, jnp.zeros((1, 20, D)), token_ids(20)).sum()

    np.testing.assert_array_equal(jax.grad(total)(got)["table"][2:22], 1.0)


@pytest.mark.parametrize("name, kw", VARIANTS)
def test_claims_hold(name, kw):
    claimed = make(name)(config(), **kw).claims
    for claim in claimed:
        CLAIMS[claim](make(name), kw)
    for claim in {
        "length_dependent",
        "direction_blind",
        "relative",
        "reads_query",
    } - claimed:  # these are said wherever they hold
        if "query_scale" not in claimed:
            with pytest.raises(AssertionError):
                CLAIMS[claim](make(name), kw)


@pytest.mark.parametrize("name, kw", VARIANTS)
def test_a_shuffle_of_positions_changes_the_result(name, kw):
    method = make(name)(config(), **kw)
    places = np.arange(5)
    shuffled = np.array([1, 3, 0, 4, 2])
    change = np.abs(encode(make(name), kw, places) - encode(make(name), kw, shuffled)).max()
    assert (change > 1e-4) == ("query_scale" not in method.claims)


@pytest.mark.parametrize("name", NAMES)
def test_a_row_knows_neither_its_batch_nor_the_calls_before(name):
    m = extended(name, {})
    batch = batch_of(m)
    before = m.encode(batch)
    others = {k: np.concatenate([x[:1], x[[4, 4, 3, 4]]]) for k, x in batch.items()}
    np.testing.assert_allclose(m.encode(others)[0], before[0], rtol=0, atol=1e-6)
    np.testing.assert_array_equal(m.encode(batch), before)


@pytest.mark.parametrize("name", NAMES)
def test_bfloat16_leaves_angles_and_logits_in_float32(name):
    """At far positions bfloat16 angles would be wrong by radians, and logits by more than their own rounding."""
    method, params = adopted(make(name), table(), **{k: 4100 for k in ("max_length",) if k in far_options(name)})
    places = np.array([0, 4001, 4099]) if hooks(method) - {"embed"} else np.arange(3)
    tok, low = placed(places, 4100), [jnp.asarray(x, jnp.bfloat16) for x in heads_of(0, 3)]
    high, layer = [x.astype(jnp.float32) for x in low], of_layer(method, params)
    for a, b in zip(method.rotate(layer, *low, tok, tok), method.rotate(layer, *high, tok, tok), strict=True):
        assert a.dtype == jnp.bfloat16
        np.testing.assert_allclose(a.astype(jnp.float32), b, rtol=2**-7, atol=2**-7 * float(jnp.abs(b).max()))
    got, want = (method.logits(layer, x[0], tok, tok, slice(0, 2)) for x in (low, high))
    if want is not None:
        assert got.dtype == jnp.float32
        np.testing.assert_allclose(got, want, rtol=0, atol=2**-6 * float(jnp.abs(want).max()))


def far_options(name: str) -> set[str]:
    """Options that a method takes and that do not bring it to its limit."""
    return options(make(name)) if name not in table_methods() else set()


def table_methods() -> set[str]:
    return {n for n in NAMES if "table" in make(n)(config()).specs}


@pytest.mark.parametrize("name", NAMES)
def test_blocks_and_heads_give_what_the_whole_gives(name):
    """Patterns call the hooks for blocks of queries and keys, and for some heads."""
    method, params = adopted(make(name), table())
    layer = of_layer(method, params)
    cut = lambda tree, part: jax.tree.map(lambda x: x[:, part], tree)  # noqa: E731
    for positions in (np.arange(19), np.random.default_rng(0).permutation(40)[:19]):
        tok, (q, k, v) = placed(positions), map(jnp.asarray, heads_of(0, 19))
        rows, columns, second = slice(4, 9), slice(2, 17), slice(1, 2)
        whole = method.rotate(layer, q, k, v, tok, tok)
        part = method.rotate(layer, q[:, rows], k[:, columns], v[:, columns], cut(tok, rows), cut(tok, columns))
        for a, b, cols in zip(part, whole, (rows, columns, columns), strict=True):
            np.testing.assert_allclose(a, b[:, cols], rtol=0, atol=1e-5)
        want = method.logits(layer, q, tok, tok, slice(0, 2))
        got = method.logits(layer, q[:, rows, second], cut(tok, rows), cut(tok, columns), second)
        if want is not None:
            np.testing.assert_allclose(got, want[:, second, rows, columns], rtol=0, atol=1e-5)
        weights = jax.nn.softmax(jnp.asarray(heads_of(1, 19)[0]).reshape(1, 2, 8, 19)[:, :, :5], axis=-1)
        want = method.values(layer, weights, cut(tok, rows), tok, slice(0, 2))
        halves = [
            method.values(layer, weights[..., c], cut(tok, rows), cut(tok, c), slice(0, 2)) for c in (slice(0, 7), slice(7, 19))
        ]
        if want is not None:
            np.testing.assert_allclose(halves[0] + halves[1], want, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_no_array_is_larger_than_the_logits(name):
    """Relative terms are for pairs: nothing of [T, T, H] is there, forwards or backwards."""
    m = extended(name, {k: 288 for k in ("max_length",) if k in far_options(name)})
    length = min(288, m.max_length or 288)
    batch = {"input_ids": jnp.ones((1, length), jnp.int32)}

    def loss(weights):
        return build.network(m.recipe).encode(weights, batch)[0].sum()

    heads, head_dim = m.config.num_attention_heads, m.config.head_dim
    largest = max(sizes(jax.make_jaxpr(jax.grad(loss))(m.params).jaxpr))
    # An index array of a gather may hold a number or two per pair and head.
    assert largest <= 2 * heads * length * length < head_dim * length * length or length < 288


def sizes(jaxpr) -> list[int]:
    """Elements of every array that a program makes, also within loops and branches."""
    found = [v.aval.size for e in jaxpr.eqns for v in e.outvars if hasattr(v.aval, "size")]
    for e in jaxpr.eqns:
        for p in jax.tree.leaves(list(e.params.values()), is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")):
            inner = getattr(p, "jaxpr", p)
            if hasattr(inner, "eqns"):
                found += sizes(inner)
    return found
