"""The names and configs that BERT checkpoints really have give one and the same model; anything else is an error by name."""

import json

import numpy as np
import pytest
import torch

import lpe
from tests.checkpoint import tiny
from tests.parity import reference

DECODER = {"bert": "cls.predictions.decoder", "roberta": "lm_head.decoder", "xlm-roberta": "lm_head.decoder"}
FAMILIES = pytest.mark.parametrize("family", DECODER)


@pytest.fixture(scope="module", params=DECODER)
def source(request, tmp_path_factory):
    """Family, tensors, config.json, and the model they give."""
    state, config = tiny.state_and_config(request.param)
    return request.param, state, config, lpe.from_pretrained(tiny.write(tmp_path_factory.mktemp("m"), state, config))


def renamed(state, *pairs):
    out = {}
    for key, x in state.items():
        for old, new in pairs:
            key = key.replace(old, new)
        out[key] = x
    return out


def test_names(source, tmp_path):
    family, state, config, plain = source
    prefix, decoder = "bert." if family == "bert" else "roberta.", DECODER[family]
    rows = config["max_position_embeddings"]
    variants = {
        "no prefix": {k.removeprefix(prefix): x for k, x in state.items()},
        "gamma and beta": renamed(state, ("Norm.weight", "Norm.gamma"), ("Norm.bias", "Norm.beta")),
        "buffers": {
            **state,
            f"{prefix}embeddings.position_ids": torch.arange(rows)[None],
            f"{prefix}embeddings.token_type_ids": torch.zeros(1, rows, dtype=torch.int64),
        },
        "no decoder": {k: x for k, x in state.items() if not k.startswith(decoder)},
        "no decoder bias": {k: x for k, x in state.items() if k != f"{decoder}.bias"},
        "only the decoder's bias": {k: x for k, x in state.items() if k != f"{decoder.removesuffix('.decoder')}.bias"},
    }
    for name, tensors in variants.items():
        folder = tiny.write(tmp_path / name, tensors, config)
        assert tiny.equal(lpe.from_pretrained(folder), plain), name


def test_configs(source, tmp_path):
    family, state, config, plain = source
    old = {"output_past": True, "pruned_heads": {}, "use_bfloat16": False, "do_sample": False, "top_k": 50, "max_length": 20}
    variants = {
        "named by architectures": {k: x for k, x in config.items() if k != "model_type"},
        "early transformers": {**config, **old, "position_embedding_type": "absolute"},
        "nulls": {**config, "position_embedding_type": None, "is_decoder": None, "pruned_heads": None},
    }
    for name, raw in variants.items():
        assert tiny.equal(lpe.from_pretrained(tiny.write(tmp_path / name, state, raw)), plain), name
    bare = {k: x for k, x in config.items() if k not in ("model_type", "architectures")}
    assert tiny.equal(lpe.from_pretrained(tiny.write(tmp_path / "bare", state, bare), model_type=family), plain)


def test_googles_own_config(tmp_path):
    state, config = tiny.state_and_config(num_labels=2)
    own = "attention_probs_dropout_prob hidden_act hidden_dropout_prob hidden_size initializer_range intermediate_size"
    own += " max_position_embeddings num_attention_heads num_hidden_layers type_vocab_size vocab_size"
    pooler = {"directionality": "bidi", "pooler_fc_size": 768, "pooler_num_attention_heads": 12, "pooler_num_fc_layers": 3}
    pooler |= {"pooler_size_per_head": 128, "pooler_type": "first_token_transform"}
    plain = lpe.from_pretrained(tiny.write(tmp_path / "plain", state, config))
    folder = tiny.write(tmp_path / "google", state, {**{k: config[k] for k in own.split()}, **pooler})
    (folder / "config.json").rename(folder / "bert_config.json")
    assert tiny.equal(lpe.from_pretrained(folder), plain)


