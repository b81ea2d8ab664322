"""What a run finds when it resumes: whole, damaged, foreign and newer steps."""

import gc
import json
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lpe.checkpoint.run_state import FORMAT, RunState

# Where one array cannot be read, Orbax leaves the coroutines of the others behind, which then complain about a closed loop.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(autouse=True)
def collected():
    yield
    gc.collect()


def state(seed: int, rows: int = 64) -> dict:
    key = jax.random.key(seed)
    params = {"a": jax.random.normal(key, (rows, 256)), "b": jnp.ones((3,), jnp.bfloat16)}
    return {"params": params, "opt_state": ({"count": jnp.int32(seed)}, ()), "rng": jax.random.key_data(key)}


@pytest.fixture
def folder(tmp_path) -> Path:
    with RunState(tmp_path / "checkpoints", 2) as saved:
        for step in (1, 2, 3):
            saved.save(step, state(step), {"step": step, "seconds": 0.5})
    return tmp_path / "checkpoints"


def restored(folder: Path, like: dict | None = None) -> int:
    """The step that comes back, with the arrays that were saved in it."""
    with RunState(folder, 2) as saved:
        got, meta = saved.restore(state(0) if like is None else like) or ({}, {"step": None})
    if got:
        jax.tree.map(np.testing.assert_array_equal, got, state(meta["step"]))
    return meta["step"]


def the_arrays(step: Path) -> Path:
    return max((p for p in step.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)


def cut(step: Path) -> None:
    path = the_arrays(step)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(step: Path) -> None:
    path = the_arrays(step)
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


def foreign(step: Path) -> None:
    shutil.rmtree(step)
    step.mkdir()
    (step / "mine.txt").write_text("keep")


DAMAGE = {
    "cut arrays": cut,
    "one flipped bit": flip,
    "no arrays": lambda step: the_arrays(step).unlink(),
    "no index": lambda step: (step / "state/manifest.ocdbt").unlink(),
    "no json": lambda step: (step / "meta/metadata").unlink(),
    "cut json": lambda step: (step / "meta/metadata").write_text('{"step": 3, "sec'),
    "json of another program": lambda step: (step / "meta/metadata").write_text('{"step": 3}'),
    "no Orbax step": foreign,
    "empty folder": lambda step: (shutil.rmtree(step), step.mkdir()),
}


def test_the_last_step_comes_back_and_earlier_ones_go(folder):
    assert restored(folder) == 3
    assert sorted(p.name for p in folder.iterdir()) == ["2", "3"]


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_step_is_moved_aside_and_the_one_before_it_taken(folder, caplog, damage):
    damage(folder / "3")
    left = sorted(p.relative_to(folder / "3") for p in (folder / "3").rglob("*"))
    with RunState(folder, 2) as saved:
        got = saved.restore(state(0))
        assert got and got[1]["step"] == 2
        jax.tree.map(np.testing.assert_array_equal, got[0], state(2))
        saved.save(3, state(3), {"step": 3, "seconds": 0.5})
    assert "step 3 cannot be read (" in caplog.text and f"moved to {folder}/3.damaged, going on from step 2" in caplog.text
    assert sorted(p.relative_to(folder / "3.damaged") for p in (folder / "3.damaged").rglob("*")) == left
    assert restored(folder) == 3
    cut(folder / "3")
    assert restored(folder) == 2
    assert sorted(p.name for p in folder.iterdir()) == ["2", "3.damaged", "3.damaged-2"]


def test_without_a_good_step_nothing_is_touched_and_the_error_says_why(folder):
    cut(folder / "2")
    foreign(folder / "3")
    with pytest.raises(ValueError, match=r"no state in .*checkpoints can be read \(step 3: .*; step 2: .*\); to begin again"):
        restored(folder)
    assert sorted(p.name for p in folder.iterdir()) == ["2", "3"]


@pytest.mark.parametrize(
    "like, said",
    [
        (state(0, rows=32), r"\['params'\]\['a'\] is float32\[64, 256\], wanted float32\[32, 256\]"),
        ({**state(0), "ema": jnp.ones(2)}, r"\['ema'\] is missing, wanted float32\[2\]"),
        ({k: v for k, v in state(0).items() if k != "rng"}, r"\['rng'\] is uint32\[2\], wanted none"),
        (jax.tree.map(lambda x: x.astype(jnp.float16), state(0)), "is bfloat16.*, and 1 more"),
    ],
    ids=["shape", "more", "fewer", "dtype"],
)
def test_the_state_of_another_model_is_refused_not_skipped(folder, like, said):
    with pytest.raises(ValueError, match=rf"3 holds the state of another model or optimiser: .*{said}.*--workdir"):
        restored(folder, like)
    assert sorted(p.name for p in folder.iterdir()) == ["2", "3"]


def test_a_newer_format_is_refused_not_skipped(folder):
    path = folder / "3/meta/metadata"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": FORMAT + 1}))
    with pytest.raises(ValueError, match=rf"3 was written by a newer lpe \(format {FORMAT + 1}; this one reads {FORMAT}\)"):
        restored(folder)


def test_what_an_interrupted_save_left_is_removed_and_other_things_are_not(folder):
    for name in ("4.orbax-checkpoint-tmp", "notes"):
        (folder / name).mkdir()
    (folder / "5").write_text("a file")
    assert restored(folder) == 3
    assert sorted(p.name for p in folder.iterdir()) == ["2", "3", "5", "notes"]


def test_nothing_saved_is_nothing_restored(tmp_path):
    assert restored(tmp_path / "new") is None


def test_a_failed_save_shows_at_the_end_unless_something_else_ended_the_run(folder, monkeypatch, caplog):
    with pytest.raises(ValueError, match="disk"):
        with RunState(folder, 2) as saved:
            monkeypatch.setattr(saved, "close", failing)
    with pytest.raises(KeyError, match="first"):
        with RunState(folder, 2) as saved:
            monkeypatch.setattr(saved, "close", failing)
            raise KeyError("first")
    assert "the last save in" in caplog.text and "disk" in caplog.text


def failing() -> None:
    raise ValueError("the disk is gone")
