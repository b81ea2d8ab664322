"""lpe.main killed from outside at arbitrary points, and with no room on the disk: the same command ends as if nothing was."""

import contextlib
import json
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from lpe import metrics, workdir

ROOT = Path(__file__).parent.parent
STEPS = 24
CONFIG = f"""
from configs import hier


def get_config():
    config = hier.get_config("debug")
    config.name, config.arms = "run", ()
    config.train.update(steps={STEPS}, log_every=1)
    config.eval.update(every=6)
    config.save.every_minutes = 1e-9  # at every step
    return config
"""


@pytest.fixture(scope="module")
def command(tmp_path_factory) -> list[str]:
    path = tmp_path_factory.mktemp("config") / "small.py"
    path.write_text(CONFIG)
    return [sys.executable, "-m", "lpe.main", f"--config={path}"]


def start(command: list[str], folder: Path) -> subprocess.Popen:
    with (folder.parent / f"{folder.name}.log").open("ab") as log:
        return subprocess.Popen([*command, f"--workdir={folder}"], cwd=ROOT, stdout=log, stderr=log)


def finish(command: list[str], folder: Path) -> None:
    code = start(command, folder).wait(timeout=120)
    assert code == 0, (folder.parent / f"{folder.name}.log").read_text()[-2000:]


def step(folder: Path) -> int:
    return max((r["step"] for r in metrics.read(folder / "run/metrics.jsonl")), default=0)


def saving(folder: Path) -> dict[str, int]:
    """Saves that are begun and not done, with their inodes."""
    found = {}
    for path in folder.glob("run/checkpoints/*.orbax-checkpoint-tmp"):
        with contextlib.suppress(FileNotFoundError):  # done meanwhile
            found[path.name] = path.stat().st_ino
    return found


def saved(folder: Path) -> list[int]:
    return sorted(int(p.name) for p in folder.glob("run/checkpoints/*") if p.name.isdigit())


def rows(folder: Path) -> list[dict]:
    timing = ("seconds", "tokens_per_s", "input_wait")
    return [{k: v for k, v in r.items() if k not in timing} for r in metrics.read(folder / "run/metrics.jsonl")]


def same(folder: Path, whole: Path) -> None:
    want, got = (load_file(f / "run/model/model.safetensors") for f in (whole, folder))
    assert got.keys() == want.keys()
    for name in want:
        np.testing.assert_array_equal(got[name], want[name], err_msg=name)
    assert rows(folder) == rows(whole)


@pytest.fixture(scope="module")
def whole(command, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "whole"
    finish(command, folder)
    assert step(folder) == STEPS
    return folder


def kill(process: subprocess.Popen, folder: Path, when, delay: float) -> None:
    deadline = time.monotonic() + 120
    while not when() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.0005)
    time.sleep(delay)
    assert process.poll() is None, (folder.parent / f"{folder.name}.log").read_text()[-2000:]
    process.kill()
    process.wait()


@pytest.mark.heavy
def test_killed_at_any_point_it_ends_bit_for_bit_the_same(command, whole, tmp_path):
    """SIGKILL while it begins, between steps, twice in the middle of a save, and at the end; random points, printed."""
    seed = int(os.environ.get("LPE_KILL_SEED", random.SystemRandom().randrange(10**6)))
    draw, folder = random.Random(seed), tmp_path / "killed"
    first, second, third = sorted(draw.sample(range(2, STEPS - 2), 3))
    old: set[int] = set()

    def in_a_save(number: int) -> bool:
        """A save that this process began, at that step or later."""
        return step(folder) >= number and any(i not in old for i in saving(folder).values())

    points = [
        ("while it begins", folder.exists, draw.uniform(0, 0.02)),
        (f"from step {first} on", lambda: step(folder) >= first, draw.uniform(0, 0.1)),
        (f"in a save from step {second} on", lambda: in_a_save(second), 0.0),
        (f"in a save from step {third} on", lambda: in_a_save(third), draw.uniform(0, 0.02)),
        ("at the end", lambda: step(folder) == STEPS, draw.uniform(0, 1.0)),
    ]
    print(f"LPE_KILL_SEED={seed}")
    halves = 0
    for name, when, delay in points:
        old |= set(saving(folder).values())
        kill(start(command, folder), folder, when, delay)
        halves += any(i not in old for i in saving(folder).values())
        print(f"killed {name}: at step {step(folder)}, saved {saved(folder)}, half saved {list(saving(folder))}")
    assert halves, "no kill fell into a save"
    finish(command, folder)
    assert not saving(folder)
    same(folder, whole)


