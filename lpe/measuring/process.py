"""Passes in a process of their own: its highest resident size above the loaded model, and how long they take.

    python -m lpe.measuring.process FOLDER

FOLDER holds spec.json (a Spec) and ids.npy; the process writes found.json there. `alone` starts it and reads that.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from lpe import model, stepwise

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class Spec(NamedTuple):
    """What is run. rounds: passes after the first one, which compiles; 0 for the first alone, whose time is then taken.

    position: a list of {"name": …, options}; attention: one such. An empty one is the checkpoint's own.
    """

    checkpoint: str
    position: list[dict[str, Any]]
    attention: dict[str, Any]
    chunk_size: int = 0
    dtype: str = "float32"
    rounds: int = 1
    title: str = ""


class Found(NamedTuple):
    """seconds: of every round. cpu: likewise, of all threads together, which other processes change less.

    memory: bytes above what the loaded model takes, compilation included; None: not known here. finite: whether all outputs
    are. norm: of the mean of the states, which tells results apart.
    """

    seconds: list[float]
    cpu: list[float]
    memory: int | None
    finite: bool
    norm: float


class Peak:
    """The highest resident size of this process since the object was made, above the size it had then.

    As Linux counts it (VmHWM, set back by clear_refs): getrusage's figure can be that of a larger parent, and never goes down.
    """

    def __init__(self):
        try:
            CLEAR.write_text("5", encoding="ascii")
            self.before: int | None = _status("VmRSS")
        except OSError:
            self.before = None

    def bytes(self) -> int | None:
        """None where the system does not say."""
        return None if self.before is None else _status("VmHWM") - self.before


def _status(key: str) -> int:
    line = next(x for x in STATUS.read_text(encoding="utf-8").splitlines() if x.startswith(f"{key}:"))
    return 1024 * int(line.split()[1])


def alone(spec: Spec, ids: np.ndarray) -> Found:
    """Runs the spec on ids i32[T], batch 1, in a fresh process.

    Raises:
      ValueError: the process failed, with its last line.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "spec.json").write_text(json.dumps(spec._asdict()), encoding="utf-8")
        np.save(folder / "ids.npy", ids)
        command = [sys.executable, "-m", "lpe.measuring.process", name]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=None if spec.title else subprocess.PIPE, text=True)
        if done.returncode:
            last = (done.stderr or "").strip().splitlines()[-1:] or ["see above"]
            killed = "; by the system, which has no memory left" if done.returncode == -9 else ""
            raise ValueError(f"a pass of {len(ids)} tokens ended with {done.returncode}{killed}: {last[0]}")
        return Found(**json.loads((folder / "found.json").read_text(encoding="utf-8")))


def run(spec: Spec, ids: np.ndarray) -> Found:
    """The same in this process, layer by layer, with a bar where the spec has a title."""
    options = {"chunk_size": spec.chunk_size, "dtype": spec.dtype}
    mod = model.from_pretrained(spec.checkpoint, **options)
    if spec.position or spec.attention:
        mod = mod.extend(position=spec.position or None, attention=spec.attention or None)
    jax.block_until_ready(mod.params)
    peak, seconds, cpu, mean = Peak(), [], [], jnp.zeros(())
    for number in range(1 + spec.rounds):
        which = "first pass, with compilation" if number == 0 else f"pass {number + 1} of {1 + spec.rounds}"
        what = f"{spec.title}, {which}"
        start, busy = time.perf_counter(), time.process_time()
        with tqdm(total=mod.config.num_hidden_layers, desc=what, unit="layer", disable=not spec.title) as bar:
            mean = jax.block_until_ready(stepwise.encode(mod, {"input_ids": ids[None]}, shown(bar)).mean(axis=1))
        seconds.append(time.perf_counter() - start)
        cpu.append(time.process_time() - busy)
    norm = float(np.linalg.norm(np.asarray(mean)))
    return Found(seconds[1:] or seconds, cpu[1:] or cpu, peak.bytes(), bool(np.isfinite(norm)), norm)


def shown(bar: tqdm) -> Callable[[int, int], None]:
    """A `done` of stepwise.encode that moves a bar."""

    def done(layer: int, layers: int) -> None:
        bar.update(layer - bar.n)

    return done


def main(folder: Path) -> None:
    """The process that `alone` starts."""
    spec = Spec(**json.loads((folder / "spec.json").read_text(encoding="utf-8")))
    found = run(spec, np.load(folder / "ids.npy"))
    (folder / "found.json").write_text(json.dumps(found._asdict()), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
