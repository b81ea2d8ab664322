"""What the families' config.json and files may say, beyond the weights that tests/parity compares."""

import json
import logging

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from transformers import (
    AlbertForPreTraining,
    AutoConfig,
    AutoModel,
    ElectraForPreTraining,
    T5EncoderModel,
    T5ForConditionalGeneration,
    T5ForSequenceClassification,
)

import lpe
from lpe import build, stock
from lpe.checkpoint import config, mapping
from lpe.checkpoint.config import FAMILIES
from lpe.checkpoint.folder import read_tokenizer
from lpe.params import Spec, flatten, zeros
from tests.checkpoint import tiny
from tests.parity import reference

SIZES = {"vocab_size": 100, "hidden_size": 24, "num_hidden_layers": 2}
SAME = {  # of ours, theirs where another name serves
    "num_attention_heads": (), "intermediate_size": ("hidden_dim", "d_ff"),
    "hidden_act": ("activation", "hidden_activation", "dense_act_fn"), "hidden_dropout_prob": ("dropout", "dropout_rate"),
    "attention_probs_dropout_prob": ("attention_dropout", "dropout_rate"), "max_position_embeddings": (),
    "type_vocab_size": (), "layer_norm_eps": ("norm_eps", "layer_norm_epsilon"), "pad_token_id": (),
}  # fmt: skip


@pytest.mark.parametrize("family", [f for f in FAMILIES if f != "nezha"])
def test_defaults_are_those_of_transformers(family):
    theirs = {ours: key for key, ours in FAMILIES[family].renamed.items()}
    wide = {**SIZES, "hidden_size": 192}
    cfg = config.read({"model_type": family, **{theirs.get(k, k): v for k, v in wide.items()}}, "x")
    other, seen = AutoConfig.for_model(family), 0
    for ours, names in SAME.items():
        name = next((n for n in (ours, *names) if hasattr(other, n)), None)
        value = getattr(other, name) if name else None
        if value is None or ours in ("max_position_embeddings", "pad_token_id") and family == "longformer":
            continue
        assert getattr(cfg, ours) == value, (ours, name)
        seen += 1
    assert seen >= 6


