"""What is saved loads in stock transformers, without remote code and without a missing tensor, with equal outputs."""

import json

import numpy as np
import pytest
import transformers

import lpe
from tests.checkpoint import tiny
from tests.parity import reference

WINDOW = {"name": "window", "attention_window": 8}
POLICIES = {"base": "cls", "mlm": "cls", "tagger": "none", "classifier": "cls", "qa": "question"}
LONG = 40


def saved(model: lpe.Model, folder, head: str, family: str):
    """The folder as transformers opens it; a tensor that it makes anew or does not know is an error."""
    model.save_pretrained(folder)
    cls = reference.class_of(family, head)
    assert cls is not None
    stock, about = cls.from_pretrained(folder, output_loading_info=True)
    unused = ("bert.pooler.bias", "bert.pooler.weight") if family == "big_bird" and head != "classifier" else ()
    assert not any(set(about[k]) - set(unused) for k in ("missing_keys", "unexpected_keys", "mismatched_keys")), about
    return stock.eval()


def marked(inputs: dict, policy: str, separator: int) -> dict:
    """With the global_attention_mask that the caller of a stock class gives, none where it chooses by itself."""
    real = inputs["attention_mask"] > 0
    first = real & (real.cumsum(axis=1) == 1)
    return {**inputs, "global_attention_mask": first.astype(np.int64)} if policy == "cls" else inputs


@pytest.mark.parametrize(
    "family, head",
    [*(("bert", head) for head in reference.HEADS), ("roberta", "mlm"), ("xlm-roberta", "mlm")],
)
def test_windows_become_a_longformer(family, head, tmp_path, caplog):
    reference.tiny(family, head).save_pretrained(tmp_path / "in")
    spec = {**WINDOW, "global_tokens": POLICIES[head]} | ({"sep_token_id": 7} if head == "qa" else {})
    ours = lpe.from_pretrained(tmp_path / "in").extend(max_length=LONG, attention=spec)
    stock = saved(ours, tmp_path / "out", head, "longformer")
    by_caller = head in ("base", "mlm")
    assert ("give it global_attention_mask with 1 at the first token" in caplog.text) == by_caller
    again = lpe.from_pretrained(tmp_path / "out")
    if POLICIES[head] != "none":  # which is what the class does without a mask
        assert dict(again.recipe.attention) == dict(ours.recipe.attention)
    for side, lengths in (("left", [LONG, 4, 16]), ("right", [16, 4, 9]), ("right", [LONG, 4, 33])):
        inputs = reference.batch(stock.config, lengths, side)
        if head == "qa":  # one question for each row, as transformers' class wants it
            inputs["input_ids"] = np.where(inputs["input_ids"] == 7, 8, inputs["input_ids"])
            first = np.arange(max(lengths)) - (max(lengths) - np.array(lengths)[:, None] if side == "left" else 0)
            inputs["input_ids"] = np.where((first >= 1) & (first <= 3), 7, inputs["input_ids"])
        given = marked(inputs, POLICIES[head], 7) if by_caller else inputs
        want = reference.run_rows(stock, given) if head in ("classifier", "qa") else reference.run(stock, given)
        for model in (ours, again):
            assert reference.error(getattr(model, reference.METHODS[head])(inputs), want, inputs) < 1e-5


@pytest.mark.parametrize("head", ["mlm", *(pytest.param(h, marks=pytest.mark.heavy) for h in ("base", "tagger"))])
def test_blocks_become_a_big_bird(head, tmp_path):
    reference.tiny("bert", head).save_pretrained(tmp_path / "in")
    spec = {"name": "bigbird", "block_size": 4, "num_random_blocks": 1, "hf_compat": True}
    ours = lpe.from_pretrained(tmp_path / "in").extend(max_length=64, attention=spec, position={"name": "hierarchical"})
    assert saved(ours, tmp_path / "out", head, "big_bird").config.attention_type == "block_sparse"
    cls, again = reference.class_of("big_bird", head), lpe.from_pretrained(tmp_path / "out")
    assert dict(again.recipe.attention) == dict(ours.recipe.attention)
    for lengths in ([64, 64], [12]):
        stock = cls.from_pretrained(tmp_path / "out").eval()  # a fresh one: after a short input it stays with full attention
        inputs = reference.batch(stock.config, lengths, "right")
        for model in (ours, again):
            assert reference.compare(model, stock, head, inputs) < 1e-5


def test_a_class_that_computes_something_else_is_refused_by_the_field(tmp_path):
    reference.tiny("bert", "classifier").save_pretrained(tmp_path / "in")
    model = lpe.from_pretrained(tmp_path / "in").extend(attention={"name": "bigbird", "block_size": 4})
    with pytest.raises(
        ValueError,
        match="that of big_bird classes, but these compute pooler_act='gelu_new' in place of 'tanh'|"
        "pooler_act='gelu' in place of 'tanh'",
    ):
        model.save_pretrained(tmp_path / "out")
    reference.tiny("bert", "mlm", hidden_act="relu").save_pretrained(tmp_path / "relu")
    model = lpe.from_pretrained(tmp_path / "relu").extend(attention=WINDOW, max_length=LONG)
    with pytest.raises(ValueError, match="that of longformer classes, but these compute head_act='gelu' in place of 'relu'"):
        model.save_pretrained(tmp_path / "out")
    assert not (tmp_path / "out").exists()


METHODS = [
    {"name": "hierarchical"},
    {"name": "hierarchical", "alpha": 0.2, "reference_row": 1, "pin_rows": 1},
    {"name": "hierarchical_naive"},
    {"name": "copy"},
    {"name": "random"},
    {"name": "interpolate", "kind": "cubic"},
    {"name": "grouped"},
    {"name": "sinusoidal"},
    {"name": "sinusoidal_ntk"},
]


