"""lpe's own folder holds every model, bit for bit, and no other program takes it for one of its own."""

import json

import jax
import numpy as np
import pytest
from transformers import AutoModel

import lpe
from lpe import train
from tests.checkpoint import tiny
from tests.parity import reference

BEYOND = [
    ("bert", {"position": {"name": "rope_yarn", "max_length": 32}}),
    ("bert", {"position": {"name": "transformer_xl"}}),
    ("bert", {"position": [{"name": "learned"}, {"name": "t5"}]}),
    ("bert", {"position": {"name": "preserve_short", "max_length": 40}}),
    ("bert", {"position": {"name": "hierarchical", "max_length": 40, "pin_rows": 1}, "attention": {"name": "linear"}}),
    ("roberta", {"position": {"name": "shaw"}, "attention": {"name": "star"}}),
    ("bert", {"attention": {"name": "window", "attention_window": [3, None], "dilation": [1, [1, 2, 2, 1]]}}),
    ("albert", {"attention": {"name": "window", "attention_window": 8, "global_tokens": "cls"}, "max_length": 40}),
    ("modernbert", {"position": {"name": "rope_ntk", "max_length": 64}, "attention": {"name": "full"}}),
    ("t5", {}),
]


@pytest.mark.parametrize("family, spec", BEYOND, ids=str)
def test_what_no_class_expresses_comes_back_bit_for_bit(family, spec, tmp_path):
    head = "tagger"
    reference.tiny(family, head).save_pretrained(tmp_path / "in")
    ours = lpe.from_pretrained(tmp_path / "in")
    ours = ours.extend(**spec) if spec else ours
    ours.save_pretrained(tmp_path / "out", format="lpe")
    again = lpe.from_pretrained(tmp_path / "out")
    assert tiny.equal(again, ours)
    assert again.recipe == ours.recipe and again.companions.raw["model_type"] == family
    inputs = reference.batch(ours.config, [16, 9], "right")
    if not ours.config.type_vocab_size:
        inputs.pop("token_type_ids", None)
    np.testing.assert_array_equal(again.tag(inputs), ours.tag(inputs))
    again.save_pretrained(tmp_path / "twice", format="lpe")
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "twice" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()


def test_no_other_program_takes_it_for_its_own(tmp_path):
    lpe.from_pretrained("bert-mini").save_pretrained(tmp_path / "out", format="lpe")
    raw = json.loads((tmp_path / "out/config.json").read_text())
    assert raw["model_type"] == "lpe" and raw["lpe"]["model_type"] == "bert"
    with pytest.raises(ValueError, match="lpe"):
        AutoModel.from_pretrained(tmp_path / "out")
    assert lpe.from_pretrained(tmp_path / "out").tokenizer is not None


def test_from_there_it_goes_back_to_a_stock_class(tmp_path):
    mini = lpe.from_pretrained("bert-mini")
    mini.extend(max_length=200).save_pretrained(tmp_path / "own", format="lpe")
    lpe.from_pretrained(tmp_path / "own").save_pretrained(tmp_path / "stock")
    raw = json.loads((tmp_path / "stock/config.json").read_text())
    assert "lpe" not in raw and raw["model_type"] == "bert" and raw["architectures"] == ["BertForMaskedLM"]
    ids = {"input_ids": np.arange(5, 155)[None]}
    model = AutoModel.from_pretrained(tmp_path / "stock").eval()
    import torch

    with torch.no_grad():
        want = model(torch.tensor(ids["input_ids"]))[0].numpy()
    assert np.abs(np.asarray(lpe.from_pretrained(tmp_path / "own").encode(ids)) - want).max() < 1e-5


@pytest.mark.parametrize(
    "change, message",
    [
        (
            lambda raw: raw["lpe"].pop("heads"),
            r"lpe=.* in config.json, needed is \{attention, heads, model_type, position: …\}",
        ),
        (lambda raw: raw.update(lpe=3), "lpe=3 in config.json"),
        (lambda raw: raw["lpe"].update(heads=["mlm", "pooler", "tagger"]), "missing tagger.bias"),
        (lambda raw: raw["lpe"].update(position=[{"name": "hierarchica"}]), "no method 'hierarchica'"),
        (lambda raw: raw["lpe"].update(model_type="gpt2"), "model_type 'gpt2' is not read by lpe"),
        (lambda raw: raw.update(num_hidden_layers=5), "missing layers.4.attention.key.bias"),
    ],
)
def test_a_damaged_config_is_an_error(change, message, tmp_path):
    lpe.from_pretrained("bert-mini").save_pretrained(tmp_path / "out", format="lpe")
    raw = json.loads((tmp_path / "out/config.json").read_text())
    change(raw)
    (tmp_path / "out/config.json").write_text(json.dumps(raw))
    with pytest.raises(ValueError, match=message):
        lpe.from_pretrained(tmp_path / "out")


@pytest.mark.heavy
def test_a_run_reads_and_writes_it(tmp_path):
    from configs import position

    config = position.get_config("method=rope,debug").to_dict()
    config["train"]["steps"], config["optim"]["warmup_steps"] = 1, 0
    folder = train.run(config, tmp_path / "run")
    (saved,) = folder.glob("*/model")
    tuned = lpe.from_pretrained(saved)
    assert dict(tuned.recipe.position[0])["name"] == "rope"
    again = {**config, "checkpoint": str(saved), "position": {}}
    second = train.run(again, tmp_path / "second")
    other = lpe.from_pretrained(next(second.glob("*/model")))
    assert other.recipe == tuned.recipe
    assert any(
        not np.array_equal(a, b) for a, b in zip(jax.tree.leaves(other.params), jax.tree.leaves(tuned.params), strict=True)
    )
