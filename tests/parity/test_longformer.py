"""Longformer equals transformers on torch, within 1e-4, and so does one made of a BERT or a RoBERTa by its authors' recipe."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from transformers import LongformerConfig, LongformerModel, PreTrainedModel

import lpe
from lpe.attention import window
from tests.parity import reference

LENGTHS = [150, 1, 67, 90]
POSITIONS = 160
# One for all layers or one for each, and wider than the text. Every class has two by default, the base model all of them.
WINDOWS = [[4, 48], 320, 4, 32, [320, 8]]
CASES = [
    pytest.param(head, w, marks=pytest.mark.heavy if i > 1 and head != "base" else (), id=f"{head}-{w}")
    for head in reference.HEADS
    for i, w in enumerate(WINDOWS)
]


def tiny(head: str, attention_window, **changes) -> PreTrainedModel:
    return reference.tiny(
        "longformer", head, attention_window=attention_window, max_position_embeddings=POSITIONS + 2, **changes
    )


def with_globals(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Three, the only token, one, none: at the first and the last real token, and between."""
    mask = np.zeros_like(inputs["input_ids"])
    first = inputs["attention_mask"].argmax(1)
    for row, places in enumerate([[0, 70, 149], [0], [33], []]):
        mask[row, first[row] + np.array(places, int)] = 1
    return {**inputs, "global_attention_mask": mask}