def with_config(family: str, tmp_path, head: str = "base", **changes):
    """A tiny checkpoint whose config.json says something else."""
    state, raw = tiny.state_and_config(family, head)
    return tiny.write(tmp_path, state, {**raw, **changes})


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("distilbert", {"hidden_size": 12}, "dim=24 and hidden_size=12, which are one field; leave one"),
        ("distilbert", {"n_heads": 0}, "\n  n_heads=0, allowed is a whole number above 0"),
        ("distilbert", {"dim": None}, "\n  dim is missing"),
        ("albert", {"inner_group_num": 2}, "inner_group_num=2: lpe computes only 1"),
        ("albert", {"num_hidden_groups": 3}, "num_hidden_groups=3 is no divisor of num_hidden_layers=4"),
        ("modernbert", {"layer_types": ["full_attention"]}, "layer_types=['full_attention'], allowed is a list of 5 of"),
        ("modernbert", {"layer_types": ["full"] * 5}, "allowed is a list of 5 of 'full_attention' and 'sliding_attention'"),
        ("modernbert", {"local_attention": 5}, "local_attention=5, allowed are even whole numbers above 0"),
        ("modernbert", {"mlp_dropout": 0.1}, "mlp_dropout=0.1 and embedding_dropout=0.0: lpe has one rate for both"),
        ("modernbert", {"classifier_pooling": "max"}, "classifier_pooling='max', allowed are 'cls' and 'mean'"),
        (
            "modernbert",
            {"rope_parameters": {"full_attention": {"rope_type": "su"}}},
            "rope_type='su' is not known to lpe; it reads default, linear",
        ),
        ("modernbert", {"rope_parameters": "abc"}, "rope_parameters='abc', allowed is a map with 'full_attention' and"),
        ("modernbert", {"rope_parameters": {"full_attention": "x"}}, "rope_parameters='x', allowed is a map, as"),
        ("modernbert", {"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}, "allowed is a map with 'full_attention' and"),
        ("modernbert", {"layer_types": [["a"]] * 5}, "allowed is a list of 5 of 'full_attention' and 'sliding_attention'"),
        ("modernbert", {"classifier_activation": 3}, "classifier_activation=3, allowed is the name of an activation"),
        ("modernbert", {"mlp_dropout": "a", "embedding_dropout": "a"}, "mlp_dropout='a', allowed is a number from 0"),
        (
            "modernbert",
            {"rope_parameters": None, "global_rope_theta": "x"},
            "global_rope_theta='x', allowed is a number above 1",
        ),
        ("nomic_bert", {"rope_parameters": [1]}, "rope_parameters=[1], allowed is a map, as"),
        (
            "nomic_bert",
            {"rope_parameters": {"rope_type": ["x"]}},
            "rope_type=['x'] is not known to lpe; it reads default, linear",
        ),
        ("nomic_bert", {"rope_parameters": {"rope_theta": "x"}}, "rope_theta='x', allowed is a number above 1"),
        ("nomic_bert", {"rope_parameters": {"rope_type": "linear", "faktor": 2}}, "'faktor' is not known to lpe; it reads"),
        ("nomic_bert", {"rope_parameters": {"layout": "interleaved"}}, "'layout' is not known to lpe; it reads"),
        (
            "nomic_bert",
            {"rope_parameters": {"rope_type": "linear", "factor": "x"}},
            "asks for what lpe does not have: positions.",
        ),
        (
            "nomic_bert",
            {"rope_parameters": {"partial_rotary_factor": 0.5}},
            "partial_rotary_factor=0.5, which transformers does not compute here; allowed is 1.0",
        ),
        (
            "nomic_bert",
            {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 8}},
            "original_max_position_embeddings=8, which transformers does not read here; allowed is 16",
        ),
        ("nomic_bert", {"activation_function": ["x"]}, "activation_function=['x'], allowed are swiglu, geglu, glu"),
        ("t5", {"feed_forward_proj": None}, "feed_forward_proj=None, allowed are an activation, or 'gated-' before it"),
        ("t5", {"feed_forward_proj": "gated-"}, "feed_forward_proj='gated-', allowed are an activation"),
        ("t5", {"relative_attention_max_distance": 0}, "relative_attention_max_distance=0, allowed is a whole number above 0"),
        ("big_bird", {"block_size": "64"}, "block_size='64', allowed is a whole number above 0"),
        ("nomic_bert", {"activation_function": "gelu"}, "activation_function='gelu', allowed are swiglu, geglu, glu"),
        ("nomic_bert", {"prenorm": True}, "prenorm=True: lpe computes only False"),
        ("nomic_bert", {"rotary_emb_fraction": 0.5}, "rotary_emb_fraction=0.5: lpe computes only 1.0"),
        ("nomic_bert", {"num_experts": 8}, "num_experts=8 is not known to lpe"),
        ("modernbert", {"norm_bias": "false"}, "norm_bias='false', allowed is true or false or null"),
        ("t5", {"d_kv": 0}, "d_kv=0, allowed is a whole number above 0"),
        ("t5", {"feed_forward_proj": "glu-gelu"}, "feed_forward_proj='glu-gelu', allowed are an activation, or 'gated-'"),
        ("t5", {"relative_attention_num_buckets": 30}, "num_buckets=30, allowed are multiples of 4"),
        ("roformer", {"norm_type": "batch"}, "norm_type='batch', allowed are 'layer_norm' and 'rms_norm'"),
        ("big_bird", {"attention_type": "sparse"}, "attention_type='sparse', allowed are 'block_sparse' and 'original_full'"),
        ("big_bird", {"rescale_embeddings": True}, "rescale_embeddings=True: lpe computes only False"),
    ],
)
def test_config_errors(family, changes, message, tmp_path):
    with pytest.raises(ValueError) as e:
        lpe.from_pretrained(with_config(family, tmp_path, **changes))
    assert message in str(e.value)


def test_modernberts_attention_and_positions_share_their_layers(tmp_path):
    """Its class chooses the base of a layer's positions by what the layer sees."""
    model = lpe.from_pretrained(with_config("modernbert", tmp_path / "in"))
    for attention in (
        {"name": "full"},
        {"name": "window", "attention_window": 6},
        {"name": "window", "attention_window": (None, None, 6, 6, 6)},
    ):
        with pytest.raises(ValueError, match="one layer_types for attention and positions, and this model needs"):
            model.extend(attention=attention).save_pretrained(tmp_path / "out")
    wider = model.extend(attention={"name": "window", "attention_window": (None, 8, 8, None, 8)})
    wider.save_pretrained(tmp_path / "out")
    theirs = AutoModel.from_pretrained(tmp_path / "out").eval()
    inputs = reference.batch(theirs.config, [16, 9], "right")
    assert reference.error(wider.encode(inputs), reference.run(theirs, inputs), inputs) < 1e-4
    methods = [dict(m) for m in dict(model.recipe.position[0])["methods"]]
    same = model.extend(
        position={"name": "by_layer", "methods": methods, "layers": [0], "max_length": 16}, attention={"name": "full"}
    )
    same.save_pretrained(tmp_path / "same")
    theirs = AutoModel.from_pretrained(tmp_path / "same").eval()
    assert reference.error(same.encode(inputs), reference.run(theirs, inputs), inputs) < 1e-4