@pytest.mark.parametrize(
    "family, position", [*(("bert", p) for p in METHODS), *(("roberta", p) for p in METHODS[1:4])], ids=str
)
def test_absolute_positions_become_a_longer_table(family, position, tmp_path):
    reference.tiny(family, "mlm").save_pretrained(tmp_path / "in")
    ours = lpe.from_pretrained(tmp_path / "in").extend(max_length=LONG, position=position)
    stock = saved(ours, tmp_path / "out", "mlm", family)
    reserved = ours.config.reserved_rows
    assert stock.config.max_position_embeddings == LONG + reserved
    assert getattr(stock, stock.base_model_prefix).embeddings.position_ids.shape == (1, LONG + reserved)
    again = lpe.from_pretrained(tmp_path / "out")
    assert again.max_length == LONG
    for lengths in ([5, 16], [LONG, 23]):
        inputs = reference.batch(stock.config, lengths, "right")
        assert reference.compare(ours, stock, "mlm", inputs) < 1e-5
        assert reference.compare(again, stock, "mlm", inputs) < 1e-5


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_a_choice_of_rows_by_length_is_refused_with_that_reason(family, tmp_path):
    reference.tiny(family, "mlm").save_pretrained(tmp_path / "in")
    model = lpe.from_pretrained(tmp_path / "in").extend(max_length=LONG, position={"name": "preserve_short"})
    with pytest.raises(ValueError, match="other vectors in short inputs than in long ones, which no table and no stock class"):
        model.save_pretrained(tmp_path / "out")


ROTARY = ["rope", "rope_linear", "rope_ntk", "rope_yarn", "rope_llama3"]


@pytest.mark.parametrize(
    "family, name", [*(("nomic_bert", name) for name in ROTARY), ("modernbert", "rope_ntk"), ("modernbert", "rope_yarn")]
)
def test_rotary_scalings_keep_their_length(family, name, tmp_path):
    """transformers has no field for how far a scaled method goes; lpe's own field says it, which transformers does not mind."""
    reference.tiny(family, "mlm").save_pretrained(tmp_path / "in")
    ours = lpe.from_pretrained(tmp_path / "in").extend(position={"name": name, "max_length": LONG})
    stock = saved(ours, tmp_path / "out", "mlm", family)
    again = lpe.from_pretrained(tmp_path / "out")
    assert again.max_length == ours.max_length == LONG
    for lengths in ([5, 16], [LONG, 23]):
        inputs = reference.batch(stock.config, lengths, "right")
        assert reference.compare(ours, stock, "mlm", inputs) < 1e-5
        assert reference.compare(again, stock, "mlm", inputs) < 1e-5


LONGROPE = {"name": "rope_longrope", "short_factor": [1.0, 1.1, 1.2], "long_factor": [1.0, 2.0, 3.0], "max_length": LONG}


@pytest.mark.parametrize("position", [{"name": "rope_dynamic", "max_length": LONG}, LONGROPE], ids=lambda p: p["name"])
def test_scalings_by_length_come_with_a_note(position, tmp_path, caplog):
    """transformers takes the longest input of a batch for all, so that a short one beside it has other outputs there."""
    reference.tiny("nomic_bert", "mlm").save_pretrained(tmp_path / "in")
    ours = lpe.from_pretrained(tmp_path / "in").extend(position=position)
    stock = saved(ours, tmp_path / "out", "mlm", "nomic_bert")
    assert "outputs are equal where all inputs of a batch have one length" in caplog.text
    for lengths in ([LONG, LONG], [9]):
        inputs = reference.batch(stock.config, lengths, "right")
        assert reference.compare(ours, stock, "mlm", inputs) < 1e-5
    mixed = reference.batch(stock.config, [LONG, 7], "right")
    assert reference.compare(ours, stock, "mlm", mixed) > 1e-3
    assert lpe.from_pretrained(tmp_path / "out").max_length == LONG


def test_the_field_and_transformers_own_must_agree(tmp_path):
    reference.tiny("nomic_bert", "mlm").save_pretrained(tmp_path / "in")
    model = lpe.from_pretrained(tmp_path / "in").extend(position={"name": "rope_linear", "factor": 3.0, "max_length": 44})
    model.save_pretrained(tmp_path / "out")
    path = tmp_path / "out/config.json"
    raw = json.loads(path.read_text())
    assert raw["lpe"]["position"][0]["max_length"] == 44
    raw["rope_parameters"]["factor"] = 2.0
    path.write_text(json.dumps(raw))
    with pytest.raises(ValueError, match="(?s)'factor': 2.0.*its field 'lpe' was written for .*'factor': 3.0"):
        lpe.from_pretrained(tmp_path / "out")
    assert lpe.from_pretrained(tmp_path / "out", lpe={}).max_length == 32
    path.write_text(json.dumps({**raw, "lpe": {"positions": []}}))
    with pytest.raises(ValueError, match=r"lpe=\{'positions': \[\]\} in config.json, needed is \{attention, position: …\}"):
        lpe.from_pretrained(tmp_path / "out")


def test_windows_of_a_longformer_taken_away(tmp_path):
    model = lpe.from_pretrained(tiny.write(tmp_path / "in", *tiny.state_and_config("longformer")))
    ours = model.extend(attention={"name": "full"})
    stock = saved(ours, tmp_path / "out", "mlm", "roberta")
    assert isinstance(stock, transformers.RobertaForMaskedLM)
    inputs = reference.batch(stock.config, [16, 9], "right")
    assert reference.compare(ours, stock, "mlm", inputs) < 1e-5
