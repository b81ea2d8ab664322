"""Every imported family can be extended: a longer table, another rotary scaling, a window."""

import json

import numpy as np
import pytest
import torch

import lpe
from lpe.checkpoint.config import FAMILIES
from tests.parity import reference
from tests.parity.test_golden import GOLDEN

N = 16  # positions in training, where there is a limit
TABLES = ["bert", "roberta", "xlm-roberta", "longformer", "distilbert", "electra", "albert"]
SCALINGS = {
    "linear": ({"name": "rope_linear", "factor": 4.0}, {"rope_type": "linear", "factor": 4.0}),
    "dynamic": ({"name": "rope_dynamic", "factor": 2.0, "max_length": 64}, {"rope_type": "dynamic", "factor": 2.0}),
    "yarn": (
        {"name": "rope_yarn", "factor": 4.0},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": N},
    ),
    "llama3": (
        {"name": "rope_llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
        {
            "rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": N,
        },
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """family -> (of transformers, of lpe), read once."""
    cache = {}

    def get(family: str):
        if family not in cache:
            if family == "nezha":
                cache[family] = None, lpe.from_pretrained(GOLDEN / "nezha/base")
            else:
                theirs, folder = reference.tiny(family, "base"), tmp_path_factory.mktemp(family)
                theirs.save_pretrained(folder)
                cache[family] = theirs, lpe.from_pretrained(folder)
        return cache[family]

    return get


def batch(model: lpe.Model, lengths: list[int]) -> dict[str, np.ndarray]:
    config = type("Sizes", (), dict(vars(model.config)))
    return reference.batch(config, lengths, "right")


@pytest.mark.parametrize("family", TABLES)
def test_a_longer_table(family, loaded, tmp_path, record_property):
    """Short texts are as before, long ones have a value, and stock transformers reads the longer table."""
    theirs, model = loaded(family)
    long = model.extend(max_length=3 * N, position={"name": "hierarchical"})
    short, wide = batch(model, [N, 5]), batch(model, [3 * N, 40])
    rows = model.position_table()
    np.testing.assert_array_equal(long.position_table()[: len(rows)], rows)
    np.testing.assert_allclose(long.encode(short), model.encode(short), rtol=0, atol=1e-5)  # other programs, other roundings
    assert np.isfinite(long.encode(wide)).all()
    with pytest.raises(ValueError, match="is longer than the 16 positions of 'learned'"):
        model.encode(wide)
    long.save_pretrained(tmp_path)
    back = type(theirs).from_pretrained(tmp_path).eval()
    found = reference.error(long.encode(wide), reference.run(back, wide), wide)
    print(f"parity extended {family}, hierarchical: {found:.1e}")
    assert found < 1e-4
    record_property("parity", json.dumps({"family": family, "head": "extended", "error": found}))


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("family", ["modernbert", "nomic_bert"])
def test_another_rotary_scaling(family, scaling, loaded, tmp_path, record_property):
    """As transformers computes it from rope_parameters; ModernBERT's windows keep their own positions."""
    ours, fields = SCALINGS[scaling]
    theirs, model = loaded(family)
    long = model.extend(position=ours)
    now = theirs.config.rope_parameters
    layered = "full_attention" in now
    old = now["full_attention"] if layered else now
    scaled = {**fields, "rope_theta": old["rope_theta"]}
    changed = reference.tiny(family, "base", rope_parameters={**now, "full_attention": scaled} if layered else scaled)
    changed.load_state_dict(theirs.state_dict())
    inputs = reference.batch(theirs.config, [3 * N + 1, 3 * N + 1], "right")
    want = reference.run(changed.eval(), inputs)
    found = reference.error(long.encode(inputs), want, inputs)
    print(f"parity extended {family}, {scaling}: {found:.1e}")
    assert found < 1e-4
    record_property("parity", json.dumps({"family": family, "head": "extended", "error": found}))
    longer = model.extend(max_length=64)
    assert reference.error(longer.encode(inputs), want, inputs) > 1e-3
    assert reference.error(longer.encode(inputs), reference.run(theirs, inputs), inputs) < 1e-4  # the same, only further
    long.save_pretrained(tmp_path / "out")
    again = lpe.from_pretrained(tmp_path / "out")
    np.testing.assert_allclose(again.encode(inputs), long.encode(inputs), rtol=0, atol=1e-5)
    assert again.recipe.position == long.recipe.position or scaling != "linear"  # others are written with their defaults
    back = type(theirs).from_pretrained(tmp_path / "out").eval()
    assert reference.error(reference.run(back, inputs), want, inputs) < 1e-5


@pytest.mark.parametrize("name", ["rope_linear", "rope_ntk"])
def test_roformer_with_another_table_of_sines(name, loaded, record_property):
    """The reference reads its sines from a table, so one of scaled frequencies is a scaled model; values turn with it."""
    theirs, model = loaded("roformer")
    d = model.config.head_dim
    inv_freq = {"rope_linear": 10000.0, "rope_ntk": 10000.0 * 4 ** (d / (d - 2))}[name] ** -(np.arange(0, d, 2) / d)
    angle = np.arange(4 * N)[:, None] * inv_freq / (4 if name == "rope_linear" else 1)
    other = reference.tiny("roformer", "base", max_position_embeddings=4 * N)
    state = {k: x for k, x in theirs.state_dict().items() if "embed_positions" not in k}
    other.load_state_dict(state, strict=False)
    other.encoder.embed_positions.weight.data = torch.tensor(np.concatenate([np.sin(angle), np.cos(angle)], 1)).float()
    long = model.extend(position={"name": name, "factor": 4.0})
    inputs = reference.batch(theirs.config, [4 * N, 4 * N], "right")
    found = reference.error(long.encode(inputs), reference.run(other.eval(), inputs), inputs)
    print(f"parity extended roformer, {name}: {found:.1e}")
    assert found < 1e-4
    record_property("parity", json.dumps({"family": "roformer", "head": "extended", "error": found}))
    plain = model.extend(max_length=4 * N)
    assert reference.error(plain.encode(inputs), reference.run(other, inputs), inputs) > 1e-3


def test_roformer_keeps_what_belongs_to_its_weights(loaded):
    """Pairs of neighbours turn, values too, in every scaling."""
    _, model = loaded("roformer")
    short = batch(model, [N, 5])
    for name in ("rope_linear", "rope_ntk", "rope_dynamic", "rope_yarn", "rope_longrope"):
        same = model.extend(position={"name": name, "factor": 1.0})
        spec = dict(same.recipe.position[0])
        assert (spec["layout"], spec["rotary_value"]) == ("interleaved", True)
        np.testing.assert_allclose(same.encode(short), model.encode(short), rtol=0, atol=1e-5)
    with pytest.raises(
        ValueError, match="'xpos' turns queries and keys alone, and these weights were trained with values that"
    ):
        model.extend(position={"name": "xpos"}, attention={"name": "full", "causal": True})


@pytest.mark.parametrize("family", [*FAMILIES])
def test_a_window(family, loaded):
    """One as wide as the text is full attention; a narrow one is not, and reads a longer text."""
    if family in ("xlm-roberta",):
        family = "roberta"  # the same table
    _, model = loaded(family)
    model = model.extend(attention={"name": "full"})
    inputs = batch(model, [N, 9])
    want = model.encode(inputs)
    wide = model.extend(position=[dict(s) for s in model.recipe.position], attention={"name": "window", "attention_window": 64})
    assert reference.error(wide.encode(inputs), np.asarray(want), inputs) < 1e-5
    narrow = model.extend(attention={"name": "window", "attention_window": 4})
    assert reference.error(narrow.encode(inputs), np.asarray(want), inputs) > 1e-3
    if narrow.max_length is not None:
        narrow = narrow.extend(max_length=150)
    far = batch(model, [150, 70])
    assert np.isfinite(narrow.encode(far)).all()


@pytest.mark.parametrize("family", ["t5", "nezha"])
def test_relative_families_have_no_limit(family, loaded):
    theirs, model = loaded(family)
    assert model.max_length is None
    with pytest.raises(ValueError, match="max_length=100: position .* has no limit, so leave max_length out"):
        model.extend(max_length=100)
