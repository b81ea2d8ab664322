"""Experiment 3: sets are pooled as they should, and the small version runs, goes on and shows what windows do to copies."""

import json

import pytest

from experiments import e003_report, e003_zero_shot


def test_sets_are_pooled_by_their_unit():
    needles = [{"metric": "needle, top-1 of 50", "quality": q, "error": 0.05, "count": 50} for q in (0.4, 0.6)]
    assert e003_report.pooled(needles) == (0.5, pytest.approx(0.1), 100)
    assert e003_report.pooled(needles[:1]) == (0.4, pytest.approx(0.05), 50)
    windows = [{"metric": "accuracy", "quality": q, "error": e, "count": 20} for q, e in ((0.4, 0.03), (0.6, 0.04))]
    assert e003_report.pooled(windows) == (0.5, pytest.approx(0.025), 40)


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
