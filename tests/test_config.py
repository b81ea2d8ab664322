"""Configs: every one runs, and what is wrong in one is said by name before anything is loaded."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from configs import common
from lpe import metrics, settings, train
from lpe.registry import nearest

ROOT = Path(__file__).parent.parent
CONFIGS = sorted(p.stem for p in (ROOT / "configs").glob("*.py") if p.stem not in ("__init__", "common"))


def config(name: str = "hier", argument: str | None = "debug") -> dict:
    return import_module(f"configs.{name}").get_config(argument).to_dict()


@pytest.mark.parametrize("name", CONFIGS)
def test_every_config_runs_two_steps(name, tmp_path):
    c = config(name)
    folder = train.run(c, tmp_path / "run")
    assert (folder / "report.md").is_file() and (folder / "curve.png").stat().st_size > 10_000
    logs = list(folder.glob("*/metrics.jsonl"))
    steps, every = c["train"]["steps"], c["eval"]["every"]
    assert steps == 2 or name == "zero_shot"
    due = {s for s in range(steps + 1) if s % every == 0 or s == steps}
    assert logs and all(due == {r["step"] for r in metrics.read(p) if r["kind"] == "eval"} for p in logs)
    stock = c["save"]["dtype"] != "no"
    assert len(list(folder.glob("*/model/config.json"))) == stock * len(logs)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.update(postion=1), "postion: unknown key; did you mean 'position'"),
        (lambda c: c["train"].update(setps=1), r"train.setps: unknown key; did you mean 'steps'"),
        (lambda c: c["optim"].pop("b1"), "optim.b1: missing"),
        (lambda c: c["train"].update(steps="3"), "train.steps='3', allowed: whole numbers from 0"),
        (lambda c: c["train"].update(batch_size=0), "train.batch_size=0"),
        (lambda c: c["optim"].update(learning_rate=-1.0), "learning_rate=-1.0, allowed: numbers above 0"),
        (lambda c: c.update(dtype="float8"), "dtype='float8'.*there are: float32, bfloat16"),
        (lambda c: c.update(position="hierarchical"), "position='hierarchical', allowed"),
        (lambda c: c.update(train=3), "train=3, allowed: a group of keys"),
        (lambda c: c["position"].update(alpha=0.5), r"alpha=0.5 gives the positions \(i, j\) and \(j, i\) the same vector"),
        (lambda c: c["position"].update(alpha=1.2), "alpha=1.2, allowed are 0 < alpha < 1 except 0.5"),
        (lambda c: c["position"].update(name="hierarchcal"), "no method 'hierarchcal'; did you mean 'hierarchical'"),
        (lambda c: c["position"].update(alfa=0.4), "no option 'alfa'; did you mean 'alpha'"),
        (lambda c: c["position"].update(max_length=99_999), "max_length=99999, allowed are whole numbers from 1 to 16384"),
        (lambda c: c["task"].update(mask_rate=1.5), "mask_rate=1.5"),
        (lambda c: c["task"].update(length=2), "task.length=2"),
        (lambda c: c["eval"].update(views=("ful",)), "eval.views: no view 'ful'; did you mean 'full'"),
        (lambda c: c.update(checkpoint="nothing-here"), "checkpoint 'nothing-here' is no folder"),
        (lambda c: c["data"].update(source="nothing-here"), "data 'nothing-here' is no file"),
        (lambda c: c["position"].update(max_length=200), "reads inputs of 380 tokens, but position .* offers 200; raise"),
        (lambda c: c.update(dtype="bfloat"), "dtype='bfloat'; did you mean 'bfloat16'"),
        (lambda c: c.update(arms=3), "arms=3, allowed: a list of"),
        (lambda c: c.update(arms=(("a b", {}), ("a-b", {}))), "each needs a folder of its own"),
        (lambda c: c.update(arms=(("..", {}),)), "each needs a folder of its own"),
        (lambda c: c["optim"].update(decay=(("(", 1.0),)), "optim.decay=.*a list of .regular expression, factor"),
        (lambda c: c["optim"].update(freeze="all_but_position"), "did you mean 'all_but_positions'"),
        (lambda c: c["optim"].update(freeze="first_0_layers"), "optim.freeze='first_0_layers'; did you mean 'first_3_layers'"),
        (lambda c: c["optim"].update(freeze_rules=((".*", "stop"),)), "optim.freeze_rules=.*train . freeze . new_rows"),
        (lambda c: c["eval"].update(views=()), "eval.views=.*at least one"),
        (lambda c: c.update(mesh={"data": -1, "fsdp": 0}), "mesh=.*sizes from 1"),
        (lambda c: c.update(sharding_rules={"embed": ["fsdp"]}), "sharding_rules=.*"),
        (lambda c: c.update(seed=2**70), "seed=.*2.32"),
        (lambda c: c.update(arms=(("a|b", {}),)), "name 'a.b': tables show it"),
        (lambda c: c["optim"].update(layer_decay=1.5), "layer_decay=1.5, allowed: numbers above 0, up to 1"),
        (lambda c: c["optim"].update(ema=1.0), "optim.ema=1.0"),
        (lambda c: c["train"].update(accumulate=3), "train.accumulate=3 does not divide train.batch_size=2"),
        (lambda c: c["eval"].update(best="full/acuracy"), "no metric 'acuracy'; did you mean 'accuracy'"),
        (lambda c: c["eval"].update(best="fll/accuracy"), "no view 'fll' in eval.views; did you mean 'full'"),
        (lambda c: c["eval"].update(patience=2), "eval.patience=2 needs eval.best, as 'full/accuracy'"),
        (lambda c: c.update(mode="test"), "mode='test'"),
        (lambda c: c["optim"].update(b1=1.0), "optim.b1=1.0, allowed: numbers from 0, below 1"),
        (lambda c: c.update(mesh={"data": 3}), "mesh {'data': 3} does not fit"),
        (lambda c: c.update(arms=(("x", {"position": {"name": "learned", "alpha": 1}}),)), "no option 'alpha'"),
    ],
)
def test_a_wrong_config_stops_before_anything_is_loaded(change, message, tmp_path, monkeypatch):
    c = config()
    change(c)
    monkeypatch.setattr("lpe.checkpoint.load.read", lambda *a: pytest.fail("weights were read"))
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        train.run(c, tmp_path / "run")


def test_arguments_behind_the_colon():
    arg = common.parse("length=2048,alpha=1,debug,data=a.txt", length=384, alpha=0.4, data="sotu", debug=False)
    assert arg.to_dict() == {"length": 2048, "alpha": 1.0, "data": "a.txt", "debug": True}
    for bad, message in (
        ("lenght=3", "did you mean 'length'"),
        ("length=x", "not a int"),
        ("length=2.5", "not a int"),
        ("length", "needs a value"),
    ):
        with pytest.raises(ValueError, match=message):
            common.parse(bad, length=384)


def test_common_defaults_are_valid_and_complete():
    settings.check(common.get_config().to_dict())


def test_merging_an_arm_replaces_methods_and_merges_groups():
    base = {"position": {"name": "hierarchical", "alpha": 0.4}, "train": {"steps": 3, "view": "full"}}
    got = settings.merged(base, {"position": {"name": "learned"}, "train": {"view": "pieces"}})
    assert got == {"position": {"name": "learned"}, "train": {"steps": 3, "view": "pieces"}}
    assert base["train"]["view"] == "full"


def test_nearest_names_what_there_is():
    assert nearest("alpah", ["alpha", "beta"]) == "; did you mean 'alpha'? (there are: alpha, beta)"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--config=configs/hier.py", "--config.train.setps=3"], "no key 'train.setps'; did you mean 'steps'"),
        (
            ["--config=configs/hier.py", "--config.position.aplha=0.3"],
            "no method of lpe.positions has an option 'aplha'",
        ),
        (["--config=configs/hier.py", "--config.train.steps=x"], "flag --config.train.steps=x"),
        (["--config=configs/hier.py:lenght=3"], "no argument 'lenght'; did you mean 'length'"),
        (["--config=configs/nothing.py"], "No such file or directory: 'configs/nothing.py'"),
        ([], "give a config"),
        (["--config=configs/hier.py:alpha=0.5"], "alpha=0.5 gives the positions"),
    ],
)
def test_the_command_line_answers_in_one_line(arguments, message):
    done = subprocess.run([sys.executable, "-m", "lpe.main", *arguments], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert message in done.stderr and "Traceback" not in done.stderr, done.stderr
