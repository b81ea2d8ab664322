"""The star: its mask drawn, a transcription of its topology in float64, small documents, holes, relays without room."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lpe import build, linear, model, tokens
from lpe.attention import star
from lpe.tokens import Tokens

from .common import CFG, SCALE, N, compare, equal, hidden, make, operands, run, segments

VARIANTS = [{"global_capacity": 3}, {"global_capacity": 4, "closed": False}]


def marked(pattern, **batch) -> Tokens:
    arrays = {k: jnp.asarray(x) for k, x in batch.items()}
    arrays["input_ids"] = jnp.zeros(next(iter(arrays.values())).shape, jnp.int32)
    return jax.jit(lambda arrays: pattern.mark(arrays, tokens.from_batch(arrays)))(arrays)


def drawn(closed: bool = True, **batch) -> list[str]:
    """Which keys each token sees, as rows of 0 and 1, documents and padding taken into account."""
    pattern = make({"name": "star", "closed": closed})
    tok = marked(pattern, **{k: np.asarray([x]) for k, x in batch.items()})
    seen = pattern.mask(tok, tok, 0, tok.index.shape[1]) & (tok.segment[:, None, :, None] == tok.segment[:, None, None, :])
    seen &= tok.segment[:, None, :, None] > 0
    return ["".join(map(str, row)) for row in np.asarray(seen[0, 0]).astype(int)]


def test_a_ring_with_a_relay_drawn():
    assert drawn(attention_mask=[1] * 6) == ["111111", "111001", "111100", "101110", "100111", "110011"]
    assert drawn(False, attention_mask=[1] * 6) == ["111111", "111000", "111100", "101110", "100111", "100011"]


def test_small_documents_drawn():
    assert drawn(attention_mask=[1]) == ["1"]
    assert drawn(attention_mask=[1, 1]) == ["11", "11"]
    assert drawn(attention_mask=[1] * 3) == drawn(False, attention_mask=[1] * 3) == ["111"] * 3
    assert drawn(attention_mask=[1] * 4) == ["1111"] * 4
    assert drawn(False, attention_mask=[1] * 4) == ["1111", "1110", "1111", "1011"]


def test_padding_holes_and_documents_drawn():
    assert drawn(attention_mask=[0, 1, 1, 1, 1, 1, 0]) == [
        "0000000", "0111110", "0111010", "0111100", "0101110", "0110110", "0000000",
    ]  # fmt: skip
    holes = ["1011101", "0000000", "1011001", "1011100", "1001101", "0000000", "1010101"]
    assert drawn(attention_mask=[1, 0, 1, 1, 1, 0, 1]) == holes  # 3 and 4 are neighbours, 4 and 6 too, and 6 and 2
    assert drawn(segment_ids=[2, 2, 2, 2, 2, 0, 1, 1]) == [
        "11111000", "11101000", "11110000", "10111000", "11011000", "00000000", "00000011", "00000011",
    ]  # fmt: skip


def test_position_ids_are_not_looked_at():
    plain = drawn(attention_mask=[1] * 6)
    assert drawn(attention_mask=[1] * 6, position_ids=[7, 3, 3, 9, 0, 1]) == plain


def test_marking_leaves_what_has_no_holes_as_it_was():
    """Only relays are new; index and length change where a token within a document is masked."""
    batch = {"segment_ids": jnp.asarray([[0, 3, 3, 3, 1, 1, 0, 0, 2]]), "input_ids": jnp.zeros((1, 9), jnp.int32)}
    before = tokens.from_batch(batch)
    after = star.mark(batch, before)
    assert after.is_global.astype(int).tolist() == [[0, 1, 0, 0, 1, 0, 0, 0, 1]]
    jax.tree.map(np.testing.assert_array_equal, after._replace(is_global=before.is_global), before)
    tok = marked(make({"name": "star"}), attention_mask=[[0, 1, 0, 1, 1, 0, 0, 1, 0]])
    assert tok.index.tolist() == [[0, 1, 1, 2, 3, 3, 3, 4, 5]] and tok.length.tolist() == [[4] * 9]


def neighbours(satellites: list[int], i: int, closed: bool) -> list[int]:
    """The places before and after the i-th satellite, on a ring or on a line."""
    around = [i - 1, i + 1] if closed else [j for j in (i - 1, i + 1) if 0 <= j < len(satellites)]
    return [satellites[j % len(satellites)] for j in around]


def topology(ops, segment, closed=True, once=True) -> np.ndarray:
    """softmax(scale · q kᵀ) v in float64: a relay over its document, a satellite over itself, its neighbours and the relay."""
    q, k, v = (np.asarray(ops[n], np.float64) for n in "qkv")
    out = np.zeros(q.shape)
    for b, row in enumerate(segment):
        for document in set(row[row > 0].tolist()):
            relay, *satellites = np.flatnonzero(row == document).tolist()
            keys = {relay: [relay, *satellites]}
            for i, place in enumerate(satellites):
                keys[place] = [place, relay, *neighbours(satellites, i, closed)]
            for place, seen in keys.items():
                seen = sorted(set(seen)) if once else seen
                for n in range(N):
                    e = np.exp(SCALE * (k[b, seen, n] @ q[b, place, n]))
                    out[b, place, n] = (e / e.sum()) @ v[b, seen, n]
    return out


def small_documents(length: int = 40) -> np.ndarray:
    """Documents of 1 to 5 tokens, with and without holes and padding between: [3, length]."""
    rng, rows = np.random.default_rng(0), []
    for hole in (0.0, 0.0, 0.3):
        row = np.repeat(np.arange(1, length + 1), rng.integers(1, 6, length))[:length]
        rows.append(np.where(rng.random(length) < hole, 0, row))
    rows[1][rows[1] % 3 == 0] = 0
    return np.stack(rows)


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("segment", [segments(23), small_documents()], ids=["rows", "small"])
def test_values_equal_the_topology(segment, closed):
    """In value, and the fast path in gradient; whatever is wrong in the topology shows."""
    pattern = make({"name": "star", "closed": closed, "global_capacity": 40})
    ops, tok = operands(pattern, segment.shape), marked(pattern, segment_ids=segment)
    want = topology(ops, segment, closed)
    equal(compare(pattern, ops, tok, layer_count=1)[0], want, 2e-6)
    wrong = [topology(ops, segment, not closed), topology(ops, (segment > 0).astype(int), closed)]
    if closed and segment.shape[0] == 3:
        wrong.append(topology(ops, segment, closed, once=False))  # in documents of two satellites
    for other in wrong:
        with pytest.raises(AssertionError, match="differs by"):
            equal(other, want, 1e-2)


def test_masked_tokens_of_a_batch_are_no_members_of_the_ring():
    pattern, mask = (
        make({"name": "star"}),
        np.array([[0, 1, 1, 0, 0, 1, 1, 1, 0, 1, 1, 0], [1, 0, 1, 0, 1, 1, 0, 1, 1, 1, 1, 1]]),
    )
    ops, tok = operands(pattern, mask.shape), marked(pattern, attention_mask=mask)
    equal(compare(pattern, ops, tok, layer_count=1)[0], topology(ops, mask), 2e-6)


def test_the_relays_of_a_row_need_room():
    """More are NaN under jit, in that row only, and refused by name where the batch is seen."""
    pattern, segment = make({"name": "star", "global_capacity": 2}), np.array([[1, 1, 1, 2, 2, 2], [1, 1, 2, 2, 3, 3]])
    ops, tok = operands(pattern, segment.shape), marked(pattern, segment_ids=segment)
    out = jax.jit(lambda ops, tok: run(pattern.attend, ops, tok))(ops, tok)
    equal(out[:1], topology(ops, segment)[:1])
    assert bool(jnp.isnan(out[1]).all())
    m = model.initialise(CFG, ()).extend(attention={"name": "star"})
    with pytest.raises(ValueError, match="row 1 has 3 global tokens, and the attention has room for 1.*'global_capacity': 3"):
        m.encode({"input_ids": np.ones((2, 6), int), "segment_ids": np.array([[1] * 6, segment[1]])})


def test_a_model_equals_the_dense_one_padded_on_either_side():
    m = model.initialise(CFG, ()).extend(attention={"name": "star"}, position={"name": "rope"})
    net, count = build.network(m.recipe), 11
    ids = np.random.default_rng(0).integers(1, 20, count)
    batch = {"input_ids": np.zeros((2, 15), int), "attention_mask": np.zeros((2, 15), int)}
    for row, start in enumerate((0, 4)):
        batch["input_ids"][row, start : start + count] = ids
        batch["attention_mask"][row, start : start + count] = 1
    arrays = {k: jnp.asarray(x) for k, x in batch.items()}
    want = np.asarray(jax.jit(lambda w: hidden(net, w, arrays, fast=False)[0])(m.params))
    got = np.asarray(m.encode(batch))
    for out in (got[0, :count], got[1, 4:], np.asarray(m.encode({"input_ids": ids[None]}))[0]):
        np.testing.assert_allclose(out, want[0, :count], rtol=0, atol=1e-5)


def test_dropout_keeps_its_share_of_the_weights_of_relays_and_satellites():
    pattern, segment = make({"name": "star"}), np.ones((2, 300), int)
    ops, tok = operands(pattern, segment.shape), marked(pattern, segment_ids=segment)
    ops |= {"q": 0 * ops["q"], "v": jnp.ones_like(ops["v"])}
    keys = jax.random.split(jax.random.key(3), 10)
    drop = jax.jit(jax.vmap(lambda key: run(pattern.attend, ops, tok, drop=linear.Dropout(0.25, key))))
    out = np.asarray(drop(keys))
    near, far = out[:, :, 1:], out[:, :, 0]
    # a satellite has 4 keys: √(.25 / .75 / 4) = .29; a relay 300: .033
    assert abs(near.mean() - 1) < 0.02 and 0.27 < near.std() < 0.31
    assert abs(far.mean() - 1) < 0.02 and 0.02 < far.std() < 0.05


def test_bfloat16_stays_bfloat16():
    pattern, segment = make({"name": "star"}), segments(23)[:5]
    ops, tok = operands(pattern, segment.shape), marked(pattern, segment_ids=(segment > 0).astype(int))
    low = {n: x.astype(jnp.bfloat16) if n in "qkv" else x for n, x in ops.items()}
    got, want = jax.jit(lambda low, ops: [run(pattern.attend, x, tok) for x in (low, ops)])(low, ops)
    assert got.dtype == jnp.bfloat16
    assert np.abs(np.asarray(got, np.float64) - np.asarray(want)).max() < 0.04


WRONG = [
    *[({"closed": x}, "closed=.*allowed are False, True") for x in (1, "yes", None)],
    *[({"global_capacity": x}, "global_capacity=.*whole numbers from 1 to 1048576") for x in (0, -1, 2.0, True, None, "1")],
]


@pytest.mark.parametrize("kw, message", WRONG)
def test_bad_options_are_refused(kw, message):
    with pytest.raises(ValueError, match=r"attention\.star: " + message):
        star.make(CFG, **kw)


def test_what_a_star_has_not_is_refused():
    base = model.initialise(CFG, ())
    with pytest.raises(ValueError, match="attention.star has no option 'causal'.*closed"):
        base.extend(attention={"name": "star", "causal": True})
    m, ids = base.extend(attention={"name": "star"}), np.ones((1, 6), int)
    with pytest.raises(ValueError, match="relays of attention.star are the first tokens of documents; leave it out"):
        m.encode({"input_ids": ids, "global_attention_mask": np.eye(1, 6, dtype=int)})
    pattern = make({"name": "star"})
    tok = marked(pattern, segment_ids=np.ones((1, 4), int))
    short = jax.tree.map(lambda x: x[:, :3], tok)
    with pytest.raises(ValueError, match=r"attention.star is for self-attention, not \(1, 4\) queries on \(1, 3\) keys"):
        run(lambda p, call: pattern.attend(p, call._replace(k_tok=short)), operands(pattern, (1, 4)), tok)
