"""BigBird equals transformers on torch, within 1e-4, with hf_compat; by default it has a plan, and has it everywhere.

A reference model is fresh for each length: at a short text transformers switches to full attention, and never back.
"""

import json

import numpy as np
import pytest

import lpe
from lpe import build
from tests.parity import reference

SWITCH = (5 + 2 * 3) * 2  # tokens up to which transformers sees all: block_size 2, 3 random blocks
HEADS = ["base", "mlm", "classifier", "tagger"]


@pytest.fixture(scope="module", params=HEADS)
def head(request, tmp_path_factory):
    """(head, folder)."""
    folder = tmp_path_factory.mktemp(request.param)
    reference.tiny("big_bird", request.param).save_pretrained(folder)
    return request.param, folder


def compat(folder) -> lpe.Model:
    own = lpe.from_pretrained(folder)
    return own.extend(attention={**dict(own.recipe.attention), "hf_compat": True})


def fresh(head: str, folder):
    return reference.class_of("big_bird", head).from_pretrained(folder).eval()


def test_parity(head, record_property):
    what, folder = head
    ours, worst = compat(folder), 0.0
    assert ours.recipe.family == "big_bird" and ours.max_length == 64
    for lengths in ([SWITCH, 9], [SWITCH + 1, 9], [64, 1, 37]):
        for side in ("left", "right"):
            theirs = fresh(what, folder)
            inputs = reference.batch(theirs.config, lengths, side)
            found = (
                compare_rows(ours, what, folder, inputs)
                if what == "classifier"
                else reference.compare(ours, theirs, what, inputs)
            )
            print(f"parity big_bird {what}, {lengths} tokens padded {side}: {found:.1e}")
            assert found < 1e-4, (lengths, side)
            worst = max(worst, found)
    record_property("parity", json.dumps({"family": "big_bird", "head": what, "error": worst}))


def compare_rows(ours: lpe.Model, what: str, folder, inputs: dict[str, np.ndarray]) -> float:
    """Row by row, each with a model of its own: what a row sees depends on its length."""
    real, worst = inputs["attention_mask"].astype(bool), 0.0
    for i, row in enumerate(real):
        alone = {k: v[i : i + 1, row] for k, v in inputs.items()}
        want = reference.run(fresh(what, folder), alone)
        worst = max(worst, reference.error(getattr(ours, reference.METHODS[what])(alone), want, alone))
    return worst


def test_the_default_is_a_plan_of_its_own(head):
    """Full attention where there are few blocks; longer, other numbers than transformers in evaluation."""
    what, folder = head
    ours, call = lpe.from_pretrained(folder), reference.METHODS[what]
    assert dict(ours.recipe.attention) == {"name": "bigbird", "block_size": 2, "num_random_blocks": 3}
    full = ours.extend(attention={"name": "full"})
    for length, equal in ((16, True), (64, False)):
        inputs = reference.batch(fresh(what, folder).config, [length, length], "right")
        difference = reference.error(getattr(ours, call)(inputs), np.asarray(getattr(full, call)(inputs)), inputs)
        assert difference < 1e-5 if equal else difference > 1e-3
        theirs = np.asarray(getattr(compat(folder), call)(inputs))
        assert (reference.error(getattr(ours, call)(inputs), theirs, inputs) < 1e-5) == equal


def test_a_plan_depends_on_the_length_alone(head):
    """Not on what was read before, nor on whether dropout is on."""
    what, folder = head
    ours, call = lpe.from_pretrained(folder), reference.METHODS[what]
    long, short = (reference.batch(fresh(what, folder).config, [n, n], "right") for n in (64, 9))
    before = np.asarray(getattr(ours, call)(long))
    getattr(ours, call)(short)
    np.testing.assert_array_equal(getattr(lpe.from_pretrained(folder), call)(long), before)
    trained = build.network(ours.recipe).pattern
    again = build.network(ours.recipe._replace(dtype="bfloat16")).pattern
    assert (trained.mask.args[0].plan(32) == again.mask.args[0].plan(32)).all()


def test_the_way_out(head, tmp_path):
    what, folder = head
    ours = lpe.from_pretrained(folder)
    ours.save_pretrained(tmp_path / "out")
    inputs = reference.batch(fresh(what, folder).config, [40, 40], "right")
    back, report = type(fresh(what, folder)).from_pretrained(tmp_path / "out", output_loading_info=True)
    missing = {k for k in report["missing_keys"] if "pooler" not in k}  # which these heads do not use
    assert not missing and not report["unexpected_keys"]
    want = reference.run(fresh(what, folder), inputs)
    assert reference.error(reference.run(back.eval(), inputs), want, inputs) < 1e-6
    assert lpe.from_pretrained(tmp_path / "out").recipe == ours.recipe


def test_answers_are_refused_by_name(tmp_path):
    """Its class has a layer of its own there, and hides the question."""
    reference.tiny("big_bird", "qa").save_pretrained(tmp_path)
    with pytest.raises(
        ValueError, match=r"qa_classifier\.\S+ is of a head of big_bird that lpe does not have, for its class(.|\n)*ignore='"
    ):
        lpe.from_pretrained(tmp_path)
    assert lpe.from_pretrained(tmp_path, ignore="qa_classifier.").recipe.heads == ()


def test_a_longer_table_and_a_window(tmp_path, record_property):
    theirs = reference.tiny("big_bird", "base")
    theirs.save_pretrained(tmp_path / "in")
    ours = lpe.from_pretrained(tmp_path / "in")
    long = ours.extend(max_length=150, position={"name": "copy"})
    inputs = reference.batch(theirs.config, [150, 150], "right")
    long.save_pretrained(tmp_path / "out")
    back = type(theirs).from_pretrained(tmp_path / "out").eval()
    compatible = long.extend(attention={**dict(long.recipe.attention), "hf_compat": True})
    found = reference.error(compatible.encode(inputs), reference.run(back, inputs), inputs)
    assert found < 1e-4
    record_property("parity", json.dumps({"family": "big_bird", "head": "extended", "error": found}))
    window = long.extend(attention={"name": "window", "attention_window": 300})
    full = long.extend(attention={"name": "full"})
    assert reference.error(window.encode(inputs), np.asarray(full.encode(inputs)), inputs) < 1e-5
    etc = long.extend(
        attention={
            "name": "bigbird", "block_size": 2, "num_random_blocks": 0, "global_blocks": False, "global_tokens": "cls",
        }
    )  # fmt: skip
    assert np.isfinite(etc.encode(inputs)).all()
    with pytest.raises(ValueError, match="extend with what a class has: full attention, or bigbird with global blocks"):
        etc.save_pretrained(tmp_path / "etc")
