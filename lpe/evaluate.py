"""Scores of a model on the held-out data, view by view; in training and on what an earlier run left."""

import contextlib
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import numpy as np

from lpe import arms, report, sharding, workdir
from lpe.checkpoint.run_state import RunState
from lpe.metrics import Log

LABELS = "labels.json"  # the classes of a run, in order
notice = logging.getLogger(__name__)


def rows(arm: arms.Arm, predict: Callable, params: dict, step: int) -> Iterator[dict]:
    """One row of metrics.jsonl for each view that the config evaluates.

    Args:
      predict: the jitted arm.task.predict; made once a run.
    """
    for view, batches in arm.views.items():
        results = ((b, outputs(predict, params, arm.mesh, b)) for b in batches)
        row = {"kind": "eval", "step": step, "view": view, "label": arm.task.views[view].label, "metrics": arm.task.metrics}
        yield {**row, **arm.task.score(results)}


def outputs(predict: Callable, params: dict, mesh: jax.sharding.Mesh, batch: dict) -> dict:
    """Outputs for a batch of any size: rows are repeated up to a whole number per device, and their outputs dropped."""
    rows = len(next(iter(batch.values())))
    short = -rows % sharding.parts(mesh)
    whole = {k: np.concatenate([v, np.repeat(v[-1:], short, axis=0)]) for k, v in batch.items()}
    return jax.tree.map(lambda x: x[:rows], sharding.whole(predict(params, sharding.put(whole, sharding.batch(mesh)))))


def run(config: dict, folder: Path) -> Path:
    """Evaluates the result of every arm of the run in `folder` and writes eval/report.md there.

    The config is that of the run but for `mode`, `eval` and `data`, which may ask for other views, more examples or other text.

    Returns:
      the folder of the report.

    Raises:
      ValueError, FileNotFoundError: no run of this config there, or an arm without a saved state.
    """
    workdir.same(config, folder, {**workdir.FREE, "eval": True, "data": True})
    trained = dict(arms.named(json.loads((folder / "config.json").read_text(encoding="utf-8"))))
    cache: dict = {}
    done = []
    with workdir.lock(folder):  # reading may clean up after a killed run
        for name, over in arms.named(config):
            source = folder / workdir.slug(name)
            if (file := source / LABELS).is_file():  # the classes are those of the run, whatever the text here has
                over["task"] = {**over["task"], "labels": json.loads(file.read_text(encoding="utf-8"))}
            over["eval"] = {**over["eval"], "best": trained[name]["eval"]["best"], "patience": 0}
            arm = arms.prepare(over, cache)
            step, params = result(arm, source)
            if step < (steps := over["train"]["steps"]) and not over["eval"]["best"]:
                notice.warning("%s: not finished, this is step %d of %d", name, step, steps)
            target = folder / "eval" / source.name
            target.mkdir(parents=True, exist_ok=True)
            with Log(target / "metrics.jsonl", -1) as log:
                for row in rows(arm, jax.jit(arm.task.predict), params, step):
                    log.add(row)
            done.append((name, target, arm))
    if sharding.leads():
        report.write(folder / "eval", [(n, path, arm.task, {**arm.config["eval"], "best": ""}) for n, path, arm in done])
    return folder / "eval"


def result(arm: arms.Arm, source: Path) -> tuple[int, dict]:
    """The step and the parameters that a run gives back: those of the best evaluation where it keeps it, else the last.

    Raises:
      FileNotFoundError: nothing was saved in `source`, the arm's folder.
    """
    if arm.config["eval"]["best"]:
        kept, like = source / "best", {"params": arm.state["params"]}
    else:
        kept, like = source / "checkpoints", arm.state
    with RunState(kept, 2) if kept.is_dir() else contextlib.nullcontext() as state:
        got = state.restore(like) if state else None
    if got is None:
        raise FileNotFoundError(f"{source} holds no saved state; train first: the same command without --config.mode=eval")
    return got[1]["step"], got[0].get("ema", got[0]["params"])