@FAMILIES
def test_untied(family, tmp_path):
    """The decoder has a matrix and a bias of its own; it survives the way out and back into transformers."""
    theirs = reference.tiny(family, "mlm", tie_word_embeddings=False)
    theirs.save_pretrained(tmp_path / "in")
    inputs = reference.batch(theirs.config, [9, 5], "right")
    ours = lpe.from_pretrained(tmp_path / "in")
    assert reference.error(ours.mlm_logits(inputs), reference.run(theirs, inputs), inputs) < 1e-4
    ours.save_pretrained(tmp_path / "out")
    back = type(theirs).from_pretrained(tmp_path / "out")
    assert reference.error(reference.run(back, inputs), reference.run(theirs, inputs), inputs) < 1e-6
    assert tiny.equal(lpe.from_pretrained(tmp_path / "out"), ours)


def test_untied_without_decoder(tmp_path):
    state, config = tiny.state_and_config()
    tensors = {k: x for k, x in state.items() if "decoder" not in k}
    folder = tiny.write(tmp_path, tensors, {**config, "tie_word_embeddings": False})
    with pytest.raises(ValueError, match="missing cls.predictions.decoder.weight.*tie_word_embeddings=True"):
        lpe.from_pretrained(folder)
    assert lpe.from_pretrained(folder, tie_word_embeddings=True).config.tie_word_embeddings


@pytest.mark.parametrize("pad", [0, 1, 7, 46])
@FAMILIES
def test_any_pad_token_id(family, pad, tmp_path):
    """RoBERTa's positions start behind it; BERT does not care."""
    theirs = reference.tiny(family, "base", pad_token_id=pad, max_position_embeddings=16 + pad + 1)
    theirs.save_pretrained(tmp_path)
    ours = lpe.from_pretrained(tmp_path)
    assert ours.max_length == (16 + pad + 1 if family == "bert" else 16)
    inputs = reference.batch(theirs.config, [16, 9], "left")
    assert reference.error(ours.encode(inputs), reference.run(theirs, inputs), inputs) < 1e-4


def test_labels(tmp_path):
    state, config = tiny.state_and_config("roberta", "classifier", num_labels=4)
    names = {str(i): n for i, n in enumerate("abcd")}
    bare = {k: x for k, x in config.items() if k not in ("id2label", "label2id", "num_labels")}
    for name, labels in {"id2label": {"id2label": names}, "num_labels": {"num_labels": 4}}.items():
        model = lpe.from_pretrained(tiny.write(tmp_path / name, state, {**bare, **labels}))
        assert model.config.num_labels == 4
    stale = tiny.write(tmp_path / "stale", state, {**bare, "num_labels": 4, "id2label": {"0": "LABEL_0", "1": "LABEL_1"}})
    model = lpe.from_pretrained(stale)
    model.save_pretrained(tmp_path / "out")
    assert json.loads((tmp_path / "out" / "config.json").read_text())["id2label"] == {str(i): f"LABEL_{i}" for i in range(4)}
    assert tiny.equal(lpe.from_pretrained(tmp_path / "out"), model)
    with pytest.raises(ValueError, match=r"classifier.out_proj.weight: shape \(4, 24\), expected \(2, 24\)(.|\n)*num_labels="):
        lpe.from_pretrained(tiny.write(tmp_path / "none", state, bare))
    assert tiny.equal(lpe.from_pretrained(tmp_path / "none", num_labels=4), model)