def test_nomics_names_within_the_class_are_read_too(tmp_path):
    """A state_dict has other names than save_pretrained writes."""
    for head in ("base", "mlm"):
        theirs = reference.tiny("nomic_bert", head)
        theirs.save_pretrained(tmp_path / f"{head}-saved")
        state = {k: x.clone().contiguous() for k, x in theirs.state_dict().items()}
        assert any("q_proj" in k for k in state)
        raw = json.loads((tmp_path / f"{head}-saved/config.json").read_text())
        ours = lpe.from_pretrained(tiny.write(tmp_path / head, state, raw))
        assert tiny.equal(ours, lpe.from_pretrained(tmp_path / f"{head}-saved"))


def test_a_dynamic_scaling_of_another_length_has_no_field(tmp_path):
    """transformers reads max_position_embeddings alone."""
    model = lpe.from_pretrained(with_config("nomic_bert", tmp_path / "in"))
    spec = {"name": "rope_dynamic", "factor": 4.0}
    model.extend(position=spec).save_pretrained(tmp_path / "out")
    with pytest.raises(
        ValueError, match="has no stock class that lpe writes; extend with what its class has: rope, rope_linear"
    ):
        model.extend(position={**spec, "original_max_position_embeddings": 8}).save_pretrained(tmp_path / "other")


@pytest.mark.heavy
@pytest.mark.parametrize("family", [f for f in reference.FAMILIES if f != "xlm-roberta"])
def test_every_parameter_has_a_gradient(family, tmp_path):
    """Through the attention that the weights were trained with; but that of a norm which a first layer does not have."""
    model = lpe.from_pretrained(with_config(family, tmp_path, "base"))
    encode = build.network(model.recipe).encode
    batch = {"input_ids": jnp.arange(5, 21)[None]}
    grads = flatten(jax.jit(jax.grad(lambda w: jnp.sin(encode(w, batch)[0]).sum()))(model.params))
    for path, g in grads.items():
        unused = path.startswith("pooler/") or "_global" in path
        assert np.isfinite(g).all() and (unused or np.abs(g).max() > 0), path


def test_older_names_of_modernberts_fields(tmp_path):
    """As its first release wrote them, with every third layer global and two thetas."""
    state, raw = tiny.state_and_config("modernbert", "mlm")
    old = {k: x for k, x in raw.items() if k not in ("layer_types", "rope_parameters")}
    old |= {"global_attn_every_n_layers": 3, "global_rope_theta": 160000.0, "local_rope_theta": 10000.0}
    new, again = (lpe.from_pretrained(tiny.write(tmp_path / n, state, c)) for n, c in (("new", raw), ("old", old)))
    assert new.recipe == again.recipe
    spec = dict(new.recipe.position[0])
    assert [dict(m)["rope_theta"] for m in spec["methods"]] == [160000.0, 10000.0] and spec["layers"] == (0, 1, 1, 0, 1)
    assert dict(new.recipe.attention)["attention_window"] == (None, 4, 4, None, 4)


def test_a_whole_t5_gives_its_encoder(tmp_path, caplog):
    _, sizes = reference.FAMILIES["t5"]
    theirs = reference.perturb(T5ForConditionalGeneration(AutoConfig.for_model("t5", **sizes)))
    theirs.save_pretrained(tmp_path)
    with caplog.at_level(logging.WARNING):
        ours = lpe.from_pretrained(tmp_path)
    assert "not used by lpe and left out: decoder.block.0" in caplog.text
    encoder = T5EncoderModel.from_pretrained(tmp_path).eval()
    inputs = reference.batch(theirs.config, [40, 7], "right")
    assert reference.error(ours.encode(inputs), reference.run(encoder, inputs), inputs) < 1e-4
    ours.save_pretrained(tmp_path / "out")
    written = json.loads((tmp_path / "out/config.json").read_text())
    assert written["architectures"] == ["T5EncoderModel"] and written["is_encoder_decoder"] is False
    back = T5EncoderModel.from_pretrained(tmp_path / "out").eval()
    assert reference.error(reference.run(back, inputs), reference.run(encoder, inputs), inputs) == 0


