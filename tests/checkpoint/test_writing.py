"""A folder is written whole or not at all, in any format, and what lay beside the source travels."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from flax.serialization import msgpack_restore
from flax.traverse_util import flatten_dict
from safetensors import safe_open

import lpe
from lpe import saving
from lpe.checkpoint import beside, files, writing
from tests.checkpoint import tiny
from tests.checkpoint.test_flax import GOLDEN


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return lpe.from_pretrained(tiny.write(tmp_path_factory.mktemp("source"), *tiny.state_and_config()))


@pytest.mark.parametrize("format, weights", [("stock", "safetensors"), ("stock", "msgpack"), ("lpe", "safetensors")])
@pytest.mark.parametrize("dtype", files.DTYPES)
@pytest.mark.parametrize("size", ["5GB", "10KB"])
def test_every_format_comes_back(format, size, dtype, weights, model, tmp_path):
    model.save_pretrained(tmp_path / "out", dtype=dtype, format=format, weights=weights, max_shard_size=size)
    name, _ = writing.WRITERS[weights]
    stem, suffix = name.rsplit(".", 1)
    shards = sorted(p for p in (tmp_path / "out").iterdir() if p.suffix == f".{suffix}")
    if size == "5GB":
        assert [p.name for p in shards] == [name]
    else:
        assert len(shards) > 2 and shards[0].name == f"{stem}-00001-of-{len(shards):05}.{suffix}"
        index = json.loads((tmp_path / f"out/{name}.index.json").read_text())
        assert set(index["weight_map"].values()) == {p.name for p in shards} and index["metadata"]["total_size"] > 10_000
    again = lpe.from_pretrained(tmp_path / "out")
    cast = files.DTYPES[dtype]
    for a, b in zip(tiny.jax.tree.leaves(again.params), tiny.jax.tree.leaves(model.params), strict=True):
        np.testing.assert_array_equal(a, np.asarray(b).astype(cast).astype(np.float32))
    assert again.recipe == model.recipe and again.config == model.config


@pytest.mark.parametrize("name", ["bert_mlm", "bert_classifier_sharded", "roberta_classifier"])
def test_msgpack_is_that_of_transformers_flax_classes(name, tmp_path):
    """The same paths, shapes and numbers as in the files that FlaxBert and FlaxRoberta of transformers 4.57 wrote."""

    def tree(folder: Path) -> dict:
        return {
            k: x
            for p in sorted(folder.glob("*.msgpack"))
            for k, x in flatten_dict(msgpack_restore(p.read_bytes()), sep="/").items()
        }

    lpe.from_pretrained(GOLDEN / name).save_pretrained(tmp_path / "out", weights="msgpack", max_shard_size="10KB")
    want, got = tree(GOLDEN / name), tree(tmp_path / "out")
    assert sorted(got) == sorted(want)
    for key, x in want.items():
        np.testing.assert_array_equal(got[key], np.asarray(x, np.float32), err_msg=key)
    index = json.loads((tmp_path / "out/flax_model.msgpack.index.json").read_text())
    assert sorted(index["weight_map"]) == sorted(want)


def test_shards_say_what_transformers_wants(model, tmp_path):
    from transformers import AutoModelForMaskedLM

    model.save_pretrained(tmp_path / "out", max_shard_size="10KB")
    stock, about = AutoModelForMaskedLM.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not about["missing_keys"] and not about["unexpected_keys"]
    with safe_open(next((tmp_path / "out").glob("*.safetensors")), framework="np") as f:
        assert f.metadata() == {"format": "pt"}


@pytest.mark.parametrize(
    "options, message",
    [
        ({"dtype": "int8"}, "dtype='int8', allowed are float32, float16, bfloat16"),
        ({"weights": "bin"}, "weights='bin', allowed are safetensors, msgpack"),
        ({"format": "lpe", "weights": "msgpack"}, "weights='msgpack' with format='lpe', which is safetensors alone"),
        ({"format": "onnx"}, "format='onnx', allowed are stock, lpe"),
        ({"max_shard_size": "lots"}, "max_shard_size='lots', allowed are sizes such as '5GB'"),
        ({"max_shard_size": "0GB"}, "max_shard_size='0GB'"),
        ({"max_shard_size": 5}, "max_shard_size=5"),
    ],
)
def test_wrong_options(options, message, model, tmp_path):
    with pytest.raises(ValueError, match=message):
        model.save_pretrained(tmp_path / "out", **options)
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_is_kept_unless_it_may_go(model, tmp_path):
    target = tmp_path / "out"
    target.mkdir()
    (target / "mine.txt").write_text("keep")
    with pytest.raises(FileExistsError, match="is not empty; choose another folder, remove it first, or overwrite it"):
        model.save_pretrained(target)

    def fail(folder):
        assert (folder / "config.json").is_file() and (target / "mine.txt").is_file()
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        saving.save(model, target, overwrite=True, inspect=fail)
    assert [p.name for p in tmp_path.iterdir()] == ["out"] and (target / "mine.txt").read_text() == "keep"
    model.save_pretrained(target, overwrite=True)
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    assert sorted(p.name for p in target.iterdir()) == ["config.json", "model.safetensors"]
    assert target.stat().st_mode & 0o777 == 0o755
    (tmp_path / "file").write_text("")
    for place, error in ((tmp_path / "file", FileExistsError), (tmp_path / "file/below", NotADirectoryError)):
        with pytest.raises(error, match="choose another name"):
            model.save_pretrained(place, overwrite=True)


def test_a_folder_that_cannot_step_aside_stays(model, tmp_path, monkeypatch):
    target = tmp_path / "out"
    model.save_pretrained(target)
    before = (target / "config.json").stat().st_mtime_ns
    real = os.rename

    def rename(a, b):
        if Path(b) == target and Path(a).suffix == writing.PART:
            raise OSError("no")
        real(a, b)

    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(OSError, match="no"):
        model.save_pretrained(target, overwrite=True)
    assert [p.name for p in tmp_path.iterdir()] == ["out"] and (target / "config.json").stat().st_mtime_ns == before


def test_a_folder_that_was_stepping_aside_comes_back(model, tmp_path, caplog):
    """As after a kill between the two renames."""
    target = tmp_path / "out [1]"
    model.save_pretrained(target)
    (target / "mine.txt").write_text("keep")
    target.rename(tmp_path / f".{target.name}-12345678{writing.OLD}")
    with pytest.raises(FileExistsError, match="is not empty"):
        model.save_pretrained(target)
    assert "is back" in caplog.text and (target / "mine.txt").read_text() == "keep"
    model.save_pretrained(target, overwrite=True)
    assert [p.name for p in tmp_path.iterdir()] == [target.name] and not (target / "mine.txt").exists()


def test_a_link_stays_a_link(model, tmp_path):
    model.save_pretrained(tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    model.save_pretrained(tmp_path / "link", overwrite=True, dtype="float16")
    assert (tmp_path / "link").is_symlink() and sorted(p.name for p in tmp_path.iterdir()) == ["link", "real"]
    assert json.loads((tmp_path / "real/config.json").read_text())["dtype"] == "float16"


def test_the_source_is_never_touched(model, tmp_path):
    folder = tiny.write(tmp_path / "in", *tiny.state_and_config())
    mine = lpe.from_pretrained(folder)
    for target in (folder, tmp_path):
        with pytest.raises(ValueError, match="is, or holds, the checkpoint that is read, which is never touched"):
            mine.save_pretrained(target, overwrite=True)
    mine.save_pretrained(folder / "below")
    (folder / "modules.json").write_text(
        '[{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]'
    )
    with pytest.raises(ValueError, match="all of whose files travel; choose a folder outside of it"):
        mine.save_pretrained(folder / "again")


KILLED = """
import signal, sys, time
import lpe
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored from birth where the tests run in the background
from lpe import saving
def wait(folder):
    print("half", flush=True)
    time.sleep(60)