@pytest.mark.parametrize(
    "attributes, message",
    [
        ({"position_embedding_type": "relative_key"}, "position_embedding_type='relative_key': lpe computes only 'absolute'"),
        ({"is_decoder": True}, "is_decoder=True: lpe computes only False; .*override it: is_decoder=False"),
        ({"add_cross_attention": True}, "add_cross_attention=True"),
        ({"pruned_heads": {"0": [1]}}, "pruned_heads={'0': \\[1\\]}"),
        ({"use_alibi": True}, "use_alibi=True is not known to lpe.*take it out of config.json"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"auto_map": {"AutoModel": "x.Y"}}, "auto_map"),
        ({"model_type": "gpt2"}, "model_type 'gpt2' is not read by lpe; it reads bert, roberta, xlm-roberta"),
        ({"model_type": None, "architectures": ["GPT2Model"]}, "model_type 'GPT2Model' is not read by lpe"),
        ({"vocab_size": None}, "vocab_size is missing"),
        ({"hidden_act": "geglu"}, "hidden_act='geglu'"),
        ({"num_attention_heads": 5}, "no multiple of num_attention_heads=5"),
    ],
)
def test_config_errors(attributes, message, tmp_path):
    state, config = tiny.state_and_config()
    with pytest.raises(ValueError, match=message):
        lpe.from_pretrained(tiny.write(tmp_path, state, {**config, **attributes}))


@pytest.mark.parametrize(
    "key, value, allowed",
    [
        ("num_attention_heads", 0, "a whole number above 0"),
        ("hidden_size", "128", "a whole number above 0"),
        ("num_hidden_layers", "4", "a whole number above 0"),
        ("vocab_size", 512.0, "a whole number above 0"),
        ("type_vocab_size", True, "a whole number above 0"),
        ("max_position_embeddings", "16", "a whole number above 0"),
        ("layer_norm_eps", "1e-12", "a number with a point above 0"),
        ("layer_norm_eps", 0.0, "a number with a point above 0"),
        ("layer_norm_eps", float("nan"), "a number with a point above 0"),
        ("initializer_range", None, "a number with a point"),
        ("hidden_dropout_prob", 2, "a number from 0 up to, not including, 1"),
        ("attention_probs_dropout_prob", 1.0, "a number from 0 up to, not including, 1"),
        ("classifier_dropout", -0.1, "a number from 0 up to, not including, 1 or null"),
        ("hidden_act", None, "the name of an activation"),
        ("pad_token_id", "0", "a whole number or null"),
        ("tie_word_embeddings", "false", "true or false or null"),
        ("num_labels", 0, "a whole number above 0"),
        ("id2label", ["a"], "a map from numbers to names or null"),
        ("architectures", 3, "a list of names, or one name"),
        ("architectures", [3], "a list of names, or one name"),
    ],
)
def test_kinds_of_values(key, value, allowed, tmp_path):
    state, config = tiny.state_and_config()
    folder = tiny.write(tmp_path, state, {**config, "model_type": None, "intermediate_size": -1, "x": 1, key: value})
    with pytest.raises(ValueError) as e:
        lpe.from_pretrained(folder)
    assert str(folder) in str(e.value) and "config.json" in str(e.value)
    assert f"\n  {key}={value!r}, allowed is {allowed}" in str(e.value)
    assert "\n  intermediate_size=-1, allowed" in str(e.value) and "\n  x=1 is not known" in str(e.value)


def test_values_of_a_right_kind(tmp_path):
    state, config = tiny.state_and_config()
    plain = lpe.from_pretrained(tiny.write(tmp_path / "plain", state, config))
    for i, changes in enumerate(
        [
            {"tie_word_embeddings": None},
            {"architectures": "BertForMaskedLM", "model_type": None},
            {"classifier_dropout": None, "pad_token_id": None, "num_labels": None},
        ]
    ):
        folder = tiny.write(tmp_path / str(i), state, {**config, **changes})
        assert tiny.equal(lpe.from_pretrained(folder), plain), changes
    assert lpe.from_pretrained(tmp_path / "plain", hidden_dropout_prob=0).config.hidden_dropout_prob == 0


def test_an_encoder_may_be_taken_from_a_decoders_config(tmp_path):
    state, config = tiny.state_and_config()
    folder = tiny.write(tmp_path, state, {**config, "is_decoder": True})
    assert lpe.from_pretrained(folder, is_decoder=False).recipe.heads == ("mlm",)


