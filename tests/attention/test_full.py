"""The dense reference against a plain numpy transcription, and what it does where there is nothing to attend to."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from lpe import linear, registry, tokens
from lpe.attention import base, full
from lpe.models.bert import BertConfig
from lpe.positions.base import Bound, PositionMethod

CFG = BertConfig(hidden_size=8, num_attention_heads=2, num_hidden_layers=1, intermediate_size=16, vocab_size=11)
VARIANTS = [{}, {"causal": True}]
MASK = np.array([[1, 1, 1, 0, 0], [0, 0, 1, 1, 1], [0, 0, 0, 0, 0]])


def neutral() -> Bound:
    return Bound({}, PositionMethod({}))


def bound(rotate, logits, values) -> Bound:
    return Bound({}, PositionMethod({}, rotate=rotate, logits=logits, values=values))


def call(q, k, v, mask, **changes) -> base.Call:
    tok = tokens.from_batch({"input_ids": jnp.zeros(mask.shape, jnp.int32), "attention_mask": jnp.asarray(mask)})
    x = jnp.zeros((*mask.shape, 8))
    return base.Call(x, x, q, k, v, tok, tok, 0.5, neutral(), jnp.int32(0), linear.Dropout())._replace(**changes)


def qkv(seed: int = 0, shape=(3, 5, 2, 4)):
    return [jax.random.normal(k, shape) for k in jax.random.split(jax.random.key(seed), 3)]


def plain(q, k, v, mask, scale):
    """softmax(scale · q kᵀ) v over real keys, loop by loop, in float64."""
    out = np.zeros(q.shape)
    for b, t, n in np.ndindex(*q.shape[:3]):
        keys = np.flatnonzero(mask[b])
        if mask[b, t] and len(keys):
            e = np.exp(scale * (k[b, keys, n] @ q[b, t, n]))
            out[b, t, n] = (e / e.sum()) @ v[b, keys, n]
    return out


def test_the_mask_drawn():
    tok = tokens.from_batch({"input_ids": jnp.zeros((1, 3), jnp.int32)})
    assert full.mask(tok, tok, jnp.int32(0), 3).astype(int).tolist() == [[[[1, 1, 1], [1, 1, 1], [1, 1, 1]]]]


def test_the_causal_mask_drawn():
    tok = tokens.from_batch({"input_ids": jnp.zeros((1, 3), jnp.int32)})
    causal = registry.make("attention", {"name": "full", "causal": True}, CFG)
    assert causal.mask(tok, tok, jnp.int32(0), 3).astype(int).tolist() == [[[[1, 0, 0], [1, 1, 0], [1, 1, 1]]]]


def test_values_equal_the_transcription_and_rows_without_keys_are_zero():
    q, k, v = qkv()
    pattern = registry.make("attention", {"name": "full"}, CFG)
    got = np.asarray(jax.jit(lambda *a: pattern.reference({}, call(*a, MASK)))(q, k, v))
    want = plain(*(np.asarray(x, np.float64) for x in (q, k, v)), MASK, 0.5)
    np.testing.assert_allclose(got, want, atol=1e-6)
    assert (got[2] == 0).all()


def test_gradients_are_right_and_zero_where_nothing_is_attended():
    q, k, v = qkv()
    pattern = registry.make("attention", {"name": "full"}, CFG)

    def f(q, k, v):
        return pattern.reference({}, call(q, k, v, MASK))

    check_grads(f, (q, k, v), order=1, modes=["rev"], atol=2e-2, rtol=2e-2)
    grads = jax.grad(lambda *a: jnp.square(f(*a)).sum(), argnums=(0, 1, 2))(q, k, v)
    assert all(bool(jnp.isfinite(g).all()) for g in grads)
    assert all((np.asarray(g[2]) == 0).all() for g in grads)
    assert all((np.asarray(g[0, 3:]) == 0).all() for g in grads)


def test_segments_do_not_see_each_other():
    q, k, v = qkv(shape=(1, 6, 2, 4))
    both = call(q, k, v, np.ones((1, 6)))
    segment = jnp.asarray([[1, 1, 1, 2, 2, 2]])
    packed = both._replace(q_tok=both.q_tok._replace(segment=segment), k_tok=both.k_tok._replace(segment=segment))
    pattern = registry.make("attention", {"name": "full"}, CFG)
    got = pattern.reference({}, packed)
    alone = pattern.reference({}, call(q[:, 3:], k[:, 3:], v[:, 3:], np.ones((1, 3))))
    np.testing.assert_allclose(got[:, 3:], alone, atol=1e-6)


def test_the_order_is_rotate_scale_add_and_hooks_are_honoured():
    q, k, v = qkv(shape=(1, 4, 2, 4))
    bias = jax.random.normal(jax.random.key(5), (1, 2, 4, 4))
    hooks = bound(
        lambda _, q, k, v, *__: (2 * q, k, v),
        lambda _, q, *__: bias + q.sum(-1).transpose(0, 2, 1)[..., None],
        lambda _, w, *__: w.sum(-1).transpose(0, 2, 1)[..., None] * jnp.ones(4),
    )
    pattern = registry.make("attention", {"name": "full"}, CFG)
    got = pattern.reference({}, call(q, k, v, np.ones((1, 4)), position=hooks))
    logits = jnp.einsum("btnh,bsnh->bnts", q, k) + bias + q.sum(-1).transpose(0, 2, 1)[..., None]  # 2 · 0.5 = 1
    want = jnp.einsum("bnts,bsnh->btnh", jax.nn.softmax(logits), v) + 1.0
    np.testing.assert_allclose(got, want, atol=1e-5)


def test_softmax_is_float32_in_bfloat16():
    q, k, v = (x.astype(jnp.bfloat16) for x in qkv(shape=(1, 5, 2, 4)))
    pattern = registry.make("attention", {"name": "full"}, CFG)
    got = pattern.reference({}, call(q, k, v, np.ones((1, 5))))
    assert got.dtype == jnp.bfloat16
    want = plain(*(np.asarray(x, np.float64) for x in (q, k, v)), np.ones((1, 5)), 0.5)
    np.testing.assert_allclose(np.asarray(got, np.float64), want, atol=0.02)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_the_fast_path_equals_the_reference_in_value_and_gradient(dtype):
    """With all hooks, dropout, padding, one key alone, and a row without keys."""
    q, k, v = (x.astype(dtype) for x in qkv(shape=(4, 5, 2, 4)))
    mask = np.concatenate([MASK, [[1, 0, 0, 0, 0]]])
    bias = jax.random.normal(jax.random.key(5), (1, 2, 5, 5))
    hooks = bound(
        lambda _, q, k, v, *__: (2 * q, k, v),
        lambda _, q, *__: bias + q.astype(jnp.float32).sum(-1).transpose(0, 2, 1)[..., None],
        lambda _, w, *__: jnp.einsum("bnts,sh->btnh", w, jnp.arange(20.0).reshape(5, 4).astype(w.dtype)),
    )
    pattern = registry.make("attention", {"name": "full"}, CFG)
    drop = linear.Dropout(0.3, jax.random.key(1))

    def both(run):
        def loss(q, k, v):
            out = run({}, call(q, k, v, mask, position=hooks, dropout=drop))
            return jnp.square(out.astype(jnp.float32)).sum(), out

        grads, out = jax.jit(jax.grad(loss, argnums=(0, 1, 2), has_aux=True))(q, k, v)
        assert all(x.dtype == dtype for x in (out, *grads))
        return [np.asarray(x, np.float64) for x in (out, *grads)]

    for got, want in zip(both(pattern.attend), both(pattern.reference), strict=True):
        assert np.abs(want).max() > 0.1
        np.testing.assert_allclose(got, want, atol=(1e-5 if dtype == jnp.float32 else 0.03) * np.abs(want).max())


def test_an_unknown_pattern_is_refused_by_name():
    with pytest.raises(ValueError, match="no method 'ful'; did you mean 'full'"):
        registry.make("attention", {"name": "ful"}, CFG)