@pytest.mark.heavy
def test_a_disk_without_room_loses_nothing_that_was_saved(command, whole, tmp_path):
    """A limit on the size of files stands for the full disk: the last step cannot be saved; with room it can."""
    folder = tmp_path / "full"
    shutil.copytree(whole, folder)
    for path in (folder / f"run/checkpoints/{STEPS}", folder / "run/model"):
        shutil.rmtree(path)
    before = {p: p.read_bytes() for p in (folder / f"run/checkpoints/{STEPS - 1}").rglob("*") if p.is_file()}
    limit = 100 * 1024
    assert any(len(x) > limit for x in before.values())

    process = start(command, folder)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (limit, limit))
    assert process.wait(timeout=120) == 1
    said = [x for x in (tmp_path / "full.log").read_text().replace("\r", "\n").splitlines() if x and "step/s" not in x]
    assert said[-1].startswith(f"lpe: {folder}: File too large; what was saved before is kept: make room"), said
    assert not any("Traceback" in x for x in said), said
    assert saved(folder) == [STEPS - 1] and before == {p: p.read_bytes() for p in before}
    finish(command, folder)
    assert saved(folder) == [STEPS - 1, STEPS]
    same(folder, whole)


def test_a_full_disk_is_named_whatever_reports_it(tmp_path):
    with pytest.raises(OSError, match=rf"{tmp_path}: No space left on device; .* the same command goes on"):
        with workdir.full_disk(tmp_path), open("/dev/full", "w") as f:
            f.write("x" * 10**6)
    with pytest.raises(OSError, match="No space left on device; what was saved before is kept"):
        with workdir.full_disk(tmp_path):
            raise RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)")
    with pytest.raises(KeyError):
        with workdir.full_disk(tmp_path):
            raise KeyError("another matter")


def test_a_file_that_cannot_be_written_leaves_the_earlier_one(tmp_path):
    path = tmp_path / "metrics.jsonl"
    log = metrics.Log(path, -1)
    log.add({"kind": "train", "step": 1})
    before = path.read_text()
    (tmp_path / "metrics.jsonl.tmp").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        metrics.Log(path, 1)
    assert path.read_text() == before


def test_a_start_that_was_killed_in_between_does_not_block_the_folder(tmp_path):
    (tmp_path / "config.json.tmp").write_text('{"na')
    config = {"name": "a", "mesh": {"data": -1}, "sharding_rules": {}, "save": {"every_minutes": 1.0, "keep": 2}}
    assert workdir.open(config, tmp_path) == tmp_path
    assert json.loads((tmp_path / "config.json").read_text()) == config


@pytest.mark.parametrize("below", ["", "run"])
def test_a_file_is_no_folder_of_a_run(below, tmp_path):
    file = tmp_path / "notes.txt"
    file.write_text("here", encoding="utf-8")
    with pytest.raises(ValueError, match=re.escape(f"{file} is a file, not a folder; give another folder")):
        workdir.open({"name": "a"}, file / below)


def test_layout_and_saving_may_change_and_are_recorded(tmp_path):
    base = {"name": "a", "mesh": {"data": -1}, "sharding_rules": {}, "save": {"every_minutes": 1.0, "keep": 2, "dtype": "no"}}
    config = {**base, "arms": (("x", {"mesh": {"data": 2}, "seed": 1}),)}
    workdir.open(config, tmp_path / "run")
    moved = {
        **config,
        "mesh": {"data": 2, "fsdp": 4},
        "save": {**base["save"], "keep": 3, "every_minutes": 2.0},
        "arms": (("x", {"sharding_rules": {"embed": "fsdp"}, "seed": 1}),),
    }
    workdir.open(moved, tmp_path / "run")
    workdir.open(moved, tmp_path / "run")
    versions = json.loads((tmp_path / "run/versions.json").read_text())
    assert versions["mesh"] == {"data": -1} and [v["mesh"] for v in versions["resumed_with"]] == [{"data": 2, "fsdp": 4}]
    assert json.loads((tmp_path / "run/config.json").read_text())["mesh"] == {"data": -1}
    for other in ({"seed": 1}, {"save": {**base["save"], "dtype": "float32"}}, {"arms": (("x", {"seed": 2}),)}):
        with pytest.raises(ValueError, match="holds a run of another config"):
            workdir.open({**config, **other}, tmp_path / "run")


def test_the_default_folder_does_not_depend_on_the_layout(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    a = {"name": "a", "seed": 0, "mesh": {"data": -1}, "sharding_rules": {}, "save": {"every_minutes": 1.0, "keep": 2}}
    here = workdir.open(a, None)
    assert workdir.open({**a, "mesh": {"data": 8}}, None) == here != workdir.open({**a, "seed": 1}, None)
