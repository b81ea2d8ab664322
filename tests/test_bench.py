"""The benchmark runs and counts right; no time is asserted."""

import json
import math
import os
import subprocess
import sys
import timeit
from pathlib import Path

import pytest
from absl.testing import flagsaver

from experiments import bench_encode, bench_positions
from lpe import registry

ROOT = Path(__file__).parent.parent


def test_its_small_form_prints_a_table_of_finite_numbers(tmp_path):
    command = [sys.executable, "-W", "ignore", "-m", "experiments.bench_encode", "--debug", f"--out={tmp_path}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "table.md").read_text(encoding="utf-8") in done.stdout
    found = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert found["settings"]["torch"]["attn_implementation"] == "sdpa"
    assert [(r["model"], r["pass"]) for r in found["rows"]] == [("debug", "forward"), ("debug", "train")]
    for r in found["rows"]:
        for figure in (r["lpe_of_jax_floor"], r["lpe_over_torch"], *r["seconds"].values(), *r["gflop_per_second"].values()):
            assert math.isfinite(figure) and figure > 0
        assert all(x < 1e-4 for x in r["apart"].values())
    # 2 layers of 16 x 16 (4 times) and 16 x 32 (twice) on 16 tokens, and 2 heads of 16 x 16 x 8 twice; a gradient is twice that
    forward = 2 * 2 * (16 * (4 * 16 * 16 + 2 * 16 * 32) + 2 * 2 * 16 * 16 * 8) / 1e9
    assert math.isclose(found["rows"][0]["gflop"], forward)
    assert math.isclose(found["rows"][1]["gflop"], 3 * forward)


TINY = (
    "--layers=1",
    "--hidden=16",
    "--heads=2",
    "--trained=16",
    "--rounds=1",
    "--fill=0",
    "--lengths=16,24",
    "--methods=learned,t5",
)


def test_position_costs_of_a_tiny_model(tmp_path, monkeypatch):
    monkeypatch.setattr(bench_encode, "SECONDS", 0.01)
    monkeypatch.setattr(timeit.Timer, "autorange", lambda timer: (1, timer.timeit(1)))
    with flagsaver.flagsaver():
        bench_positions.FLAGS(["bench_positions", *TINY, f"--out={tmp_path}"])
        bench_positions.main([])
    found = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    rows = {(r["model"], r["tokens"]): r for r in found["rows"]}
    assert list(rows) == [(m, length) for length in (16, 24) for m in ("random", "learned", "t5")]
    assert [k for k, r in rows.items() if "refused" in r] == [("learned", 24)]
    measured = {k: r for k, r in rows.items() if "refused" not in r}
    for r in measured.values():
        figures = (*r["seconds"], *r["time_of_baseline"].values(), *r["time_of_floor"].values(), r["memory_of_baseline"])
        assert all(math.isfinite(x) and x > 0 for x in figures)
        assert len(r["seconds"]) == 1 and r["bytes"] == sum(r["bytes_by_part"].values())
    # a row of 16 for every place; T5's 32 buckets for 2 heads
    assert [r["parameters"] for r in measured.values()] == [16 * 16, 16 * 16, 32 * 2, 24 * 16, 32 * 2]

    wrong = {**found, "rows": [r if "refused" in r else {**r, "bytes": 1, "parameters": 1} for r in found["rows"]]}
    (tmp_path / "results.json").write_text(json.dumps(wrong), encoding="utf-8")
    with flagsaver.flagsaver():  # memory anew, the times kept
        bench_positions.FLAGS(["bench_positions", *TINY, f"--out={tmp_path}", "--memory"])
        bench_positions.main([])
    assert json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["rows"] == found["rows"]

    text = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert text.count("\n| random |") == text.count("\n| t5 |") == text.count("\n| learned |") == 2
    t5 = rows["t5", 24]["time_of_baseline"]["median"]
    assert f"| time, t5 / random, at 24 | 1 | {t5:.2f} (" in text
    assert text.count("| not measured |") == len(bench_positions.CLAIMS)  # one for each but T5's, two for NEZHA's


def test_position_costs_are_compared_within_a_round_and_a_kind_of_attention():
    def row(method, causal, seconds, size):
        return {"method": method, "causal": causal, "tokens": 8, "seconds": seconds, "bytes": size * 2**20}

    rows = [
        row("random", False, [1.0, 2.0, 4.0], 2),
        row("random", True, [1.0, 1.0, 2.0], 4),
        row("xpos", True, [3.0, 2.0, 2.0], 6),
    ]
    assert bench_positions.over([2.0, 4.0], [1.0, 2.0, 3.0])["median"] == 1.5
    bench_positions.compare([{"tokens": 8, "seconds": [0.5, 0.5, 0.5]}], rows)
    assert rows[2]["time_of_baseline"] == {"median": 2.0, "lowest": 1.0, "highest": 3.0}
    assert rows[2]["time_of_floor"]["median"] == 4.0
    assert (rows[2]["memory_of_baseline"], rows[2]["mib_beyond_baseline"]) == (1.5, 2.0)


def test_every_position_method_is_timed_by_default():
    names = registry.names("positions")
    assert bench_positions.FLAGS["methods"].default == names
    todo = bench_positions.cases(names, bench_positions.BertConfig())
    assert {c.names[-1] for c in todo} == set(names)
    assert {c.causal for c in todo if c.names == (bench_positions.BASELINE,)} == {c.causal for c in todo}
    assert {c.method for c in bench_positions.CLAIMS} | {c.over for c in bench_positions.CLAIMS} <= set(names)


def debug_run(*command: str) -> str:
    """What a benchmark prints, run as its docstring says."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-W", "ignore", "-m", *command], cwd=ROOT, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.heavy
def test_windows_against_peers_in_small(tmp_path):
    printed = debug_run("experiments.bench_attention", "--debug", f"--out={tmp_path}")
    assert (tmp_path / "table.md").read_text(encoding="utf-8") in printed
    found = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert all(x < 1e-4 for x in found["windows"]["apart"].values())
    assert set(found["memory"]) == {"lpe forward", "torch forward", "lpe train", "lpe train, remat", "torch train"}
    assert set(found["dense"]) == {"16", "32"}
    # 2 layers of 16 x 16 (4 times) and 16 x 32 (twice); 32 tokens are one block of 2 heads, which sees all of itself
    forward = 2 * 2 * (32 * (4 * 16 * 16 + 2 * 16 * 32) + 2 * 2 * 32 * 32 * 8) / 1e9
    assert math.isclose(found["windows"]["gflop"]["forward none"], forward)


def test_sizes_of_block_and_the_gpu_script_in_small():
    assert debug_run("experiments.bench_blocks", "--debug").count("\n| 512 |") == 5
    small = ("--lengths=64,96", "--blocks=16", "--window=16", "--batch=1", "--rounds=1")
    assert debug_run("experiments.bench_gpu_attention", *small).count("| lpe, blocks of 16 |") == 2


@pytest.mark.heavy
def test_patterns_in_small(tmp_path):
    """Every pattern has its row, and BigBird and ModernBERT give torch's outputs, else it ends in an error."""
    printed = debug_run("experiments.bench_patterns", "--debug", f"--out={tmp_path}")
    text = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert text in printed
    titles = {line.split("|")[1].strip().split(",")[0] for line in text.splitlines() if line.startswith("| ")}
    assert {*registry.names("attention"), "BigBird", "ModernBERT"} <= titles
