"""Where checkpoints are found, and that a tokenizer never cuts or pads a text of its own accord."""

import json
import shutil

import huggingface_hub
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertTokenizer

import lpe
from lpe.checkpoint import folder as checkpoint_folder
from tests import assets
from tests.checkpoint import tiny

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c"]


@pytest.fixture(scope="module")
def source():
    return tiny.state_and_config()


def test_minilm_keeps_a_truncation_to_128_that_must_not_act():
    path = assets.path("minilm")
    assert json.loads((path / "tokenizer.json").read_text())["truncation"]["max_length"] == 128
    tokenizer = checkpoint_folder.read_tokenizer(path)
    text = "a word " * 1000
    assert len(tokenizer(text)["input_ids"]) == 2002
    assert len(tokenizer(text, truncation=True)["input_ids"]) == 2002
    assert len(tokenizer.backend_tokenizer.encode(text).ids) == 2002
    assert len(tokenizer.backend_tokenizer.encode("a").ids) == 3


def test_a_long_text_is_an_error_not_a_cut(source, tmp_path):
    tiny.write(tmp_path, *source)
    BertTokenizer(vocab={w: i for i, w in enumerate(WORDS)}, model_max_length=8).save_pretrained(tmp_path)
    model = lpe.from_pretrained(tmp_path)
    assert model.encode(model.tokenizer("a b " * 7, return_tensors="np")).shape == (1, 16, 24)
    with pytest.raises(ValueError, match="17 tokens is longer than the 16 positions"):
        model.encode(model.tokenizer("a b " * 7 + "c", return_tensors="np"))


def test_saving_leaves_the_tokenizer_as_it_is(source, tmp_path):
    tiny.write(tmp_path / "in", *source)
    BertTokenizer(vocab={w: i for i, w in enumerate(WORDS)}).save_pretrained(tmp_path / "in")
    model = lpe.from_pretrained(tmp_path / "in")
    model.save_pretrained(tmp_path / "out")
    assert model.tokenizer.model_max_length > 1e29
    assert BertTokenizer.from_pretrained(tmp_path / "out").model_max_length == 16


@pytest.mark.parametrize(
    "own, cased",
    [
        ({"tokenizer_class": "BertTokenizer", "do_lower_case": False}, True),
        ({"do_lower_case": False}, True),
        ({"do_lower_case": True}, False),
        ({}, None),
        (None, None),
    ],
)
def test_a_bare_vocabulary_says_too_little(own, cased, source, tmp_path, caplog):
    """vocab.txt is a tokenizer only where something says how to split and whether to lower."""
    state, config = source
    tiny.write(tmp_path, state, {k: x for k, x in config.items() if k != "model_type"})
    (tmp_path / "vocab.txt").write_text("\n".join([*WORDS, "A"]) + "\n")
    if own is not None:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(own))
    tokenizer = lpe.from_pretrained(tmp_path).tokenizer
    if cased is None:
        assert tokenizer is None and "vocab.txt does not say" in caplog.text
    else:
        assert tokenizer.tokenize("A b") == (["A", "b"] if cased else ["a", "b"])


def test_tokenizer_json_needs_nothing_else(source, tmp_path):
    tiny.write(tmp_path, *source)
    backend = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.enable_truncation(2)
    backend.save(str(tmp_path / "tokenizer.json"))
    assert lpe.from_pretrained(tmp_path).tokenizer("a b c", add_special_tokens=False)["input_ids"] == [5, 6, 7]


def test_files_that_make_no_tokenizer(source, tmp_path, caplog):
    tiny.write(tmp_path, *source)
    (tmp_path / "tokenizer.json").write_text("{}")
    assert lpe.from_pretrained(tmp_path).tokenizer is None
    assert "makes no tokenizer of these files" in caplog.text


def test_hub_fetches_one_format(source, tmp_path, monkeypatch):
    repository = tiny.write(tmp_path / "there", *source, "pytorch_model.bin")
    asked = []

    def snapshot_download(hub_id, allow_patterns):
        asked.append((hub_id, allow_patterns))
        cache = tmp_path / "cache"
        cache.mkdir(exist_ok=True)
        for path in repository.iterdir():
            if any(path.match(p) for p in allow_patterns):
                shutil.copy(path, cache)
        return str(cache)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    assert lpe.from_pretrained("owner/name").recipe.heads == ("mlm",)
    assert [next(p for p in patterns if p.endswith(("safetensors", "msgpack", "bin"))) for _, patterns in asked] == [
        "model.safetensors",
        "flax_model.msgpack",
        "pytorch_model.bin",
    ]
    (repository / "pytorch_model.bin").rename(repository / "rust_model.ot")
    shutil.rmtree(tmp_path / "cache")
    with pytest.raises(FileNotFoundError, match="'owner/name' has no weights that lpe reads"):
        lpe.from_pretrained("owner/name")


def test_hub_out_of_reach(monkeypatch):
    def snapshot_download(hub_id, allow_patterns):
        raise OSError("no route")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    with pytest.raises(FileNotFoundError, match="'owner/name' is no folder here and could not be fetched"):
        lpe.from_pretrained("owner/name")
    with pytest.raises(FileNotFoundError, match="'name' is no folder here and could not be fetched.*bert-mini"):
        lpe.from_pretrained("name")
    for nowhere in ("./name", "a/b/c", __file__):
        with pytest.raises(FileNotFoundError, match="is no folder, no hub id"):
            lpe.from_pretrained(nowhere)


def test_hub_ids_need_no_owner(source, tmp_path, monkeypatch):
    folder = tiny.write(tmp_path, *source)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda hub_id, allow_patterns: str(folder / hub_id / ".."))
    (folder / "bert-base-uncased").mkdir()
    assert lpe.from_pretrained("bert-base-uncased").recipe.heads == ("mlm",)


@pytest.mark.parametrize("file", ["tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize(
    "content, message",
    [(None, "is not JSON"), ("[]", "holds list"), ("version https://git-lfs.example/spec/v1\n", "is a git-lfs pointer")],
)
def test_damaged_tokenizer_files(file, content, message, source, tmp_path):
    tiny.write(tmp_path, *source)
    BertTokenizer(vocab={w: i for i, w in enumerate(WORDS)}).save_pretrained(tmp_path)
    text = (tmp_path / file).read_text()
    (tmp_path / file).write_text(text[: len(text) // 2] if content is None else content)
    with pytest.raises(ValueError, match=f"{file} {message}"):
        lpe.from_pretrained(tmp_path)


@pytest.mark.parametrize("beside", [True, False])
def test_the_tokenizer_does_not_mind_nulls_in_config_json(beside, source, tmp_path):
    state, config = source
    tiny.write(tmp_path, state, {**config, "tie_word_embeddings": None, "is_decoder": None})
    BertTokenizer(vocab={w: i for i, w in enumerate(WORDS)}).save_pretrained(tmp_path)
    if not beside:
        (tmp_path / "tokenizer_config.json").unlink()
    assert lpe.from_pretrained(tmp_path).tokenizer.tokenize("A b") == ["a", "b"]
