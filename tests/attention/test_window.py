"""Windows: masks drawn, a transcription key by key, the reach of a whole model, dropout in blocks, bad options."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lpe import build, linear, model
from lpe.attention import window
from lpe.models.bert import BertConfig

from .common import CFG, N, compare, equal, hidden, make, operands, plain, run, segments, small_blocks, some_global, toks

VARIANTS = [
    {"attention_window": 6},
    {"attention_window": 7, "global_tokens": "explicit", "global_capacity": 3},
    {"attention_window": 9, "causal": True, "dilation": [1, [1, 1, 2, 2]]},
    {"attention_window": [4, 30], "dilation": [[1, 1, 2, 2], 1], "global_tokens": "cls", "global_capacity": 6},
    {"attention_window": 8, "right": 2},
    {"attention_window": 300},
]


def drawn(length: int, *, layer: int = 0, head: int = 0, at: tuple[int, ...] = (), **kw) -> list[str]:
    """The mask as rows of 0 and 1, with global tokens at the places `at`."""
    pattern = make({"name": "window", **kw, **({"global_tokens": "explicit"} if at else {})})
    tok = toks(np.ones((1, length), int), pattern, np.isin(np.arange(length), at).astype(int)[None])
    mask = np.broadcast_to(pattern.mask(tok, tok, jnp.int32(layer), length), (1, N, length, length))
    return ["".join(map(str, row)) for row in mask[0, head].astype(int)]


def test_an_odd_window_keeps_w_keys_and_an_even_one_one_more():
    assert drawn(5, attention_window=1) == ["10000", "01000", "00100", "00010", "00001"]
    assert drawn(5, attention_window=2) == drawn(5, attention_window=3) == ["11000", "11100", "01110", "00111", "00011"]
    assert drawn(5, attention_window=4) == ["11100", "11110", "11111", "01111", "00111"]
    assert drawn(3) == ["111", "111", "111"]


def test_causal_and_look_ahead_drawn():
    assert drawn(5, attention_window=4, causal=True) == ["10000", "11000", "11100", "01110", "00111"]
    assert drawn(5, attention_window=4, right=0) == drawn(5, attention_window=5, causal=True)
    assert drawn(5, attention_window=2, right=2) == ["11100", "11110", "01111", "00111", "00011"]
    assert drawn(4, attention_window=1, right=1) == ["1100", "0110", "0011", "0001"]


def test_dilation_by_head_drawn():
    kw = {"attention_window": 3, "dilation": [[1, 2]]}
    assert drawn(5, head=0, **kw) == drawn(5, head=2, **kw) == ["11000", "11100", "01110", "00111", "00011"]
    assert drawn(5, head=1, **kw) == drawn(5, head=3, **kw) == ["10100", "01010", "10101", "01010", "00101"]
    assert drawn(5, attention_window=4, dilation=2, causal=True) == ["10000", "01000", "10100", "01010", "10101"]


def test_layers_drawn():
    kw = {"attention_window": [1, 2], "dilation": [1, 3]}
    assert drawn(4, layer=0, **kw) == ["1000", "0100", "0010", "0001"]
    assert drawn(4, layer=1, **kw) == ["1001", "0100", "0010", "1001"]


def test_a_global_token_sees_all_and_all_see_it():
    assert drawn(5, attention_window=1, at=(0,)) == ["11111", "11000", "10100", "10010", "10001"]
    assert drawn(5, attention_window=2, at=(3,)) == ["11010", "11110", "01110", "11111", "00011"]


def reach(left: int, right: int, dilation: tuple[int, ...]):
    def near(t: int, s: int, n: int) -> bool:
        steps, rest = divmod(s - t, dilation[n])
        return rest == 0 and -left <= steps <= right

    return near


@pytest.mark.parametrize(
    "kw, layers",
    [
        ({"attention_window": 5}, [reach(2, 2, (1,) * N)] * 2),
        (
            {"attention_window": 8, "right": 1, "dilation": [1, [2, 1, 2, 1]]},
            [reach(4, 1, d) for d in ((1,) * 4, (2, 1, 2, 1))],
        ),
        (
            {"attention_window": [2, 6], "dilation": [[1, 1, 3, 2], 1], "global_tokens": "explicit", "global_capacity": 3},
            [reach(1, 1, (1, 1, 3, 2)), reach(3, 3, (1,) * 4)],
        ),
    ],
)
def test_values_equal_the_transcription(kw, layers, monkeypatch):
    """The reference is no judge of itself; with global tokens, each with its separate projections."""
    small_blocks(monkeypatch)
    pattern, segment = make({"name": "window", **kw}), segments(23)
    mask = some_global(segment, pattern.capacity)
    ops, tok = operands(pattern, segment.shape), toks(segment, pattern, mask)
    both = jax.jit(lambda ops, layer: [run(f, ops, tok, layer) for f in (pattern.attend, pattern.reference)])
    for layer, near in enumerate(layers):
        want = plain(ops, segment, near, mask)
        for out in both(ops, layer):
            equal(out, want, 2e-6)


def test_many_blocks_of_the_real_size():
    """Here folded rows of dilated heads have several blocks too."""
    pattern = make({"name": "window", "attention_window": 20, "dilation": [[1, 1, 2, 3]], "global_tokens": "cls"})
    segment = np.ones((3, 517), int)
    segment[1, 331:] = segment[2, :190] = 0
    mask = np.zeros_like(segment)
    mask[[0, 1, 2], [0, 77, 516]] = 1
    compare(pattern, operands(pattern, segment.shape), toks(segment, pattern, mask), layer_count=1)


@pytest.mark.parametrize("w, kw, left, right", [(5, {}, 2, 2), (2, {"dilation": 3}, 1, 1), (7, {"causal": True}, 3, 0)])
def test_the_reach_of_a_model_is_exact(w, kw, left, right, monkeypatch):
    """Each place has a word of its own, so that the gradient of the word table says which places one output has seen."""
    small_blocks(monkeypatch)
    depth, length, step = 3, 43, kw.get("dilation", 1)
    cfg = BertConfig(
        vocab_size=length, hidden_size=8, num_hidden_layers=depth, num_attention_heads=2, intermediate_size=8,
        initializer_range=0.5, max_position_embeddings=length,
    )  # fmt: skip
    m = model.initialise(cfg, ()).extend(
        attention={"name": "window", "attention_window": w, **kw}, position={"name": "learned"}
    )
    net, batch = build.network(m.recipe), {"input_ids": jnp.arange(length)[None]}

    def seen(word, place):
        weights = {**m.params, "embeddings": {**m.params["embeddings"], "word": word}}
        out = hidden(net, weights, batch)[0][0, place]
        return (out * jnp.arange(1, 9)).sum()  # a plain sum would be constant after the layer norm

    grads = jax.jit(jax.grad(seen))
    for place in (0, 4, 21, 41):
        got = np.flatnonzero(np.abs(grads(m.params["embeddings"]["word"], place)).max(axis=1)).tolist()
        steps = range(-depth * left, depth * right + 1)
        assert got == [p for p in (place + step * s for s in steps) if 0 <= p < length]


@pytest.mark.parametrize("spec", [[1, 1], [2, 1]])
def test_dropout_draws_anew_for_each_block_and_each_group_of_heads(spec, monkeypatch):
    """All weights are equal, and values repeat with the blocks: equal draws would give equal blocks."""
    small_blocks(monkeypatch)
    pattern = make({"name": "window", "attention_window": 8, "dilation": [spec], "global_tokens": "explicit"})
    segment = np.ones((2, 160), int)
    tok = toks(segment, pattern, np.isin(np.arange(160), (3, 80))[None] * segment)
    ops = operands(pattern, segment.shape)
    value = np.random.default_rng(0).normal(0, 1, (1, 16, 1, 4))
    ops |= {"q": 0 * ops["q"], "k": 0 * ops["k"], "v": jnp.asarray(np.tile(1 + value, (2, 10, N, 1)), jnp.float32)}
    key = jax.random.key(0)

    @jax.jit
    def outs(ops, key):
        def total(ops, drop):
            out = run(pattern.attend, ops, tok, 0, drop=drop)
            return out.sum(), out

        grads, dropped = jax.grad(total, has_aux=True)(ops, linear.Dropout(0.4, key))
        return dropped, total(ops, linear.Dropout())[1], grads

    dropped, whole, grads = outs(ops, key)
    assert all(bool(jnp.isfinite(x).all()) for x in jax.tree.leaves(grads))
    blocks = np.asarray(dropped).reshape(2, 10, 16, N, 4)
    for a, b in product(range(1, 9), range(1, 9)):  # without the ends; 16 places are some whole blocks
        assert a == b or np.abs(blocks[:, a] - blocks[:, b]).max() > 0.1
    for a, b in ((0, 2), (1, 3)):
        assert np.abs(dropped[:, :, a] - dropped[:, :, b]).max() > 0.1
    assert np.abs(dropped[0] - dropped[1]).max() > 0.1
    many = jnp.stack([outs(ops, k)[0] for k in jax.random.split(key, 40)])
    np.testing.assert_allclose(many.mean(axis=(0, 1, 2, 3)), whole.mean(axis=(0, 1, 2)), rtol=0.02)
    np.testing.assert_array_equal(outs(ops, key)[0], dropped)
    equal(whole, jax.jit(lambda ops: run(pattern.reference, ops, tok))(ops))


def test_dropout_keeps_its_share():
    """With values of 1, an output is the share of weights kept, over 1 - rate; rows of global queries too."""
    pattern = make({"name": "window", "attention_window": 64, "global_tokens": "explicit"})
    segment, ones = np.ones((2, 300), int), jnp.ones((2, 300, N, 4))
    mask = np.isin(np.arange(300), (0, 17, 130))[None] * segment
    ops, tok = operands(pattern, segment.shape), toks(segment, pattern, mask)
    own = jax.tree.map(jnp.zeros_like, ops["pattern"])
    own["value_global"]["bias"] += 1
    ops |= {"q": 0 * ones, "v": ones, "pattern": own}
    out = np.asarray(jax.jit(lambda ops: run(pattern.attend, ops, tok, drop=linear.Dropout(0.25, jax.random.key(3))))(ops))
    local, far = out[mask == 0], out[mask == 1]
    # one key in 67 or so, each kept with 3/4: the share varies by √(.25 / .75 / 67) = .07 (ends: by less keys, so more)
    assert abs(local.mean() - 1) < 0.01 and 0.06 < local.std() < 0.1
    assert abs(far.mean() - 1) < 0.03 and 0.015 < far.std() < 0.06  # √(.25 / .75 / 300) = .033


WRONG = [
    *[({"attention_window": w}, "whole numbers from 1 to 1048576") for w in (0, -2, 2.0, True, "512", [4, 0])],
    ({"attention_window": [4, 4, 4]}, r"\[4, 4, 4\] has 3 values, allowed is a divisor of num_hidden_layers=2"),
    ({"attention_window": []}, "has 0 values, allowed is a divisor of num_hidden_layers=2"),
    *[({"dilation": g}, "dilation=.*whole numbers from 1 to 1024") for g in (0, -1, 1.5, 1025, [1, [1, 0]])],
    ({"dilation": [[1, 2, 3]]}, r"\[1, 2, 3\] has 3 values, allowed is a divisor of num_attention_heads=4"),
    ({"dilation": [1, 2, 1]}, "has 3 values, allowed is a divisor of num_hidden_layers=2"),
    ({"causal": 1}, "causal=1, allowed are True and False"),
    ({"right": -1}, "right=-1, allowed are whole numbers from 0"),
    ({"right": 1.0}, "right=1.0, allowed are whole numbers from 0"),
    ({"causal": True, "right": 0}, "causal=True is right=0, so right=0 must be left out"),
    ({"causal": True, "global_tokens": "cls"}, "sees no later keys, but global_tokens='cls' do; leave one out"),
    ({"right": 0, "global_tokens": "explicit"}, "sees no later keys, but global_tokens='explicit' do; leave one out"),
    ({"global_tokens": "first"}, "global_tokens='first', allowed are 'none', 'cls', 'question', 'explicit'"),
    ({"global_capacity": 3}, 'global_capacity=3 with global_tokens="none"; leave it out, or name a policy'),
    ({"global_tokens": "cls", "global_capacity": 0}, "global_capacity=0, allowed are whole numbers from 1"),
    ({"global_tokens": "cls", "global_capacity": 2.0}, "global_capacity=2.0, allowed are whole numbers from 1"),
    ({"global_tokens": "question"}, "sep_token_id=None with global_tokens='question'; question needs the id"),
    ({"global_tokens": "cls", "sep_token_id": 5}, "sep_token_id=5 with global_tokens='cls'; .*no other policy takes one"),
    ({"global_tokens": "question", "sep_token_id": -1}, "sep_token_id=-1, allowed are whole numbers from 0"),
]


@pytest.mark.parametrize("kw, message", WRONG)
def test_bad_options_are_refused(kw, message):
    with pytest.raises(ValueError, match=r"attention\.window: .*" + message):
        window.make(CFG, **kw)


@pytest.mark.parametrize("length", [9, 300])
def test_no_window_is_full_attention(length):
    """In single layers, beside others that have one, and with holes."""
    pattern, full = make({"name": "window", "attention_window": [None, 4]}), make({"name": "full"})
    segment = segments(length)
    ops, tok = operands(pattern, segment.shape), toks(segment)
    for layer, same in ((0, True), (1, False)):
        got, want = (np.asarray(run(p.attend, ops, tok, layer)) for p in (pattern, full))
        assert (np.abs(got - want).max() < 1e-5) == same
        mask = np.broadcast_to(pattern.mask(tok, tok, layer, length), (*got.shape[:1], 1, length, length))
        assert mask.all() == same


def test_keys_of_other_shapes_are_refused():
    pattern, tok = make({"name": "window"}), toks(np.ones((1, 4), int))
    short = jax.tree.map(lambda x: x[:, :3], tok)
    with pytest.raises(ValueError, match=r"attention.window is for self-attention, not \(1, 4\) queries on \(1, 3\) keys"):
        run(lambda p, call: pattern.attend(p, call._replace(k_tok=short)), operands(pattern, (1, 4)), tok)
