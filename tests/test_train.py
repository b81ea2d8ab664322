"""The loop: resume bit for bit, stop at a bad loss, one and eight devices alike, and what a run leaves behind."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from configs import hier
from lpe import arms, evaluate, metrics, report, sharding, step, timer, train
from lpe.checkpoint import run_state
from lpe.params import Spec, normal

ROOT = Path(__file__).parent.parent


def config(**train_options) -> dict:
    c = hier.get_config("debug").to_dict()
    c["arms"] = ()
    c["train"] |= {"steps": 4, "log_every": 1} | train_options
    c["eval"] |= {"every": 2}
    return c


def weights(folder: Path) -> dict[str, np.ndarray]:
    from safetensors.numpy import load_file

    return load_file(folder / "hier/model/model.safetensors")


def rows(folder: Path) -> list[dict]:
    timing = ("seconds", "tokens_per_s", "input_wait")
    return [{k: v for k, v in r.items() if k not in timing} for r in metrics.read(folder / "hier/metrics.jsonl")]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    return train.run(config(), tmp_path_factory.mktemp("runs") / "whole")


def test_a_stopped_run_resumes_bit_for_bit(whole, tmp_path, monkeypatch):
    """Stopped in step 3, one step after the last save; the lost step is done again."""
    c = config()
    c["save"]["every_minutes"] = 1e-9  # save at every step
    real, calls = train._record, []

    def stop(*args, **kwargs):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return real(*args, **kwargs)

    monkeypatch.setattr(train, "_record", stop)
    with pytest.raises(KeyboardInterrupt):
        train.run(c, tmp_path / "run")
    monkeypatch.undo()
    before = {r["step"] for r in rows(tmp_path / "run")}
    assert 0 < max(before) < 4
    train.run(c, tmp_path / "run")
    kept = sorted(int(p.name) for p in (tmp_path / "run/hier/checkpoints").iterdir())
    assert kept == [3, 4], "the last two, as save.keep says"
    for name, want in weights(whole).items():
        np.testing.assert_array_equal(weights(tmp_path / "run")[name], want, err_msg=name)
    assert rows(tmp_path / "run") == rows(whole)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda n: n.name)
def test_asked_to_stop_it_saves_and_the_same_run_resumes(whole, tmp_path, monkeypatch, number):
    """The signal arrives while step 2 is recorded; the run saves after the next one, ends with 0, and resumes bit for bit."""
    real = train._record

    def ask(pending, *args, **kwargs):
        real(pending, *args, **kwargs)
        if pending[-1][0] == 2:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(train, "_record", ask)
    with pytest.raises(SystemExit) as stopped:
        train.run(config(), tmp_path / "run")
    assert stopped.value.code == 0
    monkeypatch.undo()
    assert max(r["step"] for r in rows(tmp_path / "run")) == 3
    assert [p.name for p in (tmp_path / "run/hier/checkpoints").iterdir()] == ["3"]
    train.run(config(), tmp_path / "run")
    for name, want in weights(whole).items():
        np.testing.assert_array_equal(weights(tmp_path / "run")[name], want, err_msg=name)
    assert rows(tmp_path / "run") == rows(whole)


def test_a_finished_run_is_not_trained_again(whole):
    before = (whole / "hier/metrics.jsonl").read_text()
    train.run(config(), whole)
    assert (whole / "hier/metrics.jsonl").read_text() == before


def test_another_config_does_not_touch_a_run(whole, tmp_path):
    with pytest.raises(ValueError, match="holds a run of another config"):
        train.run(config(batch_size=3), whole)
    (tmp_path / "mine.txt").write_text("keep")
    with pytest.raises(ValueError, match="is not empty and holds no run"):
        train.run(config(), tmp_path)


def test_what_a_run_leaves_behind(whole):
    assert json.loads((whole / "config.json").read_text())["train"]["steps"] == 4
    versions = json.loads((whole / "versions.json").read_text())
    assert versions["jax"] == jax.__version__ and versions["git_commit"]
    assert {"curve.png", "places.png", "report.md"} <= {p.name for p in whole.iterdir()}
    table = report.text(whole)
    last = [r for r in rows(whole) if r["kind"] == "eval" and r["view"] == "full"][-1]
    assert f"{100 * last['accuracy']:.1f} ± {100 * last['accuracy_se']:.1f} %" in table


def test_a_loss_that_is_not_finite_stops_the_run_and_names_step_and_batch(tmp_path):
    c = config()
    c["optim"] |= {"learning_rate": 1e30, "warmup_steps": 0, "clip_norm": 1e30}
    with pytest.raises(
        FloatingPointError, match=r"step [234]: the loss is nan in a batch of examples \[\d+, \d+\] \(.*line \d+"
    ):
        train.run(c, tmp_path / "run")


@pytest.mark.heavy
def test_a_gradient_that_is_not_finite_stops_the_run_and_the_last_good_state_stays(tmp_path, monkeypatch):
    c = config()
    c["save"]["every_minutes"] = 1e-9
    real = step.make

    def make(*args, **kwargs):
        inner = real(*args, **kwargs)

        def broken(state, batch, number):
            state, metrics = inner(state, batch, number)
            return state, {**metrics, "grad_norm": (jnp.where(number == 2, jnp.inf, metrics["grad_norm"][0]), 1)}

        return broken

    monkeypatch.setattr(step, "make", make)
    with pytest.raises(FloatingPointError, match="step 3: the grad_norm is inf in a batch of examples"):
        train.run(c, tmp_path / "run")
    monkeypatch.undo()
    assert max(int(p.name) for p in (tmp_path / "run/hier/checkpoints").iterdir()) == 2
    train.run(c, tmp_path / "run")
    assert max(r["step"] for r in rows(tmp_path / "run")) == 4


@pytest.mark.heavy
def test_the_best_evaluation_is_kept_and_training_ends_early(tmp_path, mini):
    """A rate that destroys the model: the best evaluation is that before training, and two worse ones end the run."""
    c = config(steps=9)
    c["optim"] |= {"learning_rate": 0.5, "warmup_steps": 0}
    c["eval"] |= {"every": 1, "views": ["pieces"], "best": "pieces/accuracy", "patience": 2}
    folder = train.run(c, tmp_path / "run")
    evals = [r for r in rows(folder) if r["kind"] == "eval"]
    assert [r["step"] for r in evals] == [0, 1, 2] and evals[0]["accuracy"] > evals[1]["accuracy"]
    extended = mini.extend(max_length=384, position={"name": "hierarchical"})
    assert all(np.array_equal(x, y) for x, y in zip(stock(extended, tmp_path / "mini"), weights(folder).values(), strict=True))
    before = (folder / "hier/metrics.jsonl").read_text()
    train.run(c, folder)
    assert (folder / "hier/metrics.jsonl").read_text() == before, "a run that ended early is not trained again"
    c["mode"] = "eval"
    out = evaluate.run(c, folder)
    (row,) = metrics.read(out / "hier/metrics.jsonl")
    assert row["step"] == 0 and row["accuracy"] == evals[0]["accuracy"]
    c["eval"] |= {"best": "", "patience": 0, "views": ["first"]}
    assert metrics.read(evaluate.run(c, folder) / "hier/metrics.jsonl")[0]["step"] == 0, "the run says what its result is"
    said = f"{100 * evals[0]['accuracy']:.1f} ± {100 * evals[0]['accuracy_se']:.1f} %"
    assert f"| {said} | 0 |" in (folder / "report.md").read_text(), "the table ends at the result"


@pytest.mark.heavy
def test_a_best_evaluation_that_is_gone_is_said(tmp_path):
    c = config(steps=2)
    c["optim"] |= {"learning_rate": 0.5, "warmup_steps": 0}
    c["eval"] |= {"every": 1, "best": "full/loss"}
    folder = train.run(c, tmp_path / "run")
    best = [p for p in (folder / "hier/best").iterdir() if p.name.isdigit()]
    for p in best:
        shutil.rmtree(p)
    with pytest.raises(ValueError, match=r"best lacks step \d, which metrics.jsonl names as the best so far"):
        train.run(c, folder)


@pytest.mark.heavy
@pytest.mark.parametrize("freeze", ["first_2_layers", "new_rows_only"])
def test_what_is_frozen_comes_out_of_a_run_as_it_went_in(tmp_path, mini, freeze):
    c = config(steps=2)
    c["position"] = {"name": "hierarchical", "max_length": 384, "materialize": True}
    c["optim"] |= {"freeze": freeze, "learning_rate": 1e-2, "warmup_steps": 0}
    after = weights(train.run(c, tmp_path / "run"))
    mini.extend(position=c["position"]).save_pretrained(tmp_path / "before")
    from safetensors.numpy import load_file

    before = load_file(tmp_path / "before/model.safetensors")
    table = "bert.embeddings.position_embeddings.weight"
    moved = {n for n in before if not np.array_equal(before[n], after[n])}
    if freeze == "first_2_layers":
        assert moved and all("layer.2." in n or "layer.3." in n or n.startswith("cls.") for n in moved)
    else:
        assert moved == {table}
        rows = (before[table] != after[table]).any(axis=1)
        assert not rows[:128].any() and rows[128:380].all()


def stock(model, folder: Path) -> list[np.ndarray]:
    from safetensors.numpy import load_file

    model.save_pretrained(folder)
    return list(load_file(folder / "model.safetensors").values())


@pytest.mark.heavy
def test_a_moving_average_in_parts_with_tensorboard(tmp_path):
    """The model that is saved and judged is the average; event files hold the curve."""
    c = config(steps=3, accumulate=2, log_every=1)
    c |= {"tensorboard": True}
    c["optim"]["ema"] = 0.9
    folder = train.run(c, tmp_path / "run")
    arm = arms.prepare(next(x for _, x in arms.named(c)), {})
    step_, average = evaluate.result(arm, folder / "hier")
    np.testing.assert_array_equal(weights(folder)["cls.predictions.bias"], average["mlm_head"]["bias"])
    assert step_ == 3
    with run_state.RunState(folder / "hier/checkpoints", 1) as saved:
        last = saved.restore(arm.state)[0]
    assert not np.array_equal(last["params"]["mlm_head"]["bias"], last["ema"]["mlm_head"]["bias"])
    events = b"".join(p.read_bytes() for p in (folder / "hier/tensorboard").iterdir())
    assert all(name in events for name in (b"train/loss", b"train/grad_norm", b"eval/full/accuracy"))


def test_only_evaluating_an_earlier_run(whole, tmp_path):
    c = config()
    c["mode"] = "eval"
    c["eval"] |= {"examples": 3, "views": ["full", "first"]}
    out = train.run(c, whole)
    found = metrics.read(out / "hier/metrics.jsonl")
    assert [(r["view"], r["step"], len(r["by_unit"])) for r in found] == [("full", 4, 3), ("first", 4, 3)]
    assert "1 × 128 (truncated)" in report.text(out) and "before tuning" not in report.text(out)
    last = [r for r in rows(whole) if r["kind"] == "eval" and r["view"] == "full"][-1]
    c["eval"] |= config()["eval"]
    train.run(c, whole)
    (row,) = [r for r in metrics.read(out / "hier/metrics.jsonl") if r["view"] == "full"]
    assert row["by_unit"] == last["by_unit"]
    with pytest.raises(FileNotFoundError, match="holds no run"):
        train.run(c, tmp_path / "nothing")
    with pytest.raises(ValueError, match="a run of another config"):
        train.run({**c, "position": {"name": "learned"}, "task": {**c["task"], "length": 128}}, whole)


def test_input_is_waited_for_and_logged(whole):
    timed = [r for r in metrics.read(whole / "hier/metrics.jsonl") if "tokens_per_s" in r]
    assert timed and all(0 <= r["input_wait"] < 1 for r in timed)
    assert "of it waiting for input" in (whole / "report.md").read_text()


def test_a_wrong_checkpoint_is_refused_with_the_ways_out(tmp_path, mini):
    import dataclasses

    bare = dataclasses.replace(
        mini, params={k: v for k, v in mini.params.items() if k != "mlm_head"}, recipe=mini.recipe._replace(heads=())
    )
    bare.save_pretrained(tmp_path / "bare")
    with pytest.raises(ValueError, match="has no mlm head"):
        train.run({**config(), "checkpoint": str(tmp_path / "bare")}, tmp_path / "run")


@pytest.mark.heavy
def test_bfloat16_trains(tmp_path):
    c = config()
    c["dtype"] = "bfloat16"
    c["train"]["steps"] = 2
    folder = train.run(c, tmp_path / "run")
    assert all(np.isfinite(r["loss"]) for r in rows(folder))
    assert all(w.dtype == np.float32 for w in weights(folder).values())


def on(devices: int, folder: Path, mesh: dict, rules: dict) -> list[tuple[int, float]]:
    """The losses of a run, begun or resumed in `folder` by a process with so many devices."""
    c = config(steps=5, batch_size=8, view="full")
    c["task"]["length"] = 128
    c["eval"] |= {"every": 5, "views": ("full",)}
    c["save"] |= {"every_minutes": 1e-9, "keep": 9}
    c |= {"mesh": mesh, "sharding_rules": rules}
    code = (
        "import json, sys, jax; from pathlib import Path; from lpe import train\n"
        "assert len(jax.devices()) == int(sys.argv[3]); train.run(json.loads(sys.argv[1]), Path(sys.argv[2]))\n"
    )
    env = os.environ | {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, json.dumps(c), str(folder), str(devices)],
        cwd=ROOT, env=env, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return [(r["step"], r["loss"]) for r in rows(folder)]


def rewound(folder: Path, to: Path, step: int) -> Path:
    """A copy of a finished run as it stood at `step`."""
    shutil.copytree(folder, to, ignore=lambda _, names: [n for n in names if n == "model" or n.isdigit() and int(n) > step])
    return to


@pytest.mark.heavy
def test_eight_devices_give_the_curve_of_one_and_take_over_from_it_and_back(tmp_path):
    """Data-parallel; and one run that begins on one device, goes on over data × fsdp, and ends on one."""
    fsdp = {"data": 2, "fsdp": 4}, {"embed": "fsdp"}
    want = on(1, tmp_path / "one", {"data": -1}, {})
    assert len(want) > 5
    np.testing.assert_allclose(on(8, tmp_path / "eight", {"data": -1}, {}), want, rtol=2e-5)
    there = on(8, rewound(tmp_path / "one", tmp_path / "there", 1), *fsdp)
    np.testing.assert_allclose(there, want, rtol=2e-5)
    saved = json.loads((tmp_path / "there/hier/checkpoints/4/state/_sharding").read_text())
    assert sum("fsdp" in json.loads(x)["partition_spec"] for x in saved.values()) > 20, saved
    back = on(1, rewound(tmp_path / "there", tmp_path / "back", 3), {"data": -1}, {})
    np.testing.assert_allclose(back, want, rtol=2e-5)
    versions = json.loads((tmp_path / "back/versions.json").read_text())
    assert [v["devices"][0] for v in (versions, *versions["resumed_with"])] == ["1", "8", "1"]


def test_a_mesh_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"does not fit \d+ devices"):
        sharding.mesh({"data": 3, "model": 5})
    assert sharding.mesh({"data": -1}).shape["data"] == len(jax.devices())


def test_rules_that_do_not_fit_are_refused_with_what_is_allowed():
    from jax.sharding import AbstractMesh

    mesh: Any = AbstractMesh((2, 4), ("data", "fsdp"))
    specs = {"a/kernel": Spec((8, 6), ("embed", "mlp"), normal(1.0))}
    assert sharding.params(mesh, specs, {"embed": "fsdp"})["a"]["kernel"].spec == PartitionSpec("fsdp", None)
    assert sharding.rows(mesh) == ("data", "fsdp") and sharding.parts(mesh) == 8
    for rules, said in (
        ({"embed": "model"}, r"'embed' → 'model', allowed are embed, mlp → data, fsdp"),
        ({"vocab": "fsdp"}, r"'vocab' → 'fsdp', allowed are embed, mlp"),
        ({"mlp": "fsdp"}, r"a/kernel \(8, 6\) .* does not divide over 'fsdp'"),
    ):
        with pytest.raises(ValueError, match=said):
            sharding.params(mesh, specs, rules)


def test_the_timer_counts_laps_only():
    now = iter([0.0, 2.0, 10.0, 13.0, 20.0, 21.0])
    t = timer.Timer(5.0, clock=lambda: next(now))
    t.start()
    t.start()
    assert t.lap() == 2.0 and t.lap() == 0.0
    t.start()
    assert t.lap(count=False) == 3.0 and t.seconds == 7.0


def test_a_log_is_cut_back_to_the_saved_step(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"kind": "eval", "step": 2}\n{"kind": "train", "step": 5}\n{"kind": "tr')
    log = metrics.Log(path, 2)
    assert log.evaluated(2) and not log.evaluated(5)
    assert path.read_text() == '{"kind": "eval", "step": 2}\n'
