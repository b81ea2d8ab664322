"""The benchmark runs and counts right; no time is asserted."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

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
