"""MiniLM, extended and saved, is a sentence-transformers folder that reads 1,500 tokens: files, lengths and buffers agree."""

import json

import numpy as np
import pytest
from transformers import AutoTokenizer

import lpe
from tests import assets, embeddings

LENGTH = 2048
pytestmark = pytest.mark.xdist_group("sentence-transformers")  # one process imports it
TEXT = embeddings.text(1_250) + " In the end it was the lighthouse keeper who mended the violin."


@pytest.fixture(scope="module")
def long():
    return lpe.from_pretrained(assets.path("minilm")).extend(max_length=LENGTH, position={"name": "hierarchical"})


@pytest.fixture(scope="module")
def folder(long, tmp_path_factory):
    target = tmp_path_factory.mktemp("saved") / "minilm-2048"
    long.save_pretrained(target)
    return target


@pytest.fixture(scope="module")
def stock(folder):
    from sentence_transformers import SentenceTransformer  # takes seconds to import

    return SentenceTransformer(str(folder), device="cpu", local_files_only=True)


def read(path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


def test_all_files_of_the_source_travel(folder):
    """Those that lpe has no reason to change are the same to the byte."""
    source = assets.path("minilm")
    for name in ("modules.json", "1_Pooling/config.json", "README.md", "config_sentence_transformers.json", "data_config.json"):
        assert (folder / name).read_bytes() == (source / name).read_bytes(), name
    there = {str(p.relative_to(source)) for p in source.rglob("*") if p.is_file() and not p.name.startswith(".")}
    kept = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    lost = there - kept
    assert lost <= {"vocab.txt", "special_tokens_map.json"}, lost  # tokenizer.json and tokenizer_config.json hold both


def test_every_file_says_the_same_length(folder):
    short, long = read(assets.path("minilm") / "sentence_bert_config.json"), read(folder / "sentence_bert_config.json")
    assert short["max_seq_length"] == 256 and long == {**short, "max_seq_length": LENGTH}
    assert read(folder / "config.json")["max_position_embeddings"] == LENGTH
    assert read(folder / "tokenizer_config.json")["model_max_length"] == LENGTH
    assert read(folder / "tokenizer.json")["truncation"] is None  # the source's cuts at 128
    assert len(AutoTokenizer.from_pretrained(folder)(3 * TEXT, truncation=True)["input_ids"]) == LENGTH


def test_what_sentence_transformers_makes_of_it_says_so_too(stock):
    assert stock.max_seq_length == stock.tokenizer.model_max_length == LENGTH
    buffers = dict(stock[0].auto_model.embeddings.named_buffers())
    assert {k: tuple(x.shape) for k, x in buffers.items()} == {"position_ids": (1, LENGTH), "token_type_ids": (1, LENGTH)}
    np.testing.assert_array_equal(buffers["position_ids"][0], np.arange(LENGTH))


def test_it_embeds_1500_tokens_as_lpe_and_truncates_nothing(stock, long):
    """The second text has another word in its last sentence, and so another embedding."""
    other = TEXT.replace("violin", "telescope")
    ours = embeddings.embed(long, [TEXT, other])
    theirs = stock.encode([TEXT, other], show_progress_bar=False)
    tokens = stock.preprocess([TEXT])["input_ids"].shape[1]
    found = float(np.abs(ours - theirs).max())
    print(f"parity sentence-transformers: {tokens} tokens: {found:.1e}")
    assert tokens == len(long.tokenizer(TEXT)["input_ids"]) >= 1_500
    assert found < 1e-5
    assert float(np.abs(theirs[0] - theirs[1]).max()) > 1e-4
