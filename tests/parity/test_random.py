"""lpe equals transformers on torch, within 1e-4, on tiny perturbed models of every family and head, padded left and right."""

import json

import numpy as np
import pytest

import lpe
from lpe.checkpoint.config import FAMILIES
from tests.parity import reference

HERE = [f for f in reference.FAMILIES if f not in ("longformer", "big_bird")]  # which have files of their own
CASES = [(f, h) for f in HERE for h in reference.HEADS if reference.class_of(f, h)]
# Other configs of a family: each reaches another part of what its weights may be.
VARIANTS = [
    ("albert", "mlm", dict(embedding_size=24, num_hidden_groups=1)),
    ("electra", "mlm", dict(embedding_size=24, hidden_act="relu")),
    ("electra", "classifier", dict(hidden_act="relu")),
    ("distilbert", "mlm", dict(activation="relu")),
    ("roformer", "mlm", dict(embedding_size=None, rotary_value=False)),
    ("roformer", "classifier", dict(hidden_act="relu")),
    (
        "modernbert", "mlm",
        dict(norm_bias=True, attention_bias=True, mlp_bias=True, classifier_bias=True, classifier_activation="silu"),
    ),
    ("modernbert", "classifier", dict(classifier_pooling="cls", norm_bias=True, classifier_bias=True)),
    ("modernbert", "base", dict(layer_types=["sliding_attention"] * 3 + ["full_attention", "sliding_attention"])),
    ("modernbert", "base", dict(layer_types=["full_attention"] * 5)),
    ("modernbert", "mlm", dict(decoder_bias=False)),
    ("nomic_bert", "base", dict(head_dim=8)),
    ("t5", "base", dict(feed_forward_proj="gated-gelu")),
    ("t5", "base", dict(feed_forward_proj="gated-silu", relative_attention_num_buckets=8, relative_attention_max_distance=12)),
]  # fmt: skip


def check(family: str, head: str, theirs, folder, record) -> None:
    theirs.save_pretrained(folder)
    ours = lpe.from_pretrained(folder)
    assert ours.recipe.family == family
    lengths = [16, 1, 9] if ours.max_length else [150, 1, 67]
    worst = 0.0
    for side in ("left", "right"):
        inputs = reference.batch(theirs.config, lengths, side)
        found = reference.compare(ours, theirs, head, inputs)
        print(f"parity random {family} {head}, padded {side}: {found:.1e}")
        assert found < 1e-4, side
        assert np.isfinite(np.asarray(getattr(ours, reference.METHODS[head])(inputs))).all(), side
        worst = max(worst, found)
    record("parity", json.dumps({"family": family, "head": head, "error": worst}))


@pytest.mark.parametrize(("family", "head"), CASES)
def test_parity(family, head, tmp_path, record_property):
    theirs = reference.tiny(family, head)
    assert all((p != 0).all() and (p != 1).all() for p in theirs.parameters() if p.requires_grad)
    check(family, head, theirs, tmp_path, record_property)


@pytest.mark.parametrize(("family", "head", "changes"), VARIANTS)
def test_variants(family, head, changes, tmp_path, record_property):
    theirs = reference.tiny(family, head, **changes)
    check(family, head, theirs, tmp_path, record_property)
    plain = reference.tiny(family, head)
    inputs = reference.batch(theirs.config, [16, 9], "right")
    moved = reference.run(plain, inputs) - reference.run(theirs, inputs)
    assert np.abs(moved).max() > 1e-3  # the change is one


@pytest.mark.parametrize("family", HERE)
def test_every_head_of_the_table_is_compared(family):
    assert set(FAMILIES[family].heads) == {h for f, h in CASES if f == family} - {"base"}


@pytest.mark.parametrize(
    ("family", "head"), [pytest.param(f, h, marks=() if h in ("base", "mlm") else pytest.mark.heavy) for f, h in CASES]
)
def test_the_way_out(family, head, tmp_path):
    """What lpe writes is read by stock transformers with equal outputs, and by lpe."""
    theirs = reference.tiny(family, head)
    theirs.save_pretrained(tmp_path / "in")
    ours = lpe.from_pretrained(tmp_path / "in")
    ours.save_pretrained(tmp_path / "out")
    inputs = reference.batch(theirs.config, [16, 9], "right")
    back, report = type(theirs).from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(report.values()), report
    assert reference.error(reference.run(back.eval(), inputs), reference.run(theirs, inputs), inputs) < 1e-6
    again = lpe.from_pretrained(tmp_path / "out")
    assert again.recipe == ours.recipe
    call = reference.METHODS[head]
    np.testing.assert_array_equal(getattr(again, call)(inputs), getattr(ours, call)(inputs))


def test_positions_are_not_transformers_default_on_the_left(tmp_path):
    """The comparison above would not see a position ignored on both sides: left padding moves BERT's own numbers."""
    theirs = reference.tiny("bert", "base")
    inputs = reference.batch(theirs.config, [16, 4], "left")
    shifted = {**inputs, "attention_mask": np.ones_like(inputs["attention_mask"])}
    assert reference.error(reference.run(theirs, inputs), reference.run(theirs, shifted), inputs) > 1e-2


@pytest.mark.parametrize("act", ["gelu_new", "relu", "silu"])
def test_hidden_act(act, tmp_path):
    """RoBERTa's MLM head keeps the exact gelu, whatever hidden_act says; BERT's follows it."""
    for family in ("bert", "roberta"):
        theirs = reference.tiny(family, "mlm", hidden_act=act)
        theirs.save_pretrained(tmp_path / family)
        inputs = reference.batch(theirs.config, [8, 5], "right")
        got = lpe.from_pretrained(tmp_path / family).mlm_logits(inputs)
        assert reference.error(got, reference.run(theirs, inputs), inputs) < 1e-4, family
