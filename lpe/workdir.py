"""The folder of a run: what ran (config, versions, commit), so that a result can be made again."""

import contextlib
import errno
import hashlib
import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path

import jax
from filelock import FileLock, Timeout

from lpe import sharding

PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "transformers", "tokenizers", "grain", "numpy")


FREE = {  # may change when a run resumes
    "mode": True,
    "mesh": True,
    "sharding_rules": True,
    "save": {"every_minutes": True, "keep": True},
}
FULL = [os.strerror(n) for n in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)]


def default(config: Mapping) -> Path:
    """runs/NAME-HASH OF THE CONFIG."""
    return Path("runs") / f"{config['name']}-{hashlib.sha256(_text(_without(config, FREE)).encode()).hexdigest()[:8]}"


def open(config: dict, folder: Path | None) -> Path:
    """Makes the folder, or finds it to be one of the same config.

    The layout over devices and the times of saving (FREE) are no part of that: they say how a run is done, not what it is.

    Raises:
      ValueError: the folder holds something else, or is a file.
      OSError: the disk is full.
    """
    folder = folder or default(config)
    there = folder / "config.json"
    for path in (folder, *folder.parents):
        if path.exists() and not path.is_dir():
            raise ValueError(f"{path} is a file, not a folder; give another folder")
    with full_disk(folder):
        if sharding.leads():
            if not there.exists() and folder.exists() and any(p.suffix != ".tmp" for p in folder.iterdir()):
                raise ValueError(f"{folder} is not empty and holds no run; give another folder")
            folder.mkdir(parents=True, exist_ok=True)
            if not there.exists():
                write(there, _text(config))
        sharding.wait("workdir")
        if not there.exists():
            raise ValueError(f"{folder} is not the folder that process 0 sees; give a folder on a disk that all hosts share")
        same(config, folder)
        if sharding.leads():
            _record_versions(
                folder / "versions.json", {k: config[k] for k in ("mesh", "sharding_rules", "save") if k in config}
            )
    return folder


def same(config: Mapping, folder: Path, free: Mapping = FREE) -> None:
    """Raises ValueError unless `folder` holds a run of this config, free keys apart; FileNotFoundError without any run."""
    there = folder / "config.json"
    if not there.is_file():
        raise FileNotFoundError(f"{folder} holds no run (no config.json); train first, or give its --workdir")
    if _text(_without(json.loads(there.read_text(encoding="utf-8")), free)) != _text(_without(config, free)):
        raise ValueError(f"{folder} holds a run of another config; give another folder, or remove that one")


def _text(config: Mapping) -> str:
    return json.dumps(config, indent=2, sort_keys=True) + "\n"


def _without(config: Mapping, free: Mapping) -> dict:
    """`config`, also that of its arms, without the free keys."""
    out = {k: v for k, v in config.items() if free.get(k) is not True}
    out |= {k: _without(out[k], free[k]) for k in free if k in out}
    return out | ({"arms": [[n, _without(over, free)] for n, over in out["arms"]]} if "arms" in out else {})


def write(path: Path, text: str) -> None:
    """Writes a file whole or not at all; a stop in between leaves the earlier one, and a NAME.tmp."""
    work = path.with_name(f"{path.name}.tmp")
    with work.open("w", encoding="utf-8") as f:
        f.write(text)
        f.flush()
        os.fsync(f.fileno())
    work.replace(path)


@contextlib.contextmanager
def full_disk(folder: Path) -> Iterator[None]:
    """Says in one line what any library reports in its own way when no room is left."""
    try:
        yield
    except Exception as e:
        if not (full := [text for text in FULL if text in str(e)]):
            raise
        raise OSError(
            f"{folder}: {full[0]}; what was saved before is kept: make room, and the same command goes on from there"
        ) from e


def _record_versions(path: Path, layout: dict) -> None:
    """What the run began with; where it goes on with something else, that is added and never replaces it."""
    devices = f"{jax.device_count()} {jax.devices()[0].device_kind}, {jax.process_count()} process(es)"
    now: dict = {p: version(p) for p in PACKAGES} | {"git_commit": commit(), "devices": devices, **layout}
    now = json.loads(json.dumps(now))  # as it reads when it comes back
    then = json.loads(path.read_text(encoding="utf-8")) if path.exists() else now
    later = then.get("resumed_with", [])
    if {k: v for k, v in (later or [then])[-1].items() if k != "resumed_with"} != now:
        then = {**then, "resumed_with": [*later, now]}
    write(path, json.dumps(then, indent=2) + "\n")


@contextlib.contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Keeps the folder for this run; of several hosts the first holds it. Raises ValueError when another one runs in it."""
    if not sharding.leads():
        yield
        return
    try:
        with FileLock(folder / ".lock", timeout=0):
            yield
    except Timeout:
        raise ValueError(f"another process runs in {folder}; wait for it, or give another folder") from None


def commit() -> str:
    """The commit of the source tree, "-dirty" behind it where files differ; "unknown" outside a git checkout."""
    git = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def slug(name: str) -> str:
    """A file name for an arm's name."""
    return re.sub(r"[^\w.=-]+", "-", name).strip("-.")
