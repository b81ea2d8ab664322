"""Sweeps: runs of a config file, repeats into one line with its standard error, resumable, one table and one plot."""

import json

import numpy as np
import pytest

from experiments import sweep

CONFIG = """
from configs import hier

def get_config(argument=None):
    config = hier.get_config("debug")
    config.name, config.arms, config.train.steps, config.save.dtype = "tiny", (), 1, "no"
    config.eval.update(views=("full",), every=1)
    return config

def sweep(add, config):
    for seed in (0, 1):
        for alpha in (0.2, 0.4):
            position = {"name": "hierarchical", "alpha": alpha, "max_length": config["task"]["length"]}
            add(f"α = {alpha}", {"position": position, "seed": seed}, x=alpha)
"""


@pytest.fixture(scope="module")
def config():
    names: dict = {}
    exec(CONFIG, names)
    return names["get_config"]().to_dict()


@pytest.fixture(scope="module")
def swept(tmp_path_factory, config):
    folder = tmp_path_factory.mktemp("sweep")
    (folder / "tiny.py").write_text(CONFIG)
    return folder, sweep.run(str(folder / "tiny.py"), config, folder / "out")


def lines(folder) -> list[dict]:
    return [json.loads(x) for x in (folder / "results.jsonl").read_text().splitlines()]


@pytest.mark.heavy
def test_every_run_has_its_line_and_repeats_are_one_row(swept):
    _, out = swept
    got = lines(out)
    assert [(r["label"], r["repeat"], r["x"]) for r in got] == [
        ("α = 0.2", 0, 0.2), ("α = 0.4", 0, 0.4), ("α = 0.2", 1, 0.2), ("α = 0.4", 1, 0.4)
    ]  # fmt: skip
    table = [x for x in (out / "report.md").read_text().splitlines() if x.startswith("| α")]
    assert len(table) == 2 and all(x.endswith("| 2 |") for x in table)
    after = np.asarray([r["views"]["full"]["after"]["accuracy"] for r in got if r["x"] == 0.4])
    assert f"{100 * after.mean():.1f} ± {100 * after.std(ddof=1) / 2**0.5:.1f} %" in table[1]
    assert (out / "sweep.png").stat().st_size > 10_000


@pytest.mark.heavy
def test_it_goes_on_where_it_was_stopped(swept, config, monkeypatch):
    folder, out = swept
    before = lines(out)
    (out / "results.jsonl").write_text("".join(json.dumps(r) + "\n" for r in before[:3]))
    ran = []
    real = sweep.train.run
    monkeypatch.setattr(sweep.train, "run", lambda c, f: ran.append(f.name) or real(c, f))
    sweep.run(str(folder / "tiny.py"), config, out)
    assert ran == ["α-=-0.4.1"] and lines(out) == before


@pytest.mark.heavy
def test_a_line_that_a_kill_cut_is_done_again(swept, config):
    folder, out = swept
    before = lines(out)
    (out / "results.jsonl").write_text("".join(json.dumps(r) + "\n" for r in before[:3]) + json.dumps(before[3])[:40])
    sweep.run(str(folder / "tiny.py"), config, out)
    assert lines(out) == before


@pytest.mark.heavy
def test_what_cannot_be_swept_is_refused_before_the_first_run(swept, config, tmp_path):
    folder, out = swept
    (tmp_path / "tiny.py").write_text(CONFIG.replace('"seed": seed', '"seed": seed + 1'))
    with pytest.raises(ValueError, match="holds a run of another config"):
        sweep.run(str(tmp_path / "tiny.py"), config, out)
    with pytest.raises(ValueError, match="mode='eval': a sweep trains"):
        sweep.run(str(folder / "tiny.py"), {**config, "mode": "eval"}, out)
    (tmp_path / "tiny.py").write_text(CONFIG.replace("(0.2, 0.4)", "(0.2, 1.4)"))
    with pytest.raises(ValueError, match="alpha=1.4, allowed are 0 < alpha < 1"):
        sweep.run(str(tmp_path / "tiny.py"), config, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    (tmp_path / "tiny.py").write_text(CONFIG.replace('f"α = {alpha}"', "f\"α{alpha > 0.3 and ' - ' or '-'}\""))
    with pytest.raises(ValueError, match="each label needs a folder of its own"):
        sweep.run(str(tmp_path / "tiny.py"), config, tmp_path / "out")


@pytest.mark.heavy
def test_results_are_copied_for_the_repository(swept, monkeypatch, tmp_path):
    monkeypatch.setattr(sweep, "RESULTS", tmp_path)
    target = sweep.commit(swept[1], "tiny")
    assert {p.name for p in target.iterdir()} == {"config.json", "versions.json", "results.jsonl", "report.md", "sweep.png"}


def test_a_config_without_a_sweep_is_refused(config):
    with pytest.raises(ValueError, match=r"configs/hier.py has no sweep\(add, config\); write one, as configs/alpha.py"):
        sweep.listed("configs/hier.py", config)


@pytest.mark.parametrize(("name", "count"), [("alpha", 24), ("zero_shot", 66), ("classify", 25), ("extrapolation", 27)])
def test_the_committed_sweeps_list_valid_runs(name, count):
    from importlib import import_module

    from lpe import settings

    runs = sweep.listed(f"configs/{name}.py", import_module(f"configs.{name}").get_config().to_dict())
    assert len(runs) == count
    for _, each in runs:
        settings.check(each)