def test_heads_that_need_t5s_decoder_are_refused_by_name(tmp_path):
    _, sizes = reference.FAMILIES["t5"]
    T5ForSequenceClassification(AutoConfig.for_model("t5", **sizes)).save_pretrained(tmp_path)
    with pytest.raises(
        ValueError, match=r"classification_head\.\S+ is of a head of t5 that lpe does not have, for it reads the decoder"
    ):
        lpe.from_pretrained(tmp_path)
    assert lpe.from_pretrained(tmp_path, ignore="classification_head.").recipe.heads == ()


@pytest.mark.parametrize(
    ("cls", "family", "left_out"),
    [(ElectraForPreTraining, "electra", "discriminator_predictions.dense"), (AlbertForPreTraining, "albert", "sop_classifier")],
)
def test_heads_of_pretraining_are_left_out_with_a_notice(cls, family, left_out, tmp_path, caplog):
    _, sizes = reference.FAMILIES[family]
    theirs = reference.perturb(cls(AutoConfig.for_model(family, **sizes)))
    theirs.save_pretrained(tmp_path)
    with caplog.at_level(logging.WARNING):
        ours = lpe.from_pretrained(tmp_path)
    assert f"not used by lpe and left out: {left_out}" in caplog.text
    inputs = reference.batch(theirs.config, [16, 7], "right")
    want = reference.run(theirs.base_model, inputs)
    assert reference.error(ours.encode(inputs), want, inputs) < 1e-4


@pytest.mark.parametrize(
    ("family", "key", "message"),
    [
        ("roformer", "encoder.embed_positions.weight", "is not the constant of shape (16, 6) that it should be"),
        ("t5", "encoder.embed_tokens.weight", "and shared.weight should be equal and are not"),
    ],
)
def test_constants_and_copies_are_compared(family, key, message, tmp_path):
    state, raw = tiny.state_and_config(family, "base")
    plain = lpe.from_pretrained(tiny.write(tmp_path / "plain", state, raw))
    without = {k: x for k, x in state.items() if k != key}
    assert tiny.equal(lpe.from_pretrained(tiny.write(tmp_path / "without", without, raw)), plain)
    state[key] = state[key] + 0.1
    with pytest.raises(ValueError) as e:
        lpe.from_pretrained(tiny.write(tmp_path / "other", state, raw))
    assert message in str(e.value)


def test_a_copy_alone_is_taken(tmp_path):
    """Some files hold T5's embeddings under the encoder's name only."""
    state, raw = tiny.state_and_config("t5", "base")
    plain = lpe.from_pretrained(tiny.write(tmp_path / "plain", state, raw))
    del state["shared.weight"]
    assert tiny.equal(lpe.from_pretrained(tiny.write(tmp_path / "copy", state, raw)), plain)


def test_names_of_another_family_are_told(tmp_path):
    state, raw = tiny.state_and_config("distilbert", "mlm")
    with pytest.raises(ValueError, match="is a name of model_type='distilbert', but config.json says or leaves 'bert'"):
        lpe.from_pretrained(tiny.write(tmp_path, state, {**SIZES, "model_type": "bert"}))


@pytest.mark.parametrize("family", ["distilbert", "modernbert", "t5"])
def test_token_types_where_there_are_none(family, tmp_path):
    model = lpe.from_pretrained(with_config(family, tmp_path))
    with pytest.raises(ValueError, match="has token_type_ids, and this model no token types"):
        model.encode({"input_ids": np.ones((1, 3), int), "token_type_ids": np.zeros((1, 3), int)})


def test_a_head_without_a_class_is_refused(tmp_path):
    model = lpe.from_pretrained(with_config("t5", tmp_path))
    with pytest.raises(ValueError, match="stock t5 models have no classifier head; they have tagger"):
        stock.check(build.network(model.recipe), ("pooler", "classifier"))


def test_parts_of_a_tensor():
    table = (("a", "x.{i}.qkv[0/2]", "same"), ("b", "x.{i}.qkv[1/2]", "same"))
    specs = {n: Spec((2, 3, 4), ("layers", None, None), zeros) for n in "ab"}
    tensors = {f"x.{i}.qkv": np.random.default_rng(i).normal(size=(6, 4)).astype(np.float32) for i in (0, 1)}
    params = mapping.import_params(table, specs, tensors, "here")
    np.testing.assert_array_equal(params["b"][1], tensors["x.1.qkv"][3:])
    back = mapping.export_tensors(table, params)
    assert back.keys() == tensors.keys() and all((back[k] == x).all() for k, x in tensors.items())
    for bad in (np.zeros((5, 4), np.float32), np.zeros((8, 4), np.float32)):
        with pytest.raises(ValueError, match=r"x\.1\.qkv"):
            mapping.import_params(table, specs, {**tensors, "x.1.qkv": bad}, "here")
    with pytest.raises(ValueError, match=r"missing x\.1\.qkv\[0/2\]\n  missing x\.1\.qkv\[1/2\]"):
        mapping.import_params(table, specs, {"x.0.qkv": tensors["x.0.qkv"]}, "here")


