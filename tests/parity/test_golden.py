"""lpe equals implementations that are not in today's transformers, within 1e-4, on checkpoints in their own formats.

NEZHA of transformers 4.57, RoFormer v2 of its publisher's package, NomicBERT's original format: tests/golden/make_*.py.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from transformers import NomicBertForMaskedLM

import lpe
from tests.parity import reference

GOLDEN = Path(__file__).parent.parent / "golden"
FAMILIES = {"nezha": "nezha", "roformer_v2": "roformer", "nomic_original": "nomic_bert"}  # folder: model_type
CASES = sorted(p.parent.relative_to(GOLDEN) for kind in FAMILIES for p in (GOLDEN / kind).glob("*/golden.npz"))


def head_of(case: Path) -> str:
    return next(h for h in reference.METHODS if h in case.name.split("_"))


def batches(case: Path):
    """(name, inputs, output) of each batch."""
    data = np.load(GOLDEN / case / "golden.npz")
    for name in ("right", "left", "long"):
        inputs = {k: data[f"{name}/{k}"] for k in ("input_ids", "token_type_ids", "attention_mask")}
        yield name, inputs, data[f"{name}/output"]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_parity(case, record_property):
    kind, head = case.parts[0], head_of(case)
    model = lpe.from_pretrained(GOLDEN / case)
    assert model.recipe.family == FAMILIES[kind]
    assert head == "base" or head in model.recipe.heads
    worst = 0.0
    for name, inputs, want in batches(case):
        found = reference.error(getattr(model, reference.METHODS[head])(inputs), want, inputs)
        print(f"parity golden {case}, {name}: {found:.1e}")
        assert found < 1e-4, name
        worst = max(worst, found)
    record_property("parity", json.dumps({"family": kind, "head": head, "error": worst}))


def test_all_folders_are_here():
    assert len(CASES) == 15


def test_another_distance_of_nezha_is_another_model():
    """base_8 has the weights of base."""
    near, far = (lpe.from_pretrained(GOLDEN / "nezha" / name) for name in ("base_8", "base"))
    _, inputs, want = list(batches(Path("nezha/base")))[2]
    assert reference.error(near.encode(inputs), want, inputs) > 1e-2
    assert reference.error(far.encode(inputs), want, inputs) < 1e-4


def test_nezha_keeps_its_distance_on_the_way_out(tmp_path):
    """No class of today's transformers reads it; lpe and transformers 4 do, by the same names."""
    before = lpe.from_pretrained(GOLDEN / "nezha/base_8")
    before.save_pretrained(tmp_path)
    after = lpe.from_pretrained(tmp_path)
    assert after.recipe == before.recipe and json.loads((tmp_path / "config.json").read_text())["max_relative_position"] == 8
    for key in ("architectures", "model_type", "hidden_size"):
        assert json.loads((tmp_path / "config.json").read_text())[key] == before.companions.raw[key]


def test_roformer_v2_has_no_stock_class(tmp_path):
    """Transformers would read it as version 1, with fresh norms and biases and a notice only."""
    model = lpe.from_pretrained(GOLDEN / "roformer_v2/mlm")
    assert "mlm_head" not in model.params
    with pytest.raises(ValueError, match="no stock roformer class of transformers has norms without parameters .RoFormer v2."):
        model.save_pretrained(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_nomic_leaves_the_original_format_on_the_way_out(tmp_path):
    """Transformers ignores n_embd and its like, so today's names are written; the biases that it has are 0."""
    model = lpe.from_pretrained(GOLDEN / "nomic_original/mlm")
    model.save_pretrained(tmp_path)
    back, report = NomicBertForMaskedLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values()), report
    for name, inputs, want in batches(Path("nomic_original/mlm")):
        assert reference.error(reference.run(back.eval(), inputs), want, inputs) < 1e-4, name
