"""lpe equals transformers on torch, within 1e-4, on tiny perturbed models of every family and head, padded left and right."""

import numpy as np
import pytest

import lpe
from tests.parity import reference


@pytest.mark.parametrize("head", reference.HEADS)
@pytest.mark.parametrize("family", reference.FAMILIES)
def test_parity(family, head, tmp_path):
    theirs = reference.tiny(family, head)
    assert all((p != 0).all() and (p != 1).all() for p in theirs.parameters())
    theirs.save_pretrained(tmp_path)
    ours = lpe.from_pretrained(tmp_path)
    assert ours.recipe.family == family
    for side in ("left", "right"):
        inputs = reference.batch(theirs.config, [16, 1, 9], side)
        if head == "classifier":
            got, want = ours.classify(inputs), reference.run_rows(theirs, inputs)
        else:
            got, want = (ours.encode if head == "base" else ours.mlm_logits)(inputs), reference.run(theirs, inputs)
        found = reference.error(got, want, inputs)
        print(f"parity random {family} {head}, padded {side}: {found:.1e}")
        assert found < 1e-4, side
        assert np.isfinite(np.asarray(got)).all(), side


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
