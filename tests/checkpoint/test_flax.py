"""Flax checkpoints that transformers 4.57.6 wrote (tests/golden/make_flax.py) give its outputs within 1e-4."""

from pathlib import Path

import numpy as np
import pytest
from flax.serialization import msgpack_restore, msgpack_serialize

import lpe
from lpe.checkpoint import flax_msgpack
from tests.parity import reference

GOLDEN = Path(__file__).parents[1] / "golden" / "flax"


@pytest.mark.parametrize(
    "name, what",
    [
        ("bert_mlm", "mlm_logits"),
        ("bert_classifier_sharded", "classify"),
        ("roberta_mlm_bfloat16", "mlm_logits"),
        ("roberta_classifier", "classify"),
    ],
)
def test_outputs(name, what):
    golden = dict(np.load(GOLDEN / name / "golden.npz"))
    want = golden.pop("output")
    found = reference.error(getattr(lpe.from_pretrained(GOLDEN / name), what)(golden), want, golden)
    print(f"parity flax {name}: {what}: {found:.1e}")
    assert found < 1e-4


def test_files_are_what_they_are_called():
    assert len(list((GOLDEN / "bert_classifier_sharded").glob("flax_model-*.msgpack"))) == 3
    tree = msgpack_restore((GOLDEN / "roberta_mlm_bfloat16" / "flax_model.msgpack").read_bytes())
    assert tree["roberta"]["embeddings"]["word_embeddings"]["embedding"].dtype.name == "bfloat16"


@pytest.mark.parametrize(
    "key, name",
    [
        ("bert/encoder/layer/0/output/dense/kernel", "bert.encoder.layer.0.output.dense.weight"),
        ("bert/embeddings/LayerNorm/scale", "bert.embeddings.LayerNorm.weight"),
        ("bert/embeddings/word_embeddings/embedding", "bert.embeddings.word_embeddings.weight"),
        ("cls/predictions/bias", "cls.predictions.bias"),
    ],
)
def test_naming_rule(key, name):
    x = np.arange(6).reshape(2, 3)
    got, y = flax_msgpack.to_torch(key, x)
    assert got == name
    np.testing.assert_array_equal(y, x.T if key.endswith("kernel") else x)


@pytest.mark.parametrize(
    "tree, message",
    [
        ({"a": {"kernel": np.zeros((2, 2, 2))}}, "a/kernel has shape"),
        ({"a": {"scale": np.zeros(2), "weight": np.zeros(2)}}, "two arrays come to a.weight"),
        ({"a": {"scale": 3}}, "a/scale is int"),
        ([1, 2], "it holds list"),
    ],
)
def test_refuses(tree, message, tmp_path):
    (tmp_path / "flax_model.msgpack").write_bytes(msgpack_serialize(tree))
    with pytest.raises(ValueError, match=message):
        flax_msgpack.read(tmp_path / "flax_model.msgpack")
