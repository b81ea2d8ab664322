"""Independent blocks: the mask drawn, a transcription key by key, bad options, what padding before the text changes."""

import jax
import numpy as np
import pytest

from lpe import model
from lpe.attention import chunked

from .common import CFG, compare, equal, make, operands, plain, run, segments, toks

VARIANTS = [{"chunk_size": 16}, {"chunk_size": 4, "causal": True}, {"chunk_size": 7}]


def drawn(length: int, **kw) -> list[str]:
    tok = toks(np.ones((1, length), int))
    mask = make({"name": "chunked", **kw}).mask(tok, tok, 0, length)
    assert mask.shape == (1, 1, length, length)
    return ["".join(map(str, row)) for row in np.asarray(mask[0, 0]).astype(int)]


def test_the_mask_drawn():
    assert drawn(5, chunk_size=2) == ["11000", "11000", "00110", "00110", "00001"]
    assert drawn(5, chunk_size=3, causal=True) == ["10000", "11000", "11100", "00010", "00011"]
    assert drawn(3, chunk_size=1) == ["100", "010", "001"]
    assert drawn(3) == ["111", "111", "111"]


@pytest.mark.parametrize("size, causal", [(1, False), (5, False), (5, True), (512, False)])
def test_values_equal_the_transcription(size, causal):
    pattern, segment = make({"name": "chunked", "chunk_size": size, "causal": causal}), segments(13)
    ops, tok = operands(pattern, segment.shape), toks(segment)
    want = plain(ops, segment, lambda t, s, n: t // size == s // size and (s <= t or not causal))
    got = jax.jit(lambda ops: [run(f, ops, tok) for f in (pattern.attend, pattern.reference)])(ops)
    for out in got:
        equal(out, want, 2e-6)


def test_a_chunk_as_long_as_the_text_is_full_attention():
    pattern, full = make({"name": "chunked", "chunk_size": 40}), make({"name": "full"})
    segment = segments(31)
    ops, tok = operands(pattern, segment.shape), toks(segment)
    out = compare(pattern, ops, tok, layer_count=1)[0]
    equal(out, jax.jit(lambda ops: run(full.reference, ops, tok))(ops))


def test_keys_of_other_shapes_are_refused():
    pattern, ops = make({"name": "chunked"}), None
    tok = toks(np.ones((1, 4), int))
    ops = operands(pattern, (1, 4))
    with pytest.raises(ValueError, match=r"attention.chunked is for self-attention, not \(1, 4\) queries on \(1, 3\) keys"):
        short = jax.tree.map(lambda x: x[:, :3], tok)
        run(lambda p, call: pattern.attend(p, call._replace(k_tok=short)), ops, tok)


@pytest.mark.parametrize("value", [0, -4, 2.0, "512", True, None, 2**20 + 1])
def test_a_size_that_is_none_is_refused(value):
    with pytest.raises(ValueError, match=r"attention\.chunked: chunk_size=.*allowed are whole numbers from 1 to 1048576"):
        chunked.make(CFG, chunk_size=value)


@pytest.mark.parametrize("value", [1, "yes", None])
def test_a_causal_that_is_none_is_refused(value):
    with pytest.raises(ValueError, match=r"attention\.chunked: causal=.*allowed are False, True"):
        chunked.make(CFG, causal=value)


def test_an_unknown_option_and_a_batch_with_global_tokens_are_refused():
    base = model.initialise(CFG, ())
    with pytest.raises(ValueError, match="attention.chunked has no option 'size'.*chunk_size"):
        base.extend(attention={"name": "chunked", "size": 4})
    m = base.extend(attention={"name": "chunked", "chunk_size": 4})
    ids = np.ones((1, 6), int)
    with pytest.raises(ValueError, match="global_attention_mask, and this attention pattern no global tokens.*window"):
        m.encode({"input_ids": ids, "global_attention_mask": ids})