saving.save(lpe.from_pretrained(sys.argv[1]), __import__("pathlib").Path(sys.argv[2]), inspect=wait)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=lambda n: n.name)
def test_killed_it_leaves_no_half_folder(number, model, tmp_path):
    source = tiny.write(tmp_path / "in", *tiny.state_and_config())
    command = [sys.executable, "-W", "ignore", "-c", KILLED, str(source), str(tmp_path / "out")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout.readline() == "half\n"
        left = [p.name for p in tmp_path.iterdir() if p.name != "in"]
        assert len(left) == 1 and left[0].startswith(".out-") and left[0].endswith(".part")
        model.save_pretrained(tmp_path / "elsewhere")
        lpe.from_pretrained(source).save_pretrained(tmp_path / "other")
        writing._recover(tmp_path / "out")
        assert (tmp_path / left[0]).exists(), "the process that writes there lives"
        process.send_signal(number)
    assert not (tmp_path / "out").exists()
    model.save_pretrained(tmp_path / "out")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["elsewhere", "in", "other", "out"]


def test_licence_and_card_travel_and_old_weights_do_not(tmp_path):
    folder = tiny.write(tmp_path / "in", *tiny.state_and_config())
    for name in (
        "LICENSE.txt",
        "README.md",
        "NOTICE",
        "vocab.txt",
        "pytorch_model.bin",
        "trainer_state.json",
        "onnx/model.onnx",
    ):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(name)
    (folder / "tokenizer_config.json").write_text('{"model_max_length": 16}')
    model = lpe.from_pretrained(folder).extend(max_length=32)
    model.save_pretrained(tmp_path / "out")
    assert sorted(str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*") if p.is_file()) == [
        "LICENSE.txt", "NOTICE", "README.md", "config.json", "model.safetensors", "tokenizer_config.json", "vocab.txt",
    ]  # fmt: skip
    about = {"model_max_length": 32}  # and no tokenizer_class, which the source does not have either
    assert json.loads((tmp_path / "out/tokenizer_config.json").read_text()) == about
    assert beside.sort(folder).left == ["model.safetensors", "onnx/model.onnx", "pytorch_model.bin", "trainer_state.json"]


def test_a_source_that_went_away_is_said(tmp_path, caplog):
    folder = tiny.write(tmp_path / "in", *tiny.state_and_config())
    model = lpe.from_pretrained(folder)
    folder.rename(tmp_path / "moved")
    model.save_pretrained(tmp_path / "out")
    assert "is not there any more, so that no licence or model card travels" in caplog.text


def test_an_encoder_in_a_folder_of_its_own(tmp_path):
    """As sentence-transformers wrote them before version 2."""
    tiny.write(tmp_path / "in", *tiny.state_and_config("bert", "base"))
    root = tmp_path / "root"
    (root / "1_Pooling").mkdir(parents=True)
    (tmp_path / "in").rename(root / "0_Transformer")
    (root / "1_Pooling/config.json").write_text('{"word_embedding_dimension": 24}')
    (root / "0_Transformer/sentence_bert_config.json").write_text('{"max_seq_length": 16}')
    modules = [
        {"idx": i, "name": str(i), "path": p, "type": f"sentence_transformers.models.{p[2:]}"}
        for i, p in enumerate(("0_Transformer", "1_Pooling"))
    ]
    (root / "modules.json").write_text(json.dumps(modules))
    model = lpe.from_pretrained(root).extend(max_length=32)
    model.save_pretrained(tmp_path / "out")
    assert sorted(str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*") if p.is_file()) == [
        "0_Transformer/config.json", "0_Transformer/model.safetensors", "0_Transformer/sentence_bert_config.json",
        "1_Pooling/config.json", "modules.json",
    ]  # fmt: skip
    assert json.loads((tmp_path / "out/0_Transformer/sentence_bert_config.json").read_text()) == {"max_seq_length": 32}
    assert lpe.from_pretrained(tmp_path / "out").max_length == 32


def test_a_neighbour_of_a_similar_name_is_left_alone(model, tmp_path):
    other = tmp_path / f".out-y-12345678{writing.PART}"
    other.mkdir()
    dead = tmp_path / f".out-12345678{writing.PART}"
    dead.mkdir()
    model.save_pretrained(tmp_path / "out")
    assert sorted(p.name for p in tmp_path.iterdir()) == [other.name, "out"]


def test_files_have_the_rights_of_the_umask(model, tmp_path):
    before = os.umask(0o077)
    try:
        model.save_pretrained(tmp_path / "mine")
    finally:
        os.umask(before)
    assert (tmp_path / "mine").stat().st_mode & 0o777 == 0o700
    assert {p.stat().st_mode & 0o777 for p in (tmp_path / "mine").iterdir()} == {0o600}


def sentence_transformer(root: Path) -> Path:
    tiny.write(root, *tiny.state_and_config("bert", "base"))
    modules = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
    (root / "modules.json").write_text(json.dumps(modules))
    return root


def test_what_a_sentence_transformers_folder_does_not_pass_on(tmp_path):
    root = sentence_transformer(tmp_path / "in")
    for name in ("verify.json", ".env", "checkpoint-500/model.safetensors", "openvino/model.xml", "2_Dense/model.safetensors"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("{}")
    lpe.from_pretrained(root).extend(max_length=32).save_pretrained(tmp_path / "out")
    kept = {str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*") if p.is_file()}
    assert kept == {"config.json", "model.safetensors", "modules.json", "2_Dense/model.safetensors"}
    assert beside.sort(root).left == ["checkpoint-500/model.safetensors", "model.safetensors", "openvino/model.xml"]


def test_sentence_transformers_reads_no_msgpack_and_no_broken_list(tmp_path):
    root = sentence_transformer(tmp_path / "in")
    model = lpe.from_pretrained(root)
    with pytest.raises(ValueError, match="is a sentence-transformers folder, which reads safetensors; leave it out"):
        model.save_pretrained(tmp_path / "out", weights="msgpack")
    (root / "modules.json").write_text("[")
    with pytest.raises(ValueError, match="is not sentence-transformers' list of modules, each with a path; repair it"):
        model.save_pretrained(tmp_path / "out")


@pytest.mark.parametrize("attention", [None, {"name": "window", "attention_window": 8}], ids=["bert", "longformer"])
def test_a_bare_vocabulary_is_opened_as_at_its_source(attention, tmp_path):
    """lpe makes no tokenizer of it, for nothing says whether texts are lower-cased; stock transformers has its own default."""
    from transformers import AutoTokenizer

    state, config = tiny.state_and_config()
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz"]
    folder = tiny.write(tmp_path / "in", state, config)
    (folder / "vocab.txt").write_text("\n".join([*words, *(f"w{i}" for i in range(config["vocab_size"] - len(words)))]))
    model = lpe.from_pretrained(folder)
    assert model.tokenizer is None
    model.extend(max_length=32, attention=attention).save_pretrained(tmp_path / "out")
    want, got = (AutoTokenizer.from_pretrained(tmp_path / n) for n in ("in", "out"))
    assert got("a c b")["input_ids"] == want("a c b")["input_ids"] == [2, 5, 7, 6, 3]
    assert got.model_max_length == 32
