"""The one training loop: resume, then evaluate, save, draw a batch, step. Arms of a config run side by side into one report."""

import contextlib
import json
import logging
import math
import time
from pathlib import Path

import jax
import numpy as np
from tqdm import tqdm

from lpe import arms, evaluate, report, settings, sharding, workdir
from lpe.best import Best
from lpe.checkpoint.run_state import RunState
from lpe.metrics import Log
from lpe.signals import Stop
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
    if config["mode"] == "eval":
        return evaluate.run(config, workdir.default(config) if folder is None else folder)
    folder = workdir.open(config, folder)
    notice.info("run      %s", folder)
    cache: dict = {}
    with workdir.lock(folder), workdir.full_disk(folder):
        done = []
        for number, (name, over) in enumerate(todo, 1):
            arm, target = arms.prepare(over, cache), folder / workdir.slug(name)
            loop(arm, target, f"[{number}/{len(todo)}] {name}")
            done.append((name, target, arm.task, arm.config["eval"]))
        if sharding.leads():
            report.write(folder, done)
    return folder


def loop(arm: arms.Arm, folder: Path, title: str) -> None:
    """Trains to the last step. A stop at any point loses at most what came after the last save."""
    config, state = arm.config, arm.state
    steps, every, pause = config["train"]["steps"], config["eval"]["every"], 60 * config["save"]["every_minutes"]
    folder.mkdir(parents=True, exist_ok=True)
    saved = RunState(folder / "checkpoints", config["save"]["keep"])
    kept = RunState(folder / "best", 2) if config["eval"]["best"] else None
    step, timer = 0, Timer()
    if (restored := saved.restore(state)) is not None:
        state, (step, timer.seconds) = restored[0], (restored[1]["step"], restored[1]["seconds"])
        notice.info("%s: resumed at step %d", title, step)
    log = Log(folder / "metrics.jsonl", -1 if restored is None else step, tensorboard=config["tensorboard"])
    best = Best(config["eval"], log.rows)
    if kept is not None:
        kept.cut(best.step)
    if arm.task.labels and sharding.leads():
        workdir.write(folder / evaluate.LABELS, json.dumps(arm.task.labels) + "\n")
    train_step, predict = jax.jit(arm.step, donate_argnums=0), jax.jit(arm.task.predict)
    stream = iter(arm.batches[step:].to_iter_dataset())
    last_save, pending, compiled = time.monotonic(), [], False
    bar = tqdm(total=steps, initial=step, desc=title, unit="step", dynamic_ncols=True, disable=not sharding.leads())
    with saved, kept or contextlib.nullcontext(), log, bar, Stop() as stop:
        while True:
            last = step == steps or best.exhausted
            due = (step % every == 0 or last) and not log.evaluated(step)
            ask, late = stop.requested, time.monotonic() - last_save > pause
            ask, late = sharding.agreed(ask, late, now=step % config["train"]["log_every"] == 0)
            if pending and (due or last or ask or late or step % config["train"]["log_every"] == 0 or not compiled):
                _record(pending, timer, log, bar, arm, counted=compiled)
                pending, compiled = [], True
            if due:
                judged = state.get("ema", state["params"])
                for row in evaluate.rows(arm, predict, judged, step):
                    log.add(row)
                    if best.update(row) and kept is not None:
                        kept.save(step, {"params": judged}, {"step": step}, wait=True)  # before the state that knows of it
                last = last or best.exhausted
            if last or ask or late:
                saved.save(step, state, {"step": step, "seconds": timer.seconds})
                last_save = time.monotonic()
            if last or ask:
                break
            timer.start()
            batch = timer.waiting(stream.__next__)
            state, metrics = train_step(state, sharding.put(batch, sharding.batch(arm.mesh)), np.int32(step))
            step += 1
            pending.append((step, metrics, batch))
    if not last:
        notice.warning("stopped and saved at step %d of %d; the same command resumes there", step, steps)
        raise SystemExit(0)
    if step < steps:
        notice.info("%s: ended at step %d, %d evaluations after the best, at step %s", title, step, best.since, best.step)
    if config["save"]["dtype"] != "no" and not (folder / "model").exists():
        params = state.get("ema", state["params"])
        if best.step is not None:
            params = evaluate.result(arm, folder)[1]
        arm.save(params, folder / "model")


def _record(pending: list, timer: Timer, log: Log, bar: tqdm, arm: arms.Arm, *, counted: bool) -> None:
    """Writes one row for the steps since the last; waits for them. Raises FloatingPointError where one went wrong."""
    values = [(step, jax.device_get(metrics), batch) for step, metrics, batch in pending]
    waited = timer.waited
    seconds = timer.lap(counted)
    for step, metrics, batch in values:
        for name in ("loss", "grad_norm"):
            if not math.isfinite(value := float(metrics[name][0])):
                examples = [int(i) for i in np.unique(batch["example"]) if i >= 0]
                raise FloatingPointError(
                    f"step {step}: the {name} is {value} in a batch of examples {examples[:8]} ({arm.where(examples[0])}, …); "
                    f"the last good state is kept in {log.path.parent}. Lower optim.learning_rate, or look at these examples"
                )
    mean = {n: float(sum(m[n][0] for _, m, _ in values) / max(1, sum(m[n][1] for _, m, _ in values))) for n in values[0][1]}
    tokens = sum(int(batch["attention_mask"].sum()) for *_, batch in values)
    speed = {"tokens_per_s": tokens / seconds, "input_wait": waited / seconds} if counted else {}
    log.add({"kind": "train", "step": values[-1][0], "seconds": timer.seconds, **mean, **speed})
    bar.update(len(values))
    bar.set_postfix({n: f"{v:,.3g}" if v < 1000 else f"{v:,.0f}" for n, v in {**mean, **speed}.items()}, refresh=False)