def test_family_errors(tmp_path):
    state, config = tiny.state_and_config("roberta")
    bare = {k: x for k, x in config.items() if k not in ("model_type", "architectures")}
    with pytest.raises(ValueError, match='no model_type(.|\n)*model_type="bert" or model_type="roberta"'):
        lpe.from_pretrained(tiny.write(tmp_path / "bare", state, bare))
    with pytest.raises(ValueError, match="roberta.* is a name of model_type='roberta', but config.json says or leaves 'bert'"):
        lpe.from_pretrained(tiny.write(tmp_path / "wrong", state, {**config, "model_type": "bert"}))
    for pad in (-2, 17, 18):
        folder = tiny.write(tmp_path / str(pad), state, {**config, "pad_token_id": pad})
        with pytest.raises(ValueError, match=f"pad_token_id={pad} leaves no positions.*allowed are 0 to 16"):
            lpe.from_pretrained(folder)


LAYER = "bert.encoder.layer.1.attention.self.query."


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda s: s.pop(LAYER + "bias"), r"missing encoder\.layer\.1\.attention\.self\.query\.bias"),
        (lambda s: s.update({"bert.extra": torch.ones(2)}), "left over extra"),
        (lambda s: s.update({LAYER.replace("1", "2") + "bias": torch.ones(24)}), r"left over encoder\.layer\.2"),
        (lambda s: s.update({LAYER + "bias": torch.ones(25)}), r"query\.bias: shape \(25,\), expected \(24,\)"),
        (lambda s: s.update({"span.weight": torch.ones(2, 24)}), "left over span.weight"),
        (lambda s: s.update({"embeddings.LayerNorm.gamma": torch.ones(24)}), "two tensors come to embeddings.LayerNorm.weight"),
        (lambda s: s.update({LAYER + "bias": torch.ones(24, dtype=torch.int8)}), r"query\.bias: dtype int8, expected floating"),
        (lambda s: s.pop("cls.predictions.transform.dense.bias"), r"missing cls\.predictions\.transform\.dense\.bias"),
    ],
)
def test_weights_errors(change, message, tmp_path):
    state, config = tiny.state_and_config()
    change(state)
    with pytest.raises(ValueError, match=message):
        lpe.from_pretrained(tiny.write(tmp_path, state, config))


def test_layers_must_agree_with_the_config(tmp_path):
    state, config = tiny.state_and_config()
    for layers, message in ((1, "left over encoder.layer.1"), (3, "missing encoder.layer.2")):
        folder = tiny.write(tmp_path / str(layers), state, {**config, "num_hidden_layers": layers})
        with pytest.raises(ValueError, match=message):
            lpe.from_pretrained(folder)


def test_ignore(tmp_path):
    state, config = tiny.state_and_config()
    plain = lpe.from_pretrained(tiny.write(tmp_path / "plain", state, config))
    more = {**state, "cls.species.weight": torch.ones(3, 24), "bert.species": torch.ones(3)}
    folder = tiny.write(tmp_path / "more", more, config)
    assert tiny.equal(lpe.from_pretrained(folder, ignore=("cls.species.", "bert.species")), plain)
    with pytest.raises(ValueError, match="ignore='cls.chain.' meets no tensor"):
        lpe.from_pretrained(folder, ignore="cls.chain.")
    headless = lpe.from_pretrained(folder, ignore=("cls.", "species"))
    assert headless.recipe.heads == ()
    with pytest.raises(ValueError, match="has no mlm head"):
        headless.mlm_logits({"input_ids": np.ones((1, 2), int)})


@pytest.mark.parametrize("key, bad", [("input_ids", 47), ("input_ids", -1), ("token_type_ids", 2), ("token_type_ids", -1)])
def test_ids_outside(key, bad, source):
    _, _, config, model = source
    batch = {"input_ids": np.ones((2, 5), int), "token_type_ids": np.zeros((2, 5), int)}
    batch[key][1, 3] = bad
    top = config["vocab_size" if key == "input_ids" else "type_vocab_size"] - 1
    with pytest.raises(ValueError, match=f"{key} has {bad}, allowed are 0 to {top}"):
        model.encode(batch)
