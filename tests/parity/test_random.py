"""lpe equals transformers on torch, within 1e-4, on tiny perturbed models of every family and head, padded left and right."""

import numpy as np
import pytest

import lpe
from tests.parity import reference


@pytest.mark.parametrize("head", reference.HEADS)
@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta"])
def test_parity(family, head, tmp_path):
    theirs = reference.tiny(family, head)
    assert all((p != 0).all() and (p != 1).all() for p in theirs.parameters())
    theirs.save_pretrained(tmp_path)
    ours = lpe.from_pretrained(tmp_path)
    assert ours.recipe.family == family
    for side in ("left", "right"):
        inputs = reference.batch(theirs.config, [16, 1, 9], side)
        found = reference.compare(ours, theirs, head, inputs)
        print(f"parity random {family} {head}, padded {side}: {found:.1e}")
        assert found < 1e-4, side
        assert np.isfinite(np.asarray(getattr(ours, reference.METHODS[head])(inputs))).all(), side


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_answers_survive_the_way_out(family, tmp_path):
    theirs = reference.tiny(family, "qa")
    theirs.save_pretrained(tmp_path / "in")
    ours = lpe.from_pretrained(tmp_path / "in")
    assert ours.recipe.heads == ("qa",)
    ours.save_pretrained(tmp_path / "out")
    inputs = reference.batch(theirs.config, [16, 9], "right")
    back = type(theirs).from_pretrained(tmp_path / "out")
    assert reference.error(reference.run(back, inputs), reference.run(theirs, inputs), inputs) < 1e-6
    np.testing.assert_array_equal(lpe.from_pretrained(tmp_path / "out").answer(inputs), ours.answer(inputs))


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
