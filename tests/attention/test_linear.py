"""Linear attention: the paper's equations in float64, its recurrent form, rotations as complex numbers, what has no effect."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lpe import linear as maps
from lpe import model, registry
from lpe.attention import linear

from .common import CFG, N, compare, equal, make, operands, run, segments, small_blocks, toks, with_gradient

VARIANTS = [{}, {"causal": True}]


def phi(x: np.ndarray) -> np.ndarray:
    """elu(x) + 1."""
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0))) + 1


def same(x: np.ndarray, place: int) -> np.ndarray:
    return x


def turned(x: np.ndarray, place: int) -> np.ndarray:
    """Channels (0, 1), (2, 3) … as complex numbers, each turned by place · 10000^(−2k/H)."""
    z = x[0::2] + 1j * x[1::2]
    z = z * np.exp(1j * place * 10000.0 ** (-2 * np.arange(len(z)) / len(x)))
    return np.stack([z.real, z.imag], -1).reshape(-1)


def equation(ops, segment, causal=False, turn=same, below=same, feature=phi, value=same) -> np.ndarray:
    """Σ_s (turn φ(q_t) · turn φ(k_s)) value(v_s) / Σ_s (below φ(q_t) · below φ(k_s)), pair by pair in float64."""
    q, k, v = (np.asarray(ops[n], np.float64) for n in "qkv")
    place = np.asarray(toks(segment).position)
    out = np.zeros(q.shape)
    for b, t, n in np.ndindex(*q.shape[:3]):
        top, total = np.zeros(q.shape[3]), 0.0
        for s in np.flatnonzero((segment[b] == segment[b, t]) & (segment[b] > 0)):
            if s <= t or not causal:
                qf, kf = feature(q[b, t, n]), feature(k[b, s, n])
                top += (turn(qf, place[b, t]) @ turn(kf, place[b, s])) * value(v[b, s, n], place[b, s])
                total += below(qf, place[b, t]) @ below(kf, place[b, s])
        out[b, t, n] = top / total if total else 0
    return out


def rope(**kw):
    return registry.make("positions", {"name": "rope", "layout": "interleaved", **kw}, CFG)


def both(spec: dict, ops: dict, segment: np.ndarray, **kw) -> list[jax.Array]:
    """The fast path, with several chunks, and the reference."""
    pattern, tok = make({"name": "linear", **spec}), toks(segment)
    return jax.jit(lambda ops: [run(f, ops, tok, **kw) for f in (pattern.attend, pattern.reference)])(ops)


@pytest.mark.parametrize("causal", [False, True])
def test_values_equal_the_equation(causal, monkeypatch):
    """And whatever is wrong in it shows: a map without + 1, one after a scale, documents that meet."""
    small_blocks(monkeypatch)
    segment = segments(13)
    ops = operands(make({"name": "linear"}), segment.shape)
    want = equation(ops, segment, causal)
    for out in both({"causal": causal}, ops, segment):
        equal(out, want, 2e-6)
    wrong = [
        equation(ops, segment, causal, feature=lambda x: np.maximum(x, 0) + 1e-9),
        equation(ops, segment, causal, feature=lambda x: phi(x * CFG.attention_scale)),
        equation(ops, segment, not causal),
        equation(ops, (segment > 0).astype(int), causal),
    ]
    for other in wrong:
        with pytest.raises(AssertionError, match="differs by"):
            equal(other, want, 1e-2)


def test_the_causal_form_is_the_recurrent_one(monkeypatch):
    """s_t = s_{t−1} + φ(k_t) v_tᵀ, z_t = z_{t−1} + φ(k_t), out_t = φ(q_t)ᵀ s_t / φ(q_t)ᵀ z_t (eqs. 18-20)."""
    small_blocks(monkeypatch)
    ops, segment = operands(make({"name": "linear"}), (1, 37)), np.ones((1, 37), int)
    q, k, v = (np.asarray(ops[n], np.float64)[0] for n in "qkv")
    want = np.zeros(q.shape)
    for n in range(N):
        s, z = np.zeros((q.shape[2], q.shape[2])), np.zeros(q.shape[2])
        for t in range(37):
            s, z = s + np.outer(phi(k[t, n]), v[t, n]), z + phi(k[t, n])
            want[t, n] = phi(q[t, n]) @ s / (phi(q[t, n]) @ z)
    for out in both({"causal": True}, ops, segment):
        equal(out[0], want, 2e-6)


@pytest.mark.parametrize("causal", [False, True])
def test_rotary_positions_turn_the_features_in_the_numerator_only(causal, monkeypatch):
    small_blocks(monkeypatch)
    segment = segments(13)
    ops = operands(make({"name": "linear"}), segment.shape)
    want = equation(ops, segment, causal, turn=turned)
    for out in both({"causal": causal}, ops, segment, position=rope()):
        equal(out, want, 2e-6)
    wrong = [
        equation(ops, segment, causal, turn=turned, below=turned),
        equation(
            {n: np.apply_along_axis(np.roll, -1, x, 1) for n, x in ops.items() if n in "qkv"}, segment, causal, turn=turned
        ),
        equation(ops, segment, causal),
    ]
    for other in wrong:
        with pytest.raises(AssertionError, match="differs by"):
            equal(other, want, 1e-2)


def test_turned_values_are_not_turned_back(monkeypatch):
    small_blocks(monkeypatch)
    segment = segments(13)
    ops = operands(make({"name": "linear"}), segment.shape)
    want = equation(ops, segment, turn=turned, value=turned)
    for out in both({}, ops, segment, position=rope(rotary_value=True)):
        equal(out, want, 2e-6)


@pytest.mark.parametrize(
    "position, factor",
    [
        ({"name": "logn", "original_max_position_embeddings": 3}, np.log(13) / np.log(3)),
        ({"name": "rope_yarn", "factor": 8.0, "original_max_position_embeddings": 512}, (0.1 * np.log(8) + 1) ** 2),
    ],
)
def test_what_scales_queries_multiplies_the_output(position, factor):
    """Said in the docstring: no weight gets sharper by it."""
    segment, ops = np.ones((1, 13), int), operands(make({"name": "linear"}), (1, 13))
    method = registry.make("positions", position, CFG)
    plain = method if position["name"] == "logn" else registry.make("positions", {**position, "attention_factor": 1.0}, CFG)
    without = {"position": plain} if position["name"] != "logn" else {}
    for scaled, out in zip(both({}, ops, segment, position=method), both({}, ops, segment, **without), strict=True):
        equal(scaled, factor * np.asarray(out), 2e-6)


def test_neither_the_scale_of_the_weights_nor_dropout_has_an_effect():
    pattern, segment = make({"name": "linear"}), segments(13)
    ops, tok = operands(pattern, segment.shape), toks(segment)
    for f in (pattern.attend, pattern.reference):
        plain = run(f, ops, tok)
        scaled = run(lambda p, call, f=f: f(p, call._replace(scale=0.01)), ops, tok)
        np.testing.assert_array_equal(scaled, plain)
        np.testing.assert_array_equal(run(f, ops, tok, drop=maps.Dropout(0.5, jax.random.key(0))), plain)


@pytest.mark.parametrize("spec", VARIANTS)
def test_documents_of_any_length_and_holes_of_any_length(spec, monkeypatch):
    """Holes longer than a chunk, within documents and between them; chunks with many documents."""
    small_blocks(monkeypatch)
    rng, rows = np.random.default_rng(0), []
    for longest in (1, 3, 9, 30):
        row = np.repeat(np.arange(1, 62), rng.integers(1, longest + 1, 61))[:61]
        for start, count in zip(rng.integers(0, 61, 4), (1, 2, 7, 13), strict=True):
            row[start : start + count] = 0
        rows.append(row)
    segment = np.stack(rows)
    pattern = make({"name": "linear", **spec})
    ops, tok = operands(pattern, segment.shape), toks(segment)
    for position in (None, rope()):
        compare(pattern, ops, tok, layer_count=1, **({"position": position} if position else {}))
    equal(run(pattern.attend, ops, tok), equation(ops, segment, spec.get("causal", False)), 2e-6)


@pytest.mark.parametrize("spec", VARIANTS)
def test_bfloat16_keeps_sums_in_float32(spec):
    """Long enough that sums in bfloat16 would stand still: 300 features of about 1 are more than 8 bits hold."""
    pattern, segment = make({"name": "linear", **spec}), np.ones((1, 600), int)
    ops, tok = operands(pattern, segment.shape), toks(segment)
    low = {n: x.astype(jnp.bfloat16) if n in "qkv" else x for n, x in ops.items()}
    got, want = jax.jit(lambda low, ops: [run(pattern.attend, x, tok) for x in (low, ops)])(low, ops)
    assert got.dtype == jnp.bfloat16
    assert np.abs(np.asarray(got, np.float64) - np.asarray(want)).max() < 0.03


def test_small_features_have_finite_gradients():
    """The total of a query at −60 is 1e-26, whose square is no float32."""
    pattern, segment = make({"name": "linear"}), np.ones((1, 9), int)
    ops, tok = operands(pattern, segment.shape), toks(segment)
    ops |= {"q": ops["q"] - 60}
    for f in (pattern.attend, pattern.reference):
        found = jax.jit(lambda ops, f=f: with_gradient(f, ops, tok))(ops)
        assert all(bool(jnp.isfinite(x).all()) for x in jax.tree.leaves(found))
        assert np.abs(found["q"]).max() > 1e-3


@pytest.mark.parametrize("value", [1, "yes", None])
def test_a_causal_that_is_none_is_refused(value):
    with pytest.raises(ValueError, match=r"attention\.linear: causal=.*allowed are False, True"):
        linear.make(CFG, causal=value)


def test_keys_of_other_shapes_are_refused():
    pattern, tok = make({"name": "linear"}), toks(np.ones((1, 4), int))
    short = jax.tree.map(lambda x: x[:, :3], tok)
    with pytest.raises(ValueError, match=r"attention.linear is for self-attention, not \(1, 4\) queries on \(1, 3\) keys"):
        run(lambda p, call: pattern.attend(p, call._replace(k_tok=short)), operands(pattern, (1, 4)), tok)


def test_a_model_has_no_global_tokens_and_no_option_that_is_not_there():
    base = model.initialise(CFG, ())
    with pytest.raises(ValueError, match="attention.linear has no option 'feature'.*causal"):
        base.extend(attention={"name": "linear", "feature": "elu"})
    m = base.extend(attention={"name": "linear"})
    ids = np.ones((1, 6), int)
    with pytest.raises(ValueError, match="global_attention_mask, and this attention pattern no global tokens"):
        m.encode({"input_ids": ids, "global_attention_mask": ids})
