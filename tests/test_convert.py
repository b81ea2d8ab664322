"""python -m lpe.convert: what it writes, what it prints, and that a broken promise leaves nothing behind."""

import json
import re
import shutil

import jax.numpy as jnp
import numpy as np
import pytest

import lpe
from lpe import cli, convert
from lpe.verification import rereading
from tests import assets
from tests.checkpoint import tiny


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A tiny BERT with 16 positions and an MLM head."""
    return tiny.write(tmp_path_factory.mktemp("source"), *tiny.state_and_config())


@pytest.fixture
def run(monkeypatch, capsys):
    """Calls the command; returns what it printed, and how it ended: 0, or the last message."""
    monkeypatch.setattr(cli, "setup", lambda: None)
    monkeypatch.setattr(convert.signal, "signal", lambda *_: None)

    def call(*flags: str) -> tuple[str, object]:
        try:
            convert.main(["convert", *flags])
            end = 0
        except SystemExit as e:
            end = e.code
        return capsys.readouterr().out, end

    return call


def test_a_table_is_made_verified_and_saved(run, source, tmp_path):
    target = tmp_path / "long"
    out, end = run(f"--from={source}", "--position=hierarchical", "--alpha=0.3", "--max_length=40", f"--to={target}")
    assert end == 0
    for line in ("promised: 0.0: ok", "16–39: new", "promised: all, bit for bit: ok", "promised: one everywhere: ok"):
        assert line in out
    assert "for transformers' BertForMaskedLM and lpe.from_pretrained" in out and re.search(r"all 1\d promises hold", out)
    report = json.loads((target / "verify.json").read_text())
    assert report["ok"] and {c["name"] for c in report["checks"]} >= {"short inputs", "provenance", "read again", "lengths"}
    model, before = lpe.from_pretrained(target), lpe.from_pretrained(source)
    assert model.max_length == 40 and [p.name for p in tmp_path.iterdir()] == ["long"]
    want = before.extend(max_length=40, position={"name": "hierarchical", "alpha": 0.3}).position_table()
    np.testing.assert_array_equal(model.position_table(), want)


def test_windows_in_16_bit_over_an_older_folder(run, source, tmp_path):
    target = tmp_path / "long"
    target.mkdir()
    (target / "old").write_text("")
    flags = [f"--from={source}", "--max_length=40", "--attention=window", "--attention_window=8", "--global_tokens=cls"]
    flags += [f"--to={target}", "--dtype=bfloat16", "--weights=msgpack", "--max_shard_size=10KB"]
    out, end = run(*flags)
    assert str(end).endswith("is not empty; choose another folder, remove it first, or overwrite it (--overwrite)")
    out, end = run(*flags, "--overwrite")
    assert end == 0 and "FlaxLongformerForMaskedLM of transformers 4" in out and not (target / "old").exists()
    assert "no promise: rounded to bfloat16" in out and "parameters read as they were written, rounded to bfloat16" in out
    assert "global_attention_mask with 1 at the first token of each text" in out
    model = lpe.from_pretrained(target)
    assert dict(model.recipe.attention) == {"name": "window", "attention_window": 8, "global_tokens": "cls"}
    assert dict(model.recipe.position[0])["name"] == "learned" and model.max_length == 40


def test_what_no_class_has_goes_into_lpes_own_folder(run, source, tmp_path):
    flags = [f"--from={source}", '--position=[{"name": "rope_yarn"}, {"name": "logn"}]', "--max_length=40", "--factor=2"]
    out, end = run(*flags, f"--to={tmp_path / 'x'}")
    assert "no stock bert class does so" in str(end) and "--format=lpe" in str(end) and list(tmp_path.iterdir()) == []
    out, end = run(*flags, "--format=lpe", f"--to={tmp_path / 'x'}")
    assert end == 0 and "for lpe.from_pretrained alone" in out
    assert [dict(s) for s in lpe.from_pretrained(tmp_path / "x").recipe.position] == [
        {"name": "rope_yarn", "max_length": 40, "factor": 2},
        {"name": "logn"},
    ]


def test_a_broken_promise_ends_with_an_error_and_leaves_nothing(run, source, tmp_path, monkeypatch):
    real = lpe.verify

    def moved(before, after, **kw):
        """As if the method had moved a row of a short input."""
        table = after.params["position"]["table"]
        after.params["position"]["table"] = table.at[3, 0].add(jnp.float32(1e-3))
        try:
            return real(before, after, **kw)
        finally:
            after.params["position"]["table"] = table

    monkeypatch.setattr(convert, "verify", moved)
    out, end = run(f"--from={source}", "--max_length=40", f"--to={tmp_path / 'x'}")
    assert "a promise does not hold, so nothing is written" in str(end) and "short vectors" in str(end)
    assert "BROKEN" in str(end) and list(tmp_path.iterdir()) == []


def test_what_is_written_wrong_is_found_by_reading_it(run, source, tmp_path, monkeypatch):
    """A file that differs from the model in one number is not published."""
    from lpe.checkpoint import writing

    real = writing._cast

    def off(name, x, dtype):
        return real(name, x + 1e-3 * (name.endswith("layer.1.output.dense.bias")), dtype)

    monkeypatch.setattr(writing, "_cast", off)
    out, end = run(f"--from={source}", "--max_length=40", f"--to={tmp_path / 'x'}")
    assert "parameters are not read as they were written, the first layers/output/bias" in str(end)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--to=x"], "--from missing, as in python -m lpe.convert"),
        (["--from=bert-mini"], "--to missing"),
        (["--from=bert-mini", "--to=x", "y"], "unknown arguments: y"),
        (["--from=bert-mini", "--to=x", "--alfa=0.4"], "unknown flag --alfa; did you mean --alpha?"),
        (["--from=bert-mini", "--alpha=0.4", "--to=x"], "--alpha=0.4: it is an option of hierarchical, hierarchical_naive"),
        (["--from=bert-mini", "--position=copy", "--alpha=0.4", "--to=x"], "--alpha=0.4: --position=copy does not take it"),
        (["--from=bert-mini", "--position=copi", "--to=x"], "no method 'copi'; did you mean 'copy'?"),
        (["--from=bert-mini", "--position=[{", "--to=x"], "--position=[{ is no JSON"),
        (["--from=bert-mini", "--position=[3]", "--to=x"], "--position=[3], allowed is a name, {'name': …, options} as JSON"),
        (["--from=bert-mini", "--position=hierarchical", "--materialize", "--to=x"], "--materialize needs a value"),
        (["--from=bert-mini", "--position=hierarchical", "--alpha=0.5", "--to=x"], "alpha=0.5 gives the positions"),
        (["--from=bert-mini", "--max_length=long", "--to=x"], "max_length='long', allowed are whole numbers"),
        (["--from=bert-mini", "--max_length=200", "--position=preserve_short", "--to=x"], "no stock class expresses"),
        (["--from=nowhere/at/all", "--to=x"], "checkpoint 'nowhere/at/all' is no folder, no hub id"),
        (["--from=bert-mini", "--to=x", "--dtype=int8"], "dtype='int8', allowed are float32"),
        (["--from=bert-mini", "--max_length=", "--to=x"], "--max_length needs a value"),
        (["--from=bert-mini", "--ignore=,", "--to=x"], "ignore has an empty name"),
        (["--from=bert-mini", "--to=x", "--seed=-1"], "--seed=-1"),
        (["--from=bert-mini", "--to=~nobody-of-this-name/x"], "~nobody-of-this-name/x: "),
        (["--from=~nobody-of-this-name/x", "--to=x"], "write the folder in full"),
        (["--from=bert-mini", '--attention=[{"name": "full"}]', "--to=x"], "allowed is {'name': …, options}"),
        (["--from=bert-mini", "--to=x", "--verify_length=500"], "length=500, allowed are 1 to 128"),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)  # fmt: skip
def test_wrong_flags(flags, message, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out, end = run(*flags)
    assert message in str(end) and str(end).startswith("lpe: ") and out == ""
    assert list(tmp_path.iterdir()) == []


def test_the_current_folder_may_be_the_target(run, source, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    out, end = run(f"--from={source}", "--to=.", "--verify_length=4")
    assert end == 0 and (tmp_path / "here/config.json").is_file()


def test_a_licence_that_is_lost_on_the_way_is_seen(source, tmp_path):
    folder = tmp_path / "in"
    shutil.copytree(source, folder)
    (folder / "LICENSE").write_text("as you like")
    raw = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**raw, "license": "as-you-like"}))
    model = lpe.from_pretrained(folder)
    model.save_pretrained(tmp_path / "out")
    checks = {c.name: c for c in rereading.checks(model, tmp_path / "out", "float32", 4, 0)}
    assert checks["papers"].ok and checks["papers"].measured == "license: as-you-like, LICENSE"
    (tmp_path / "out/LICENSE").write_text("no")
    written = json.loads((tmp_path / "out/config.json").read_text())
    (tmp_path / "out/config.json").write_text(json.dumps({k: v for k, v in written.items() if k != "license"}))
    (papers,) = [c for c in rereading.checks(model, tmp_path / "out", "float32", 4, 0) if c.name == "papers"]
    assert papers.ok is False and papers.measured == "lost or changed: license, LICENSE"


def test_help_names_the_owners_of_an_option(run):
    out, end = run("--help")
    assert end == 0 and "--alpha: Of hierarchical, hierarchical_naive." in out and "--global_tokens: Of bigbird, window." in out


@pytest.mark.heavy
def test_minilm(run, tmp_path):
    """The command as the documentation has it, with a real checkpoint, read by transformers at 512 and 2,048 tokens."""
    import torch
    from transformers import AutoModel

    more = ["--attention=window", "--attention_window=512", "--global_tokens=cls"]
    flags = [f"--from={assets.path('minilm')}", "--position=hierarchical", "--alpha=0.4", "--max_length=2048"]
    out, end = run(*flags, *more, f"--to={tmp_path / 'x'}")
    assert end == 0 and "sentence-transformers' max_seq_length" in out
    model, stock = lpe.from_pretrained(tmp_path / "x"), AutoModel.from_pretrained(tmp_path / "x").eval()
    for length in (512, 2048):
        ids = np.random.default_rng(0).integers(1000, 30000, (1, length))
        marked = {"global_attention_mask": torch.tensor(np.eye(1, length, dtype=int))}
        with torch.no_grad():
            want = stock(torch.tensor(ids), **marked)[0].numpy()
        assert np.abs(np.asarray(model.encode({"input_ids": ids})) - want).max() < 1e-5
