"""Experiment 7: the loop that it times is the library's, and its small version runs, resumes and writes its page."""

import json

import numpy as np
import pytest

from experiments import e007_training_at_length as e007


def test_rows_are_read_together_and_a_loss_that_differs_is_an_error():
    row = e007.Row("mlm", "window", "full", 1024)
    one = {"row": row._asdict(), "round": 0, "losses": [3.0, 2.0], "seconds": [1.0, 3.0], "peak": 5, "plan": 7}
    one |= {"flops": 10, "rate": 5.0, "load": 0.5}
    other = {**one, "round": 1, "seconds": [2.0, 9.0], "peak": 6}
    assert e007.figure([one, other], row) == {"step": 2.5, "peak": 6, "plan": 7, "share": (10 / 2 / 5 + 10 / 3 / 5) / 2}
    assert not e007.figure([one], row._replace(remat="none"))
    e007.check([one, other, {**one, "row": row._replace(attention="dense")._asdict(), "losses": [3.1, 2.0]}])
    with pytest.raises(ValueError, match=r"'remat': 'none'.*losses \[3.0, 2.001\], another run of the same has \[3.0, 2.0\]"):
        e007.check([one, {**one, "row": row._replace(remat="none")._asdict(), "losses": [3.0, 2.001]}])


def test_its_rows_are_what_the_page_says():
    every = [e007.config(e007.LARGE, row) for row in e007.rows(e007.LARGE)]
    assert len(every) == 16
    assert {c["attention"]["name"] for c in every} == {"window", "full"}
    assert {c["attention"].get("attention_window") for c in every} == {512, None}
    assert {(c["task"]["name"], c["data"]["source"], c["task"]["length"]) for c in every} == {
        (task, "sotu", length) for task in ("mlm", "classify") for length in (1024, 4096)
    }
    assert {c["remat"] for c in every} == {"full", "none"} and {c["position"]["name"] for c in every} == {"copy"}


@pytest.mark.heavy
def test_its_small_version(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(e007.cli, "setup", lambda: None)
    command = ["e007", "--small", f"--out={tmp_path}"]
    e007.main(command)
    found = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    window, dense = (next(r for r in found["rows"] if r["row"]["attention"] == a) for a in ("window", "dense"))
    for r in (window, dense):
        assert len(r["losses"]) == 3 and np.isfinite(r["losses"]).all()
        assert len(r["seconds"]) == 2 and min(r["seconds"]) > 0 and r["peak"] > 10**6
    assert window["losses"] != dense["losses"] and window["plan"] < dense["plan"]
    assert f"{dense['plan'] / window['plan']:.2f} |" in capsys.readouterr().out
    monkeypatch.setattr(e007, "alone", None)  # all is there: the same command measures nothing
    e007.main(command)
    monkeypatch.undo()
    wrong = e007.config(e007.SMALL, e007.rows(e007.SMALL)[0])
    monkeypatch.setattr(e007, "config", lambda s, row: {**wrong, "checkpoint": "nowhere"})
    with pytest.raises(ValueError, match=r"ended with 1: .*nowhere"):
        e007.alone(e007.SMALL, e007.rows(e007.SMALL)[0])
