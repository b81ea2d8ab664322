"""Every format and dtype gives the same model; damaged and missing files and git-lfs pointers are errors that name the file."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch

import lpe
from lpe.checkpoint import files
from tests.checkpoint import tiny
from tests.checkpoint.test_flax import GOLDEN

FORMATS = ["model.safetensors", "pytorch_model.bin"]


@pytest.fixture(scope="module")
def source():
    return tiny.state_and_config()


@pytest.fixture(scope="module")
def plain(source, tmp_path_factory):
    return lpe.from_pretrained(tiny.write(tmp_path_factory.mktemp("plain"), *source))


def test_torch_files_equal_safetensors(source, plain, tmp_path):
    for new in (True, False):
        folder = tiny.write(tmp_path / str(new), *source, "pytorch_model.bin", _use_new_zipfile_serialization=new)
        assert tiny.equal(lpe.from_pretrained(folder), plain)


def test_no_format_needs_torch(source, tmp_path):
    """Not even through transformers: the process has no torch to import."""
    folders = [
        GOLDEN / "bert_mlm",
        tiny.write(tmp_path / "zip", *source, "pytorch_model.bin"),
        tiny.write(tmp_path / "st", *source),
    ]
    code = "import sys; sys.modules['torch'] = None; import lpe; [lpe.from_pretrained(f) for f in sys.argv[1:]]"
    subprocess.run([sys.executable, "-W", "ignore", "-c", code, *map(str, folders)], check=True)


@pytest.mark.parametrize("file", FORMATS)
def test_shards_equal_one_file(file, source, plain, tmp_path):
    assert tiny.equal(lpe.from_pretrained(tiny.write_sharded(tmp_path, *source, file)), plain)


@pytest.mark.parametrize("file", FORMATS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_dtypes(file, dtype, source, tmp_path):
    state, config = source
    cast = {k: x.to(getattr(torch, dtype)) for k, x in state.items()}
    got = files.read_tensors(tiny.write(tmp_path, cast, config, file))
    for k, x in cast.items():
        assert got[k].dtype == np.float32
        np.testing.assert_array_equal(got[k], x.float().numpy())


def test_the_safest_format_is_read(source, plain, tmp_path):
    tiny.write(tmp_path, *source)
    (tmp_path / "pytorch_model.bin").write_bytes(b"stale")
    assert tiny.equal(lpe.from_pretrained(tmp_path), plain)


def test_quantised_weights_are_refused(source, tmp_path):
    state, config = source
    tiny.write(tmp_path, {**state, "x": torch.zeros(4).to(torch.float8_e4m3fn)}, config)
    with pytest.raises(ValueError, match="model.safetensors: x is float8 .*save the weights as float32"):
        lpe.from_pretrained(tmp_path)


CUTS = [0, 1, 7, 8, 100, 0.3, 0.5, 0.9, -1]


@pytest.mark.parametrize("kind", ["model.safetensors", "flax_model.msgpack", "zip", "stream"])
def test_truncated(kind, source, tmp_path):
    """Cut anywhere, a file is an error that names it."""
    name = "pytorch_model.bin" if kind in ("zip", "stream") else kind
    if kind == "flax_model.msgpack":
        shutil.copytree(GOLDEN / "bert_mlm", tmp_path, dirs_exist_ok=True)
    else:
        options = {"_use_new_zipfile_serialization": kind == "zip"} if name == "pytorch_model.bin" else {}
        tiny.write(tmp_path, *source, name, **options)
    whole = (tmp_path / name).read_bytes()
    for cut in CUTS:
        (tmp_path / name).write_bytes(whole[: int(cut * len(whole)) if isinstance(cut, float) else cut])
        with pytest.raises(ValueError, match=f"{name} is damaged or not in the format .*fetch it again"):
            lpe.from_pretrained(tmp_path)


@pytest.mark.parametrize("file", [*FORMATS, "flax_model.msgpack"])
def test_missing_shard(file, source, tmp_path):
    if file == "flax_model.msgpack":
        shutil.copytree(GOLDEN / "bert_classifier_sharded", tmp_path, dirs_exist_ok=True)
    else:
        tiny.write_sharded(tmp_path, *source, file)
    stem, suffix = file.rsplit(".", 1)
    shard = next(tmp_path.glob(f"{stem}-00002*.{suffix}"))
    shard.unlink()
    with pytest.raises(FileNotFoundError, match=f"lacks {shard.name}, although {file}.index.json names it"):
        lpe.from_pretrained(tmp_path)


@pytest.mark.parametrize("file", ["model.safetensors", "flax_model.msgpack", "pytorch_model.bin", "config.json", "vocab.txt"])
def test_git_lfs_pointer(file, source, tmp_path):
    state, config = source
    tiny.write(tmp_path, state, config)
    if file not in ("config.json", "vocab.txt"):
        (tmp_path / "model.safetensors").unlink()
    (tmp_path / file).write_text("version https://git-lfs.example/spec/v1\noid sha256:0123\nsize 440473133\n")
    with pytest.raises(ValueError, match=f"{file} is a git-lfs pointer.*git lfs pull"):
        lpe.from_pretrained(tmp_path)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_not_finite(value, source, tmp_path):
    state, config = source
    bad = state["bert.encoder.layer.1.output.dense.weight"].clone()
    bad[3, 4] = value
    tiny.write(tmp_path, {**state, "bert.encoder.layer.1.output.dense.weight": bad}, config)
    with pytest.raises(ValueError, match=r"encoder\.layer\.1\.output\.dense\.weight: not finite"):
        lpe.from_pretrained(tmp_path)


def test_no_weights_and_no_config(source, tmp_path):
    with pytest.raises(FileNotFoundError, match="config.json does not exist"):
        lpe.from_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(source[1]))
    (tmp_path / "tf_model.h5").write_bytes(b"")
    with pytest.raises(FileNotFoundError, match="no weights that lpe reads.*it has config.json, tf_model.h5"):
        lpe.from_pretrained(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match="config.json is not JSON"):
        lpe.from_pretrained(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(ValueError, match="config.json holds list"):
        lpe.from_pretrained(tmp_path)


def test_bad_index(source, tmp_path):
    tiny.write_sharded(tmp_path, *source, "model.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    for content in ({}, {"weight_map": {"x": "../elsewhere.safetensors"}}, {"weight_map": [1]}):
        index.write_text(json.dumps(content))
        with pytest.raises(ValueError, match="index.json has no weight_map"):
            lpe.from_pretrained(tmp_path)


def test_a_tensor_in_two_shards(source, tmp_path):
    state, config = source
    tiny.write_sharded(tmp_path, state, config, "model.safetensors")
    key = sorted(state)[1]
    tiny.write(tmp_path, {k: state[k] for k in [*sorted(state)[::2], key]}, config, "model-00001-of-00002.safetensors")
    with pytest.raises(ValueError, match=f"{key} is in another shard too"):
        lpe.from_pretrained(tmp_path)
