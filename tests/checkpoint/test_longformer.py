"""Longformer's config.json, and the way out: what transformers' classes express comes back the same, the rest is refused."""

import json

import numpy as np
import pytest

import lpe
from lpe import arms, build, stock
from lpe.checkpoint import load
from tests.checkpoint import tiny
from tests.parity import reference


@pytest.fixture(scope="module")
def source():
    return tiny.state_and_config("longformer", "base")


@pytest.mark.parametrize("window", [3, 0, -2, [4], [4, 8, 4], [], [4, 5], [4, 0], "4", 4.0, True, None], ids=str)
def test_attention_window_errors(window, source, tmp_path):
    state, config = source
    with pytest.raises(ValueError) as e:
        lpe.from_pretrained(tiny.write(tmp_path, state, {**config, "attention_window": window}))
    allowed = "allowed are an even whole number above 0, or a list of 2 such, one for each layer"
    assert f"attention_window={window!r}, {allowed}" in str(e.value) and str(tmp_path) in str(e.value)


@pytest.mark.parametrize(
    "attributes, message",
    [
        ({"attention_mode": "sliding_chunks"}, "attention_mode='sliding_chunks': lpe computes only 'longformer'"),
        ({"ignore_attention_mask": True}, "ignore_attention_mask=True: lpe computes only False"),
        ({"onnx_export": True}, "onnx_export=True: lpe computes only False"),
        ({"attention_dilation": [1, 1]}, "attention_dilation=\\[1, 1\\] is not known to lpe"),
    ],
)
def test_config_errors(attributes, message, source, tmp_path):
    state, config = source
    with pytest.raises(ValueError, match=message):
        lpe.from_pretrained(tiny.write(tmp_path, state, {**config, **attributes}))


def test_configs(source, tmp_path):
    state, config = source
    plain = lpe.from_pretrained(tiny.write(tmp_path / "plain", state, config))
    fixed = {"attention_mode": "longformer", "ignore_attention_mask": False, "onnx_export": False}
    variants = {
        "the first release": {**config, **fixed},
        "named by architectures": {k: x for k, x in config.items() if k != "model_type"},
        "a list of one window": {**config, "attention_window": [4, 4]},
    }
    for name, raw in variants.items():
        model = lpe.from_pretrained(tiny.write(tmp_path / name, state, raw))
        assert tiny.equal(model, plain) and model.recipe == plain.recipe, name
    bare = {k: x for k, x in config.items() if k != "attention_window"}
    attention = dict(lpe.from_pretrained(tiny.write(tmp_path / "bare", state, bare)).recipe.attention)
    assert attention == {"name": "window", "attention_window": 512, "global_tokens": "explicit"}


def test_windows_belong_to_longformer(tmp_path):
    for family in ("bert", "roberta"):
        state, config = tiny.state_and_config(family)
        folder = tiny.write(tmp_path / family, state, {**config, "attention_window": 4})
        with pytest.raises(ValueError, match="attention_window=4 is not known to lpe"):
            lpe.from_pretrained(folder)


def test_missing_global_projections(source, tmp_path):
    state, config = source
    tensors = {k: x for k, x in state.items() if "layer.1.attention.self.key_global" not in k}
    with pytest.raises(ValueError, match=r"missing encoder\.layer\.1\.attention\.self\.key_global\.weight"):
        lpe.from_pretrained(tiny.write(tmp_path, tensors, config))


@pytest.mark.parametrize("head", reference.HEADS)
def test_round_trip(head, tmp_path):
    """Out of lpe and into transformers and lpe: the same outputs and windows. All tensors, so numbers need no second look."""
    theirs = reference.tiny("longformer", head, attention_window=[4, 8], sep_token_id=4)
    theirs.save_pretrained(tmp_path / "in")
    ours = lpe.from_pretrained(tmp_path / "in")
    ours.save_pretrained(tmp_path / "out")
    raw = json.loads((tmp_path / "out" / "config.json").read_text())
    assert raw["attention_window"] == [4, 8] and raw["model_type"] == "longformer"
    assert raw["architectures"] == [type(theirs).__name__] and raw["sep_token_id"] == 4
    back = type(theirs).from_pretrained(tmp_path / "out")
    assert back.config.attention_window == [4, 8]
    inputs = reference.batch(theirs.config, [16, 1, 9], "right")
    marked = {**inputs, "global_attention_mask": (np.arange(16) == 0) * inputs["attention_mask"]}
    assert reference.error(reference.run(back, marked), reference.run(theirs, marked), inputs) < 1e-6
    again = lpe.from_pretrained(tmp_path / "out")
    assert tiny.equal(again, ours) and again.recipe == ours.recipe
    got, want = (getattr(m, reference.METHODS[head])(marked) for m in (again, ours))
    np.testing.assert_array_equal(got, want)


