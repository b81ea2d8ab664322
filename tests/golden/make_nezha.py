"""Writes tiny NEZHA checkpoints with inputs and outputs into tests/golden/nezha/, by transformers' own classes.

NEZHA left transformers with version 5, hence an environment of its own; the data are of 4.57.6 with torch 2.13.0:

    python -m venv ~/.cache/lpe/venv-tf4
    ~/.cache/lpe/venv-tf4/bin/pip install transformers==4.57.6 torch
    ~/.cache/lpe/venv-tf4/bin/python -m tests.golden.make_nezha

Every weight and bias is perturbed, so that none is 0 or 1 and no confusion of two of them goes unseen. Each folder holds a
checkpoint as `save_pretrained` writes it and golden.npz (see tiny.py). max_relative_position is 64 in all but base_8, where it
is 8; base_8 has base's weights.

The files: BERT's names under `nezha.` (none in base and base_8), no position_embeddings. The relative positions are a
non-persistent buffer of every layer (`attention.self.relative_positions_encoding.positions_encoding`) and are not in the file
(a file written where the buffer persists may hold them); nor is the tied `cls.predictions.decoder`, whose bias is
`cls.predictions.bias`. The MLM, the tagger and the answer model have no pooler, the base and the classifier have one. The
classifier is a linear layer on BERT's pooler (tanh of a dense layer of place 0).
"""

import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers.models.deprecated.nezha import (
    NezhaConfig,
    NezhaForMaskedLM,
    NezhaForQuestionAnswering,
    NezhaForSequenceClassification,
    NezhaForTokenClassification,
    NezhaModel,
)

from tests.golden.tiny import golden, no_trivial_weight, write
from tests.parity.reference import SIZES, perturb

FOLDER = Path(__file__).parent / "nezha"
# name: class, changes of the config, seed
CHECKPOINTS = {
    "base": (NezhaModel, {}, 0),
    "base_8": (NezhaModel, {"max_relative_position": 8}, 0),
    "mlm": (NezhaForMaskedLM, {}, 1),
    "classifier": (NezhaForSequenceClassification, {}, 2),
    "tagger": (NezhaForTokenClassification, {}, 3),
    "qa": (NezhaForQuestionAnswering, {"num_labels": 2}, 4),
}


def make(name: str) -> None:
    cls, changes, seed = CHECKPOINTS[name]
    torch.manual_seed(seed)
    config = NezhaConfig(**{**SIZES, "max_relative_position": 64, "max_position_embeddings": 160, **changes})
    model = perturb(cls(config), seed)
    no_trivial_weight(model)
    shutil.rmtree(FOLDER / name, ignore_errors=True)
    model.save_pretrained(FOLDER / name)
    arrays = golden(model, left_by_rows=name == "classifier")
    again = golden(cls.from_pretrained(FOLDER / name).eval(), left_by_rows=name == "classifier")
    assert all((again[k] == v).all() for k, v in arrays.items())
    assert not any("positions_encoding" in k for k in load_file(FOLDER / name / "model.safetensors"))
    write(FOLDER / name, arrays)


if __name__ == "__main__":
    for each in CHECKPOINTS:
        make(each)
