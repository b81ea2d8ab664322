"""Rows of several documents: positions, lengths and outputs as if each stood alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lpe import tokens

SEGMENTS = np.array([[1, 1, 1, 2, 2, 3, 0, 0], [0, 0, 4, 4, 2, 2, 2, 2], [0] * 8, [1] * 8])


def test_positions_restart_and_lengths_are_those_of_the_segment():
    batch = {"input_ids": jnp.zeros((4, 8), jnp.int32), "segment_ids": jnp.asarray(SEGMENTS)}
    tok = jax.jit(tokens.from_batch)(batch)
    assert tok.position.tolist() == [[0, 1, 2, 0, 1, 0, 0, 0], [0, 0, 0, 1, 0, 1, 2, 3], [0] * 8, [*range(8)]]
    assert tok.length.tolist() == [[3, 3, 3, 2, 2, 1, 0, 0], [0, 0, 2, 2, 4, 4, 4, 4], [0] * 8, [8] * 8]
    assert (tok.segment == SEGMENTS).all() and (tok.index == np.arange(8)).all()
    assert all(x.dtype == jnp.int32 for x in tok[:4])
    own = np.arange(8) + np.zeros((4, 1), int)
    assert (tokens.from_batch({**batch, "position_ids": jnp.asarray(own)}).position == own).all()


def test_a_row_of_one_document_is_the_row_without_segments():
    mask = np.array([[1, 1, 1, 0, 0], [0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
    ids = jnp.zeros(mask.shape, jnp.int32)
    a = tokens.from_batch({"input_ids": ids, "attention_mask": jnp.asarray(mask)})
    b = tokens.from_batch({"input_ids": ids, "segment_ids": jnp.asarray(mask)})
    for x, y in zip(a, b, strict=True):
        assert (np.asarray(x)[mask > 0] == np.asarray(y)[mask > 0]).all()


def test_work_grows_with_the_length_and_not_with_its_square():
    def largest(length):
        shape = jax.ShapeDtypeStruct((2, length), jnp.int32)
        jaxpr = jax.make_jaxpr(tokens.from_batch)({"input_ids": shape, "segment_ids": shape})
        return max(v.aval.size for e in jaxpr.eqns for v in e.outvars)  # type: ignore[attr-defined]

    assert largest(2048) == 2 * 2048


def test_documents_in_a_row_are_encoded_as_if_alone(mini):
    rng = np.random.default_rng(0)
    docs = [rng.integers(5, 500, n) for n in (7, 100, 20)]
    ids = np.concatenate([*docs, np.zeros(40, int)])[None]
    segments = np.repeat([1, 2, 3, 0], [7, 100, 20, 40])[None]
    packed = mini.encode({"input_ids": ids, "segment_ids": segments})[0]  # 167 places, 128 positions
    masked = mini.encode({"input_ids": ids, "segment_ids": segments, "attention_mask": segments > 0})[0]
    np.testing.assert_array_equal(packed, masked)
    start = 0
    for doc in docs:
        alone = mini.encode({"input_ids": doc[None]})[0]
        np.testing.assert_allclose(packed[start : start + len(doc)], alone, atol=1e-5)
        start += len(doc)


@pytest.mark.parametrize(
    ("segments", "mask", "message"),
    [
        ([[1, 1, 2, 1]], None, "segment_ids, row 0: document 1 is in 2 pieces"),
        ([[1, 0, 1, 0]], None, "row 0: document 1 is in 2 pieces"),
        ([[1, 1, -1, 0]], None, "segment_ids has -1"),
        ([[1, 1, 2, 0]], [[1, 1, 0, 0]], "row 0: attention_mask is not 1 where segment_ids is above 0"),
        ([[1, 1, 2]], None, "all keys have one shape"),
    ],
)
def test_segments_that_cannot_be(mini, segments, mask, message):
    batch = {"input_ids": [[5, 6, 7, 8]], "segment_ids": segments} | ({} if mask is None else {"attention_mask": mask})
    with pytest.raises(ValueError, match=message):
        mini.encode(batch)


def test_a_row_is_too_long_only_if_a_document_is(mini):
    ids = np.full((1, 200), 5)
    mini.encode({"input_ids": ids, "segment_ids": np.repeat([[1, 2]], 100, axis=1)})
    with pytest.raises(ValueError, match="an input of 150 tokens is longer than the 128 positions"):
        mini.encode({"input_ids": ids, "segment_ids": np.repeat([[1, 2]], [150, 50], axis=1)})


def test_classify_takes_one_document_per_row():
    import lpe
    from lpe.models.bert import BertConfig

    tiny = BertConfig(vocab_size=9, hidden_size=4, num_hidden_layers=1, num_attention_heads=1, intermediate_size=4)
    model = lpe.model.initialise(tiny, ("pooler", "classifier"))
    with pytest.raises(ValueError, match="classify scores one document per row"):
        model.classify({"input_ids": [[5, 6]], "segment_ids": [[1, 2]]})
