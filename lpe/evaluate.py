"""Scores of a model on the held-out data, view by view; in training and on what an earlier run left."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import numpy as np

from lpe import arms, report, sharding, workdir
from lpe.best import Best
from lpe.checkpoint.run_state import RunState
from lpe.metrics import Log, read

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
    short = -rows % mesh.shape["data"]
    whole = {k: np.concatenate([v, np.repeat(v[-1:], short, axis=0)]) for k, v in batch.items()}
    return jax.tree.map(lambda x: x[:rows], jax.device_get(predict(params, sharding.put(whole, sharding.batch(mesh)))))


def run(config: dict, folder: Path) -> Path:
    """Evaluates the result of every arm of the run in `folder` and writes eval/report.md there.

    The config is that of the run but for `mode`, `eval` and `data`, which may ask for other views, more examples or other text.

    Returns:
      the folder of the report.

    Raises:
      ValueError, FileNotFoundError: no run of this config there, or an arm without a saved state.
    """
    workdir.same(config, folder, free=("mode", "eval", "data"))
    cache: dict = {}
    done = []
    for name, over in arms.named(config):
        source = folder / workdir.slug(name)
        arm = arms.prepare(over, cache)
        step, params = _result(arm, source)
        target = folder / "eval" / source.name
        target.mkdir(parents=True, exist_ok=True)
        log = Log(target / "metrics.jsonl", -1)
        for row in rows(arm, jax.jit(arm.task.predict), params, step):
            log.add(row)
        done.append((name, target, arm.task))
    report.write(folder / "eval", done)
    return folder / "eval"


def _result(arm: arms.Arm, source: Path) -> tuple[int, dict]:
    """The parameters that the run gives back: those of the best evaluation where it keeps it, else the last."""
    best = Best(arm.config["eval"], read(source / "metrics.jsonl"))
    if best.step is not None:
        got = RunState(source / "best", 1).restore({"params": arm.state["params"]})
    else:
        got = RunState(source / "checkpoints", 1).restore(arm.state) if (source / "checkpoints").is_dir() else None
    if got is None:
        raise FileNotFoundError(f"{source} holds no saved state; train first: the same command without --config.mode=eval")
    return got[1]["step"], got[0].get("ema", got[0]["params"])