def without_globals(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {**inputs, "global_attention_mask": np.zeros_like(inputs["input_ids"])}


def reload(model: PreTrainedModel, folder, **options) -> lpe.Model:
    """In lpe; with room for the global tokens of the batch, where the class chooses one by itself."""
    model.save_pretrained(folder)
    ours = lpe.from_pretrained(folder, **options)
    attention = dict(ours.recipe.attention)
    return ours.extend(attention=attention | {"global_capacity": 3}) if attention["global_tokens"] == "cls" else ours


@pytest.mark.parametrize("head, attention_window", CASES)
def test_parity(head, attention_window, tmp_path, record_property):
    theirs, worst = tiny(head, attention_window), 0.0
    assert all((p != 0).all() and (p != 1).all() for p in theirs.parameters())
    ours = reload(theirs, tmp_path)
    assert ours.recipe.family == "longformer" and ours.max_length == POSITIONS
    for side in ("left", "right"):
        inputs = reference.batch(theirs.config, LENGTHS, side)
        for kind, marked in {"some": with_globals(inputs), "no": without_globals(inputs)}.items():
            found = reference.compare(ours, theirs, head, marked)
            print(f"parity longformer {head}, window {attention_window}, {kind} global tokens, padded {side}: {found:.1e}")
            assert found < 1e-4, (side, kind)
            worst = max(worst, found)
    record_property("parity", json.dumps({"family": "longformer", "head": head, "error": worst}))


def test_windows_belong_to_their_layers(tmp_path):
    theirs = tiny("base", [8, 4, 48], num_hidden_layers=3)
    inputs = with_globals(reference.batch(theirs.config, LENGTHS, "right"))
    found = reference.compare(reload(theirs, tmp_path), theirs, "base", inputs)
    print(f"parity longformer base, 3 layers with windows: {found:.1e}")
    assert found < 1e-4
    other = tiny("base", [4, 8, 48], num_hidden_layers=3)
    assert reference.error(reference.run(other, inputs), reference.run(theirs, inputs), inputs) > 1e-3


def test_the_windows_above_take_blocks():
    """Small windows go block by block in texts of this length, a wide one all at once."""
    sizes = [window._band(window.Reach(w // 2, w // 2, (1,)), max(LENGTHS)).size for w in (4, 8, 32, 48, 320)]
    assert sizes == [64, 64, 64, 64, 150]


def test_the_comparison_could_fail():
    """Global tokens, their own projections and the window matter in the reference."""
    theirs = tiny("base", 4)
    inputs = reference.batch(theirs.config, LENGTHS, "right")
    want = reference.run(theirs, with_globals(inputs))
    assert reference.error(reference.run(theirs, without_globals(inputs)), want, inputs) > 1e-3
    assert reference.error(reference.run(tiny("base", 32), with_globals(inputs)), want, inputs) > 1e-3
    for name in ("query", "key", "value"):
        other = tiny("base", 4)
        for layer in other.encoder.layer:
            own = layer.attention.self
            getattr(own, f"{name}_global").load_state_dict(getattr(own, name).state_dict())
        assert reference.error(reference.run(other, with_globals(inputs)), want, inputs) > 1e-3, name


def test_a_classifier_chooses_its_first_token(tmp_path):
    """As transformers does where the batch names no global tokens."""
    theirs = tiny("classifier", 4)
    theirs.save_pretrained(tmp_path)
    ours = lpe.from_pretrained(tmp_path)
    for side in ("left", "right"):
        inputs = reference.batch(theirs.config, LENGTHS, side)
        found = reference.compare(ours, theirs, "classifier", inputs)
        print(f"parity longformer classifier, its own global token, padded {side}: {found:.1e}")
        assert found < 1e-4, side
    assert np.abs(ours.classify(without_globals(inputs)) - ours.classify(inputs)).max() > 1e-3


@pytest.mark.parametrize("separator", [2, 4])
def test_an_answer_chooses_its_question(separator, tmp_path):
    """<s> question </s></s> text </s>, with questions of another length in every row; transformers wants three separators."""
    theirs = tiny("qa", 4, sep_token_id=separator)
    theirs.save_pretrained(tmp_path)
    ours = lpe.from_pretrained(tmp_path)
    for side in ("left", "right"):
        inputs = reference.batch(theirs.config, [150, 67, 90], side)
        for row, question in enumerate((9, 40, 1)):
            places = np.flatnonzero(inputs["attention_mask"][row])
            inputs["input_ids"][row, places[[question, question + 1, -1]]] = separator
        found = reference.compare(ours, theirs, "qa", inputs)
        print(f"parity longformer qa, its own global tokens, separator {separator}, padded {side}: {found:.1e}")
        assert found < 1e-4, side
    assert reference.error(ours.answer(without_globals(inputs)), np.asarray(ours.answer(inputs)), inputs) > 1e-3


def converted(plain: PreTrainedModel, attention_window) -> LongformerModel:
    """By the recipe of Longformer's authors: positions copied again and again, global projections copied from the local ones.

    Written anew for torch's tensors. RoBERTa's table begins with rows that are no positions; BERT's gets such rows in front.
    """
    old, state = plain.config, plain.state_dict()
    reserved = 0 if old.model_type == "bert" else old.pad_token_id + 1
    rows = state["embeddings.position_embeddings.weight"]
    front = rows[:reserved] if reserved else torch.zeros(old.pad_token_id + 1, rows.shape[1])
    trained = rows[reserved:]
    state["embeddings.position_embeddings.weight"] = torch.cat([front, trained.repeat(-(-POSITIONS // len(trained)), 1)])
    for key in [k for k in state if ".self." in k]:
        kind, name = key.rsplit(".", 2)[1:]
        state[key.replace(f"{kind}.{name}", f"{kind}_global.{name}")] = state[key].clone()
    keep = "layer_norm_eps pad_token_id type_vocab_size hidden_act".split()
    config = LongformerConfig(
        **reference.SIZES,
        **{k: getattr(old, k) for k in keep},
        attention_window=attention_window,
        max_position_embeddings=len(state["embeddings.position_embeddings.weight"]),
    )
    model = LongformerModel(config)
    model.load_state_dict(state)
    return model.eval()


@pytest.fixture(scope="module", params=["bert", "roberta"])
def plain(request, tmp_path_factory):
    """Of transformers and of lpe."""
    theirs, folder = reference.tiny(request.param, "base"), tmp_path_factory.mktemp(request.param)
    theirs.save_pretrained(folder)
    return theirs, lpe.from_pretrained(folder)


def longformer(model: lpe.Model, attention_window, global_tokens: str = "cls") -> lpe.Model:
    return model.extend(attention={"name": "window", "attention_window": attention_window, "global_tokens": global_tokens})


@pytest.mark.parametrize("attention_window", [4, [32, 320]], ids=str)
def test_extend(attention_window, plain):
    theirs, ours = plain
    other, long = converted(theirs, attention_window), longformer(ours, attention_window)
    assert ours.max_length == 16 and long.max_length is None
    for side in ("left", "right"):
        inputs = reference.batch(theirs.config, LENGTHS, side)
        first = np.zeros_like(inputs["input_ids"])
        first[np.arange(len(first)), inputs["attention_mask"].argmax(1)] = 1
        want = reference.run(other, {**inputs, "global_attention_mask": first})
        found = reference.error(long.encode(inputs), want, inputs)
        family = theirs.config.model_type
        print(f"parity longformer of a {family}, window {attention_window}, padded {side}: {found:.1e}")
        assert found < 1e-4, side
        assert reference.error(reference.run(other, without_globals(inputs)), want, inputs) > 1e-3


def test_extend_keeps_short_texts(plain):
    theirs, ours = plain
    for side in ("left", "right"):
        inputs = reference.batch(theirs.config, [16, 1, 9], side)
        got = longformer(ours, 32, "none").encode(inputs)
        assert reference.error(got, np.asarray(ours.encode(inputs)), inputs) < 1e-5
        got = longformer(ours, 4, "none").encode(inputs)
        assert reference.error(got, np.asarray(ours.encode(inputs)), inputs) > 1e-3


def pattern(model: lpe.Model) -> dict:
    """The global projections."""
    return model.params["layers"]["attention"]["pattern"]


def same(a: dict, b: dict) -> bool:
    return jax.tree.structure(a) == jax.tree.structure(b) and jax.tree.all(jax.tree.map(lambda x, y: (x == y).all(), a, b))


def test_global_projections_are_copied_once(plain, caplog):
    """Trained ones stay through another extension, until an attention without global tokens leaves them out."""
    _, ours = plain
    first = longformer(ours, 4)
    attention = first.params["layers"]["attention"]
    assert same(pattern(first), {f"{name}_global": attention[name] for name in ("query", "key", "value")})
    trained = jax.tree.map(lambda x: x + 1, pattern(first))
    layers = {**first.params["layers"], "attention": {**attention, "pattern": trained}}
    model = dataclasses.replace(first, params={**first.params, "layers": layers})
    for options in ({"attention_window": 8}, {"attention_window": [4, 32], "global_tokens": "explicit", "dilation": 2}):
        again = model.extend(attention={"name": "window", "global_tokens": "cls", **options})
        assert same(pattern(again), trained), options
    assert same(pattern(model.extend(max_length=300)), trained)
    assert "global projections" not in caplog.text
    for without in ({"name": "full"}, {"name": "window", "attention_window": 4}):
        caplog.clear()
        assert "pattern" not in model.extend(attention=without).params["layers"]["attention"]
        assert "no global projections, and those there were are left out" in caplog.text


def test_a_longformer_extends_further(tmp_path):
    """Its own projections stay, and texts within its table are read as before."""
    theirs = reference.tiny("longformer", "base")
    theirs.save_pretrained(tmp_path)
    ours = lpe.from_pretrained(tmp_path)
    longer = longformer(ours, 4, "explicit")
    assert ours.max_length == 16 and longer.max_length == 16
    longer = ours.extend(max_length=150)
    assert longer.max_length == 150 and same(pattern(longer), pattern(ours))
    inputs = reference.batch(theirs.config, [16, 1, 9], "right")
    inputs["global_attention_mask"] = np.zeros_like(inputs["input_ids"])
    inputs["global_attention_mask"][:, 0] = 1
    found = reference.compare(longer, theirs, "base", inputs)
    print(f"parity longformer base, extended: {found:.1e}")
    assert found < 1e-4


def test_saving_memory_changes_nothing(tmp_path):
    """chunk_size and remat, in value and gradient, logits as a part of the largest; bfloat16 is near."""
    theirs = tiny("mlm", [4, 48])
    inputs = with_globals(reference.batch(theirs.config, LENGTHS, "left"))
    real = jnp.asarray(inputs["attention_mask"], bool)[..., None]

    @jax.jit
    def loss(model: lpe.Model):
        logits = model.mlm_logits(inputs)
        return jnp.where(real, jax.nn.log_softmax(logits) ** 2, 0).mean(), logits

    def run(**options):
        (value, logits), gradient = jax.value_and_grad(loss, has_aux=True)(reload(theirs, tmp_path, **options))
        return np.asarray(logits), float(value), gradient

    def far(a, b) -> float:
        return max(float(jnp.abs(x - y).max()) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))

    logits, value, gradient = run()
    assert min(float(jnp.abs(rows["kernel"]).max()) for rows in pattern(gradient).values()) > 1e-4
    for options in ({"chunk_size": 5}, {"remat": "full"}):
        got, loss_of_it, slope = run(**options)
        found = (
            reference.error(got, logits, inputs) / np.abs(logits).max(),
            abs(loss_of_it - value) / value,
            far(slope, gradient),
        )
        print(f"parity longformer {options}: logits {found[0]:.1e}, loss {found[1]:.1e}, gradient {found[2]:.1e}")
        assert max(found) < 1e-5, options
    found = reference.error(reload(theirs, tmp_path, dtype="bfloat16").mlm_logits(inputs), logits, inputs)
    print(f"parity longformer bfloat16: {found:.1e}")
    assert 1e-6 < found < 0.3
