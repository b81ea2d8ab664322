"""Other families go through the same loop: tuned on a few texts, saved, and read by stock transformers with equal outputs."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoModelForMaskedLM, AutoModelForSequenceClassification

import lpe
from configs import classify, hier
from lpe import assets, train
from tests.parity import reference


def checkpoint(family: str, head: str, folder: Path) -> Path:
    """A tiny model of the family with bert-mini's tokenizer."""
    reference.tiny(family, head, vocab_size=512, max_position_embeddings=64).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(assets.CHECKPOINTS["bert-mini"] / name, folder / name)
    return folder


def compare(saved: Path, cls, call: str) -> None:
    ours, theirs = lpe.from_pretrained(saved), cls.from_pretrained(saved).eval()
    batch = ours.tokenizer(["the state of the union is strong " * 4, "my fellow citizens"], padding=True, return_tensors="np")
    inputs = {k: np.asarray(v) for k, v in batch.items() if k != "token_type_ids"}
    want = (reference.run_rows if call == "classify" else reference.run)(theirs, inputs)
    assert reference.error(getattr(ours, call)(inputs), want, inputs) < 1e-4


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("family", "position", "length"),
    [
        ("modernbert", {"name": "rope_yarn", "factor": 4.0}, 128),
        ("nomic_bert", {"name": "rope_linear", "factor": 2.0}, 128),
        ("roformer", {}, 64),
        ("albert", {"name": "hierarchical", "max_length": 128}, 128),
        ("big_bird", {}, 64),
    ],
)
def test_a_language_model(family, position, length, tmp_path):
    config = hier.get_config("debug").to_dict()
    config |= {"checkpoint": str(checkpoint(family, "mlm", tmp_path / "in")), "position": position, "arms": ()}
    config["task"] = {"name": "mlm", "length": length}
    config["eval"]["views"] = ("full",)
    config["optim"] |= {"freeze": "first_1_layers", "layer_decay": 0.9}
    folder = train.run(config, tmp_path / "run")
    (saved,) = folder.glob("*/model")
    assert lpe.from_pretrained(saved).recipe.family == family
    if family != "big_bird":  # whose reference draws no random blocks
        compare(saved, AutoModelForMaskedLM, "mlm_logits")


@pytest.mark.heavy
@pytest.mark.parametrize("family", ["distilbert", "electra", "modernbert"])
def test_a_classifier(family, tmp_path):
    """Its head is that of the family's stock class: another activation, a norm, a mean over the tokens."""
    folder = checkpoint(family, "base", tmp_path / "in")
    config = classify.get_config(f"debug,checkpoint={folder},only=truncate,pool=cls").to_dict()
    config["task"] |= {"length": 48}
    run = train.run(config, tmp_path / "run")
    (saved,) = run.glob("*/model")
    compare(saved, AutoModelForSequenceClassification, "classify")
