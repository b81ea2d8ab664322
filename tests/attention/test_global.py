"""Global tokens: which ones the policies choose, their slots, the way for few of them, and what a batch may not ask for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lpe import build, model, tokens
from lpe.attention import global_attention
from lpe.attention.global_attention import slots

from .common import CFG, NEUTRAL, equal, hidden, make, operands, run, segments, some_global, toks, with_gradient

SEP = 9
WINDOW = {"name": "window", "attention_window": 6}


def marked(policy: str, ids, **batch) -> list[str]:
    """Rows of 0 and 1, 1 = global."""
    spec = {**WINDOW, "global_tokens": policy, **({"sep_token_id": SEP} if policy == "question" else {})}
    batch = {k: jnp.asarray(x) for k, x in {"input_ids": ids, **batch}.items()}
    tok = make(spec).mark(batch, tokens.from_batch(batch))
    assert tok.is_global.dtype == bool
    return ["".join(map(str, row)) for row in np.asarray(tok.is_global).astype(int)]


IDS = [[1, 2, SEP, 3, 4, SEP], [1, 2, 3, 4, 5, 6], [SEP, 1, 2, 3, SEP, 5]]


def test_nothing_is_global_unless_chosen():
    batch = {"input_ids": jnp.asarray(IDS)}
    assert not make(WINDOW).mark(batch, tokens.from_batch(batch)).is_global.any()
    assert marked("explicit", IDS) == ["000000"] * 3


def test_cls_is_the_first_token_of_each_document():
    assert marked("cls", IDS) == ["100000"] * 3
    assert marked("cls", IDS, attention_mask=[[0, 0, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0], [0] * 6]) == [
        "001000",
        "100000",
        "000000",
    ]
    assert marked("cls", IDS[:1], attention_mask=[[0, 1, 0, 1, 1, 1]]) == ["010000"]  # a hole begins no document
    packed = [[1, 1, 1, 2, 2, 3], [0, 2, 2, 2, 5, 0], [4, 0, 0, 1, 1, 1]]
    assert marked("cls", IDS, segment_ids=packed) == ["100101", "010010", "100100"]


def test_question_is_what_stands_before_the_first_separator_of_each_document():
    assert marked("question", IDS) == ["110000", "111111", "000000"]
    assert marked("question", IDS[:1], attention_mask=[[0, 1, 1, 1, 1, 1]]) == ["010000"]
    assert marked("question", IDS[1:2], attention_mask=[[1, 1, 1, 1, 0, 0]]) == ["111100"]
    assert marked("question", [[1, 2, 3, SEP, 4, 5]], attention_mask=[[1, 0, 1, 1, 1, 1]]) == ["101000"]
    assert marked("question", [[SEP, SEP, 3, 4, SEP, 5]], attention_mask=[[0, 0, 1, 1, 1, 1]]) == ["001100"]  # padded with it
    assert marked("question", [[1, SEP, 2, 3, SEP, 4]], segment_ids=[[1, 1, 2, 2, 2, 2]]) == ["101100"]
    assert marked("question", [[1, 2, 3, 4, SEP, 4]], segment_ids=[[1, 1, 2, 2, 2, 0]]) == ["111100"]


@pytest.mark.parametrize("policy", ["cls", "question", "explicit"])
def test_what_a_batch_says_goes_before_the_policy_and_padding_is_never_global(policy):
    mask = [[0, 1, 0, 0, 1, 1], [0] * 6, [0, 0, 0, 1, 0, 0]]
    padding = [[1, 1, 1, 1, 1, 0], [1] * 6, [1] * 6]
    assert marked(policy, IDS, global_attention_mask=mask, attention_mask=padding) == ["010010", "000000", "000100"]


def test_slots_are_the_first_global_tokens_in_order():
    pattern = make({**WINDOW, "global_tokens": "explicit", "global_capacity": 3})
    tok = toks(np.ones((2, 6), int), pattern, np.array([[0, 1, 0, 0, 1, 0], [1, 0, 1, 1, 0, 1]]))
    at = slots(tok, 3)
    assert at.index[0, :2].tolist() == [1, 4] and at.index[1].tolist() == [0, 2, 3]
    assert at.used.tolist() == [[True, True, False], [True] * 3]
    assert at.tok.segment.tolist() == [[1, 1, 0], [1, 1, 1]]


@pytest.mark.parametrize("length, capacity", [(9, 2), (9, 40), (1, 3)])
def test_more_than_there_is_room_for_is_nan_under_jit_in_that_row_only(length, capacity):
    """And a capacity above the length is no error."""
    pattern = make({**WINDOW, "global_tokens": "explicit", "global_capacity": capacity})
    segment = np.ones((3, length), int)
    mask = np.arange(length) < np.array([[2], [3], [0]])
    ops, tok = operands(pattern, segment.shape), toks(segment, pattern, mask.astype(int))
    out, dense = jax.jit(lambda ops, tok: [run(f, ops, tok) for f in (pattern.attend, pattern.reference)])(ops, tok)
    rows = [0, 2] if length > 2 and capacity == 2 else [0, 1, 2]
    equal(out[jnp.array(rows)], dense[jnp.array(rows)])
    assert bool(jnp.isnan(out[1]).all()) == (1 not in rows)


def test_the_way_for_few_global_tokens_gives_what_the_other_gives():
    """Fewer slots than head_dim and no rotation: no keys and values of their own for all tokens."""
    few, many = (make({**WINDOW, "global_tokens": "explicit", "global_capacity": c}) for c in (3, 4))
    turned = NEUTRAL._replace(rotate=lambda params, q, k, v, *tok: (q, k, v))
    segment = segments(23)
    ops, tok = operands(few, segment.shape), toks(segment, few, some_global(segment, 3))
    ways = ((few, NEUTRAL), (many, NEUTRAL), (few, turned))
    whole = jax.jit(lambda ops: [with_gradient(p.attend, ops, tok, 0, position) for p, position in ways])(ops)
    for other in whole[1:]:
        equal(whole[0], other)
    sizes = [_products(p, position, ops, tok) for p, position in ways]
    assert sizes[0] == 0 and sizes[1] == sizes[2] == 2  # they are other programs indeed


def _products(pattern, position, ops, tok) -> int:
    """How many products of all tokens with a projection the rows of global queries need."""
    at = slots(tok, pattern.capacity)

    def rows(params, call):
        return global_attention.attend(params, call, at)

    jaxpr = jax.make_jaxpr(lambda ops: run(rows, ops, tok, 0, position))(ops)
    return sum(e.primitive.name == "dot_general" and e.outvars[0].aval.shape == (6 * 23, 16) for e in jaxpr.jaxpr.eqns)


def small(**kw) -> model.Model:
    return model.initialise(CFG, ()).extend(attention={**WINDOW, **kw}, position={"name": "learned"})


def test_new_projections_begin_as_copies_of_the_local_ones_and_then_are_kept():
    m = small(global_tokens="cls")
    own = m.params["layers"]["attention"]
    for p in ("query", "key", "value"):
        equal(own["pattern"][f"{p}_global"], own[p], 0)
    assert "pattern" not in small().params["layers"]["attention"]
    changed = jax.tree.map(lambda x: x + 1, m.params)
    again = model.Model(changed, m.recipe).extend(attention={**WINDOW, "global_tokens": "explicit"})
    equal(again.params, changed, 0)


def test_a_model_uses_its_policy_and_equals_the_dense_one():
    m = small(global_tokens="question", sep_token_id=SEP)
    ids = np.random.default_rng(0).integers(1, 9, (2, 40))
    ids[:, 5] = SEP
    mask = np.arange(40) >= np.array([[0], [3]])
    batch = {"input_ids": ids, "attention_mask": mask.astype(int)}
    net, arrays = build.network(m.recipe), {k: jnp.asarray(x) for k, x in batch.items()}
    want, tok = jax.jit(lambda w: hidden(net, w, arrays, fast=False))(m.params)
    assert tok.is_global.sum(axis=1).tolist() == [5, 2]
    got = np.asarray(m.encode(batch))
    np.testing.assert_allclose(got[mask], np.asarray(want)[mask], rtol=0, atol=1e-5)
    said = m.encode({**batch, "global_attention_mask": np.asarray(tok.is_global)})
    np.testing.assert_allclose(said, got, rtol=0, atol=1e-6)
    none = m.encode({**batch, "global_attention_mask": np.zeros_like(ids)})
    assert np.abs(none - got)[mask].max() > 1e-3


IDS_6 = np.ones((2, 6), int)
FIRST = np.eye(2, 6, dtype=int)


@pytest.mark.parametrize(
    "kw, batch, message",
    [
        ({"global_tokens": "cls"}, {"global_attention_mask": FIRST[:, :5]}, r"global_attention_mask has shape \(2, 5\); all"),
        ({"global_tokens": "cls"}, {"global_attention_mask": FIRST[:1]}, r"global_attention_mask has shape \(1, 6\); all keys"),
        ({"global_tokens": "cls"}, {"global_attention_mask": FIRST[0]}, r"global_attention_mask has shape \(6,\); all keys"),
        ({"global_tokens": "cls"}, {"global_attention_mask": FIRST * 2}, "global_attention_mask has 2, allowed are 0 to 1"),
        ({"global_tokens": "cls"}, {"global_attention_mask": -FIRST}, "global_attention_mask has -1, allowed are 0 to 1"),
        ({"global_tokens": "cls"}, {"global_attention_mask": FIRST * 0.5}, "global_attention_mask has dtype float64; whole"),
        (
            {"global_tokens": "cls"},
            {"global_attention_mask": 1 - FIRST},
            "row 0 has 5 global tokens, and the attention has room for 1; give it more: .*'global_capacity': 5",
        ),
        (
            {"global_tokens": "question", "sep_token_id": SEP, "global_capacity": 4},
            {},
            "row 0 has 6 global tokens, and the attention has room for 4",
        ),
        (
            {"global_tokens": "explicit"},
            {"global_attention_mask": FIRST, "attention_mask": np.array([[1] * 6, [1, 0, 1, 1, 1, 1]])},
            "row 1: global_attention_mask is 1 at padding",
        ),
        ({"global_tokens": "cls"}, {"segment_ids": [[1] * 6, [1, 1, 2, 2, 3, 3]]}, "row 1 has 3 global.*room for 1"),
        ({}, {"global_attention_mask": FIRST}, 'this attention no global tokens; leave it out.*global_tokens="explicit"'),
        ({}, {"input_ids": np.ones((1, 161), int)}, "161 tokens is longer than the 160 positions"),
    ],
)  # fmt: skip
def test_what_a_batch_may_not_ask_for(kw, batch, message):
    with pytest.raises(ValueError, match=message):
        small(**kw).encode({"input_ids": IDS_6, **batch})


def test_full_attention_has_no_global_tokens():
    m = model.initialise(CFG, ())
    with pytest.raises(ValueError, match='has a global_attention_mask, and this attention pattern no global tokens.*"window"'):
        m.encode({"input_ids": IDS_6, "global_attention_mask": FIRST})


@pytest.mark.parametrize("to", [{"name": "full"}, {"name": "chunked"}])
def test_leaving_windows_keeps_the_positions(to):
    m = model.initialise(CFG, ()).extend(attention={"name": "window", "global_tokens": "cls"}, position={"name": "learned"})
    again = m.extend(attention=to)
    assert again.recipe.position == m.recipe.position and again.max_length == m.max_length == CFG.max_position_embeddings


@pytest.mark.parametrize("attention", [{}, {"attention_window": 4}, "window", 5, {"name": 3}])
def test_an_attention_without_a_name_is_refused(attention):
    with pytest.raises(ValueError, match="allowed is {'name': …, options}; leave it out to keep what there is"):
        model.initialise(CFG, ()).extend(attention=attention)