def test_the_first_layer_may_lack_a_norm():
    table = (("n", "x.{i}.norm", "after_1st"),)
    tensors = {"x.1.norm": np.full(3, 2.0, np.float32)}
    params = mapping.import_params(table, {"n": Spec((2, 3), ("layers", None), zeros)}, tensors, "here")
    np.testing.assert_array_equal(params["n"], [[1, 1, 1], [2, 2, 2]])
    back = mapping.export_tensors(table, params)
    assert back.keys() == tensors.keys() and (back["x.1.norm"] == 2).all()
    with pytest.raises(ValueError, match="left over x.0.norm"):
        specs = {"n": Spec((2, 3), ("layers", None), zeros)}
        mapping.import_params(table, specs, {**tensors, "x.0.norm": tensors["x.1.norm"]}, "here")


def test_frozen_groups_of_shared_layers(tmp_path):
    """ALBERT's four layers have two groups of weights; with one frozen the backward pass ends where the other begins."""
    model = lpe.from_pretrained(with_config("albert", tmp_path))
    batch = {"input_ids": jnp.arange(5, 12)[None]}

    def grads(frozen: int) -> dict:
        encode = build.network(model.recipe, frozen).encode
        return jax.jit(jax.grad(lambda w: jnp.sin(encode(w, batch)[0]).sum()))(model.params)["layers"]

    whole, upper = grads(0), grads(1)
    for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(upper), strict=True):
        assert np.abs(a[0]).max() > 0 and (b[0] == 0).all()
        np.testing.assert_allclose(a[1], b[1], rtol=0, atol=1e-5 * max(1.0, float(np.abs(a[1]).max())))


WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] 今 天 气 很 好 今天 天气 ， 。".split()


@pytest.mark.parametrize(
    ("family", "own", "want"),
    [
        ("roformer", {}, ["今天天气", "很", "好"]),
        ("roformer", {"tokenizer_class": "BertTokenizer"}, ["今", "天", "天", "气", "很", "好"]),
        ("nezha", {}, ["今", "天", "天", "气", "很", "好"]),
    ],
)
def test_chinese_vocabularies(family, own, want, tmp_path):
    """RoFormer's first version has words of a segmenter in its vocab.txt, the others characters."""
    (tmp_path / "vocab.txt").write_text("\n".join([*WORDS, "今天天气"]) + "\n", encoding="utf-8")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": family, **SIZES}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True, **own}))
    tokenizer = read_tokenizer(tmp_path)
    assert tokenizer is not None
    ids = tokenizer("今天天气很好")["input_ids"]
    assert tokenizer.convert_ids_to_tokens(ids) == ["[CLS]", *want, "[SEP]"]


@pytest.mark.parametrize(("family", "types"), [("distilbert", False), ("electra", True)])
def test_a_tokenizer_makes_what_its_model_takes(family, types, tmp_path):
    """Its output goes into `encode` as it is."""
    state, raw = tiny.state_and_config(family, "base")
    folder = tiny.write(tmp_path, state, raw)
    (folder / "vocab.txt").write_text("\n".join(WORDS), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True}))
    model = lpe.from_pretrained(folder)
    batch = model.tokenizer(["今天", "好"], padding=True, return_tensors="np")
    assert ("token_type_ids" in batch) == types
    assert np.isfinite(model.encode(batch)).all()


def test_a_segmenter_that_is_missing_is_named(tmp_path, caplog, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "rjieba", None)
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS), encoding="utf-8")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "roformer", **SIZES}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True}))
    assert read_tokenizer(tmp_path) is None
    assert "rjieba" in caplog.text


def test_files_in_16_bit(tmp_path):
    """Constants and shared names are met in any precision."""
    state, raw = tiny.state_and_config("roformer", "mlm")
    folder = tiny.write(tmp_path, {k: x.to(torch.bfloat16) for k, x in state.items()}, raw)
    assert lpe.from_pretrained(folder).recipe.heads == ("mlm",)
