"""The one training loop: resume, then evaluate, save, draw a batch, step. Arms of a config run side by side into one report."""

import logging
import math
import time
from functools import partial
from pathlib import Path

import jax
import numpy as np
import optax
from tqdm import tqdm

from lpe import arms, model, report, settings, sharding, workdir
from lpe.checkpoint.run_state import RunState
from lpe.metrics import Log
from lpe.signals import Stop
from lpe.tasks.base import Task
from lpe.timer import Timer

notice = logging.getLogger(__name__)


def run(config: dict, folder: Path | None = None) -> Path:
    """Trains every arm of `config`, evaluates along the way and writes the report.

    Args:
      config: plain data as configs/common.py lists it.
      folder: a new folder, or that of an earlier run of the same config, which is then resumed. Default: runs/NAME-HASH.

    Returns:
      the folder: config.json, versions.json, report.md, plots, and per arm metrics.jsonl, checkpoints and the model.

    Raises:
      ValueError, FileNotFoundError: wherever the config already shows it, before anything is loaded or compiled.
    """
    settings.check(config)
    todo = arms.named(config)
    for _, arm in todo:
        arms.check(arm)
    folder = workdir.open(config, folder)
    notice.info("run      %s", folder)
    examples: dict[tuple, tuple] = {}
    with workdir.lock(folder), workdir.full_disk(folder):
        for number, (name, arm) in enumerate(todo, 1):
            loop(arms.prepare(arm, examples), folder / workdir.slug(name), f"[{number}/{len(todo)}] {name}")
        if sharding.leads():
            report.write(folder, [(name, folder / workdir.slug(name)) for name, _ in todo])
    return folder


def loop(arm: arms.Arm, folder: Path, title: str) -> None:
    """Trains to the last step. A stop at any point loses at most what came after the last save."""
    config, state = arm.config, arm.state
    steps, every, pause = config["train"]["steps"], config["eval"]["every"], 60 * config["save"]["every_minutes"]
    folder.mkdir(parents=True, exist_ok=True)
    saved = RunState(folder / "checkpoints", config["save"]["keep"])
    step, timer = 0, Timer()
    if (restored := saved.restore(state)) is not None:
        state, (step, timer.seconds) = restored[0], (restored[1]["step"], restored[1]["seconds"])
        notice.info("%s: resumed at step %d", title, step)
    log = Log(folder / "metrics.jsonl", -1 if restored is None else step)
    train_step = jax.jit(partial(_step, arm.task, arm.tx), donate_argnums=0)
    predict = jax.jit(arm.task.predict)
    stream = iter(arm.batches[step:].to_iter_dataset())
    steps_here, last_save, pending = 0, time.monotonic(), []
    hidden = not sharding.leads()
    bar = tqdm(total=steps, initial=step, desc=title, unit="step", dynamic_ncols=True, disable=hidden)
    with saved, bar, Stop() as stop:
        while True:
            due = (step % every == 0 or step == steps) and not log.evaluated(step)
            ask, late = stop.requested, time.monotonic() - last_save > pause
            ask, late = sharding.agreed(ask, late, now=step % config["train"]["log_every"] == 0)
            save = step == steps or ask or late
            if pending and (due or save or step % config["train"]["log_every"] == 0):
                _record(pending, timer, log, bar, counted=steps_here > 1)
                pending = []
            if due:
                for view, batches in arm.views.items():
                    results = ((b, _predict(predict, state["params"], arm.mesh, b)) for b in batches)
                    row = {"kind": "eval", "step": step, "view": view, "label": arm.task.views[view].label}
                    log.add({**row, **arm.task.score(results)})
            if save:
                saved.save(step, state, {"step": step, "seconds": timer.seconds})
                last_save = time.monotonic()
            if step == steps or ask:
                break
            batch = next(stream)
            timer.start()
            state, metrics = train_step(state, sharding.put(batch, sharding.batch(arm.mesh)), np.int32(step))
            step, steps_here = step + 1, steps_here + 1
            pending.append((step, metrics, int(batch["attention_mask"].sum())))
            if steps_here == 1:  # compilation: not training time
                _record(pending, timer, log, bar, counted=False)
                pending = []
    if step < steps:
        notice.warning("stopped and saved at step %d of %d; the same command resumes there", step, steps)
        raise SystemExit(0)
    if config["save"]["dtype"] != "no" and not (folder / "model").exists():
        params = sharding.whole(state["params"])
        tuned = model.Model({k: params[k] for k in arm.model.params}, arm.model.recipe, arm.model.companions)
        if sharding.leads():
            tuned.save_pretrained(folder / "model", dtype=config["save"]["dtype"])


def _step(task: Task, tx: optax.GradientTransformation, state: dict, batch: dict, step: jax.Array) -> tuple[dict, dict]:
    key = jax.random.fold_in(jax.random.wrap_key_data(state["rng"]), step)
    (_, metrics), grads = jax.value_and_grad(task.loss, has_aux=True)(state["params"], batch, key)
    updates, opt_state = tx.update(grads, state["opt_state"], state["params"])
    params = optax.apply_updates(state["params"], updates)
    return {"params": params, "opt_state": opt_state, "rng": state["rng"]}, metrics


def _record(pending: list, timer: Timer, log: Log, bar: tqdm, *, counted: bool) -> None:
    """Writes one row for the steps since the last; waits for them, and stops the run at a loss that is not finite."""
    values = [(step, jax.device_get(metrics), tokens) for step, metrics, tokens in pending]
    seconds = timer.lap(counted)
    for step, metrics, _ in values:
        loss = float(metrics["loss"][0])
        if not math.isfinite(loss):
            raise FloatingPointError(f"the loss is {loss} in step {step}; lower optim.learning_rate, or check the data")
    mean = {n: float(sum(m[n][0] for _, m, _ in values) / sum(m[n][1] for _, m, _ in values)) for n in values[0][1]}
    speed = {"tokens_per_s": sum(t for *_, t in values) / seconds} if counted else {}
    log.add({"kind": "train", "step": values[-1][0], "seconds": timer.seconds, **mean, **speed})
    bar.update(len(values))
    bar.set_postfix({n: f"{v:,.3g}" if v < 1000 else f"{v:,.0f}" for n, v in {**mean, **speed}.items()}, refresh=False)


def _predict(predict, params: dict, mesh: jax.sharding.Mesh, batch: dict) -> dict:
    """Outputs for a batch of any size: rows are repeated up to a whole number per device, and their outputs dropped."""
    rows = len(next(iter(batch.values())))
    short = -rows % sharding.parts(mesh)
    whole = {k: np.concatenate([v, np.repeat(v[-1:], short, axis=0)]) for k, v in batch.items()}
    return jax.tree.map(lambda x: x[:rows], sharding.whole(predict(params, sharding.put(whole, sharding.batch(mesh)))))
