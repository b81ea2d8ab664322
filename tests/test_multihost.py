"""Two processes on loopback, four fake devices each, against one process with eight: the curve, the stop, the checkpoints."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from lpe import metrics

ROOT = Path(__file__).parent.parent
CONFIG = """
from configs import hier


def get_config():
    config = hier.get_config("debug")
    config.name, config.arms = "run", ()
    config.task.length = 128
    config.train.update(steps=8, batch_size=8, log_every=1)
    config.eval.update(every=4, views=("full",))
    config.save.update(every_minutes=1e-9, keep=9)
    config.mesh = {}
    config.mesh.update(MESH)
    config.sharding_rules = {}
    config.sharding_rules.update(RULES)
    return config
"""


class Runs:
    """Starts lpe.main on one config in one process or several; the mesh may differ from start to start."""

    def __init__(self, folder: Path):
        self.folder = folder

    def start(self, name: str, processes: int, devices: int, mesh: dict, rules: dict) -> list[subprocess.Popen]:
        config = self.folder / f"{name}_{processes}.py"
        config.write_text(CONFIG.replace("MESH", repr(mesh)).replace("RULES", repr(rules)))
        command = [sys.executable, "-m", "lpe.main", f"--config={config}", f"--workdir={self.folder / name}"]
        if processes > 1:
            with socket.socket() as s:
                s.bind(("localhost", 0))
                address = f"localhost:{s.getsockname()[1]}"
            command += ["--multihost", f"--coordinator_address={address}", f"--num_processes={processes}"]
        env = os.environ | {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}
        started = []
        for i in range(processes):
            with self.log(name, i).open("wb") as log:
                number = [f"--process_id={i}"] if processes > 1 else []
                started.append(subprocess.Popen([*command, *number], cwd=ROOT, stdout=log, stderr=log, env=env))
        return started

    def finish(self, name: str, started: list[subprocess.Popen]) -> None:
        try:
            codes = [p.wait(timeout=200) for p in started]
        finally:
            for p in started:
                p.kill()
        assert not any(codes), [self.log(name, i).read_text()[-1500:] for i in range(len(started))]

    def log(self, name: str, process: int) -> Path:
        return self.folder / f"{name}.{process}.log"

    def rows(self, name: str) -> list[dict]:
        return metrics.read(self.folder / name / "run/metrics.jsonl")

    def curve(self, name: str) -> list[tuple[int, float]]:
        return [(r["step"], r["loss"]) for r in self.rows(name)]


@pytest.mark.heavy
def test_two_processes_give_the_curve_of_one_stop_together_and_leave_what_one_can_read(tmp_path):
    runs = Runs(tmp_path)
    fsdp = {"fsdp": 4, "data": 2}, {"embed": "fsdp"}
    runs.finish("one", runs.start("one", 1, 8, {"data": -1}, {}))
    want = runs.curve("one")
    assert [s for s, _ in want] == [0, 1, 2, 3, 4, 4, 5, 6, 7, 8, 8]

    pair = runs.start("two", 2, 4, *fsdp)
    while not any(r["step"] >= 2 for r in runs.rows("two")) and all(p.poll() is None for p in pair):
        time.sleep(0.01)
    pair[1].send_signal(signal.SIGTERM)  # only the second is asked
    runs.finish("two", pair)
    stopped = max(s for s, _ in runs.curve("two"))
    assert 2 <= stopped < 8
    assert max(int(p.name) for p in (tmp_path / "two/run/checkpoints").iterdir()) == stopped
    for i in range(2):
        assert f"stopped and saved at step {stopped} of 8" in runs.log("two", i).read_text()

    runs.finish("two", runs.start("two", 2, 4, *fsdp))
    np.testing.assert_allclose(runs.curve("two"), want, rtol=2e-5)
    assert "report    " in runs.log("two", 0).read_text() and "report    " not in runs.log("two", 1).read_text()
    for name, x in load_file(tmp_path / "one/run/model/model.safetensors").items():
        got = load_file(tmp_path / "two/run/model/model.safetensors")[name]
        np.testing.assert_allclose(got, x, atol=1e-4, err_msg=name)

    def later(_, names: list[str]) -> list[str]:
        return [n for n in names if n == "model" or (n.isdigit() and int(n) > stopped)]

    shutil.copytree(tmp_path / "two", tmp_path / "back", ignore=later)
    runs.finish("back", runs.start("back", 1, 1, {"data": -1}, {}))
    assert f"resumed at step {stopped}" in runs.log("back", 0).read_text()
    np.testing.assert_allclose(runs.curve("back"), want, rtol=2e-5)
