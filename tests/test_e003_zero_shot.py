"""Experiment 3: sets are pooled as they should, and the small version runs, goes on and shows what windows do to copies."""

import json

import numpy as np
import pytest

from experiments import e003_report, e003_zero_shot
from lpe.data.windows import Layout, Windows


def test_sets_are_pooled_by_their_unit():
    needles = [{"metric": "needle, top-1 of 50", "quality": q, "error": 0.05, "count": 50} for q in (0.4, 0.6)]
    assert e003_report.pooled(needles) == (0.5, pytest.approx(0.1), 100)
    assert e003_report.pooled(needles[:1]) == (0.4, pytest.approx(0.05), 50)
    windows = [{"metric": "accuracy", "quality": q, "error": e, "count": 20} for q, e in ((0.4, 0.03), (0.6, 0.04))]
    assert e003_report.pooled(windows) == (0.5, pytest.approx(0.025), 40)


def way(model, read="whole"):
    return e003_zero_shot.Way("copy", "full", read, model)


def test_a_set_of_windows_is_every_fifth_of_a_hundred_from_the_whole_text(monkeypatch):
    """Of 298 windows every third is taken, both ends too, and five sets divide these."""
    seen = []
    monkeypatch.setattr(e003_zero_shot.mlm, "score", lambda *args, **more: seen.append((args, more)) or {})
    own = np.arange(298)
    cut = {32: Windows(own[:, None], own + 1000, own + 2000), 64: Windows(own[:2, None], own[:2], own[:2])}
    bench = e003_zero_shot.Bench("plain", 16, cut, None)
    for number in range(5):
        bench.measure(way("longer", "pieces"), 32, number)
        (model, given, length), more = seen[-1]
        assert (model, length, more) == ("longer", 32, {"read": "pieces", "examples": 20})
        want = [3 * (number + 5 * i) for i in range(20)]
        assert given.tokens[:, 0].tolist() == want
        assert (given.real - 1000).tolist() == want == (given.document - 2000).tolist()


def test_a_set_of_needles_has_its_own_seed_and_set_0_of_a_longer_model_its_agreement(monkeypatch):
    asked, agreed = [], []
    needle = e003_zero_shot.needle
    monkeypatch.setattr(needle, "score", lambda *args, **more: asked.append((args, more)) or {"quality": 0.5})
    monkeypatch.setattr(needle, "agreement", lambda *args, **more: agreed.append((args, more)) or {"agreement": 0.9})
    bench = e003_zero_shot.Bench("plain", 32, {}, "stream")
    for number in range(3):
        for model in ("plain", "longer"):
            found = bench.measure(way(model, "first"), 64, number)
            more = {"read": "first", "seed": number, "examples": 50}
            assert asked[-1] == ((model, "stream", Layout(2, 30)), more)
            assert ("agreement" in found) == (model == "longer" and number == 0) and found["quality"] == 0.5
    assert agreed == [(("longer", "plain", "stream"), {"trained": 32, "seed": 0})]


@pytest.mark.heavy
def test_the_small_version_runs_and_goes_on(tmp_path):
    e003_zero_shot.run(tmp_path, small=True)
    file = tmp_path / "results.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines()
    found = {(r["length"], e003_report.name(r)): r["quality"] for r in map(json.loads, lines)}
    assert len(found) == len(lines)
    assert found[256, "untouched, in pieces"] > found[256, "copy"] + 0.1
    assert abs(found[256, "copy, window"] - found[256, "untouched, in pieces"]) < 0.05
    text = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert f"| copy, window | {100 * found[256, 'copy, window']:.1f} ± " in text
    assert (tmp_path / "zero_shot.png").stat().st_size > 10_000
    file.write_text("\n".join(lines[:-1]) + "\n" + lines[-1][:40], encoding="utf-8")  # killed within a line
    e003_zero_shot.run(tmp_path, small=True)
    assert file.read_text(encoding="utf-8").splitlines() == lines