def test_one_window_is_written_for_every_layer(source, tmp_path):
    """As transformers does; an extension with another window, and room for more tokens, is that window."""
    ours = lpe.from_pretrained(tiny.write(tmp_path / "in", *source))
    spec = {"name": "window", "attention_window": 10, "global_tokens": "explicit", "global_capacity": 3}
    ours.extend(attention=spec).save_pretrained(tmp_path / "out")
    assert json.loads((tmp_path / "out" / "config.json").read_text())["attention_window"] == [10, 10]
    assert dict(lpe.from_pretrained(tmp_path / "out").recipe.attention)["attention_window"] == 10


WINDOW = {"name": "window", "attention_window": 4, "global_tokens": "explicit"}


@pytest.mark.parametrize(
    "attention",
    [
        {**WINDOW, "attention_window": 5},
        {**WINDOW, "attention_window": [4, 7]},
        {**WINDOW, "dilation": 2},
        {**WINDOW, "dilation": [1, [1, 2]]},
        {**WINDOW, "right": 1},
        {**WINDOW, "global_tokens": "none", "causal": True},
        {"name": "chunked", "chunk_size": 4},
    ],
    ids=str,
)
def test_what_transformers_does_not_express(attention, source, tmp_path):
    model = lpe.from_pretrained(tiny.write(tmp_path / "in", *source)).extend(attention=attention)
    with pytest.raises(
        ValueError, match="(?s)of a longformer model.* has no stock class.*extend with.*save it as lpe's own folder"
    ):
        model.save_pretrained(tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "head, policy", [("classifier", "explicit"), ("qa", "cls"), ("qa", "explicit"), ("classifier", "none")]
)
def test_a_class_chooses_its_global_tokens(head, policy, tmp_path):
    """transformers' class would take others where the batch names none."""
    model = lpe.from_pretrained(tiny.write(tmp_path / "in", *tiny.state_and_config("longformer", head)))
    with pytest.raises(ValueError, match=f"of a longformer model with {head} head has no stock class"):
        model.extend(attention={**WINDOW, "global_tokens": policy}).save_pretrained(tmp_path / "out")


def test_a_run_takes_the_attention_of_a_class_with_the_tasks_head(tmp_path):
    """Not that of the head which the checkpoint brings: it is what the saved class will choose."""
    folder = tiny.write(tmp_path, *tiny.state_and_config("longformer", "classifier"))
    family, cfg, raw = load.read_config(folder)
    recipe = build.Recipe(family, cfg, ())
    classes = {"name": "classify", "length": 8, "labels": ("a", "b")}
    for task, policy in ((classes, "cls"), ({"name": "mlm", "length": 8}, "explicit")):
        got = arms._attention({"attention": {}, "task": task, "checkpoint": str(folder)}, recipe, raw)
        assert got["global_tokens"] == policy and got["attention_window"] == 4  # of both layers
        own = build.network(recipe._replace(attention=build.attention(got)))
        made = build.task(task, own)
        stock.check(own, (*made.heads, *made.makes))
    given = {"name": "full"}
    assert arms._attention({"attention": given, "task": classes, "checkpoint": str(folder)}, recipe, raw) is given


def test_a_separator_travels(tmp_path):
    m = lpe.from_pretrained(tiny.write(tmp_path / "in", *tiny.state_and_config("longformer", "qa")))
    m = m.extend(attention={**dict(m.recipe.attention), "sep_token_id": 7})
    m.save_pretrained(tmp_path / "out")
    assert dict(lpe.from_pretrained(tmp_path / "out").recipe.attention)["sep_token_id"] == 7
