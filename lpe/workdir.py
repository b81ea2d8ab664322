"""The folder of a run: what ran (config, versions, commit), so that a result can be made again."""

import contextlib
import hashlib
import json
import re
import subprocess
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from filelock import FileLock, Timeout

PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "transformers", "tokenizers", "grain", "numpy")


def default(config: dict) -> Path:
    """runs/NAME-HASH OF THE CONFIG."""
    return Path("runs") / f"{config['name']}-{hashlib.sha256(_text(config).encode()).hexdigest()[:8]}"


def _text(config: dict, free: tuple[str, ...] = ("mode",)) -> str:
    return json.dumps({k: v for k, v in config.items() if k not in free}, indent=2, sort_keys=True) + "\n"


def open(config: dict, folder: Path | None) -> Path:
    """Makes the folder, or finds it to be one of the same config.

    Raises:
      ValueError: the folder holds something else.
    """
    folder = folder or default(config)
    there = folder / "config.json"
    if there.exists():
        same(config, folder)
    elif folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{folder} is not empty and holds no run; give another --workdir")
    folder.mkdir(parents=True, exist_ok=True)
    there.write_text(_text(config), encoding="utf-8")
    _record_versions(folder / "versions.json")
    return folder


def same(config: dict, folder: Path, free: tuple[str, ...] = ("mode",)) -> None:
    """Raises ValueError unless `folder` holds a run of this config, keys in `free` apart; FileNotFoundError without any run."""
    there = folder / "config.json"
    if not there.is_file():
        raise FileNotFoundError(f"{folder} holds no run (no config.json); train first, or give its --workdir")
    if _text(json.loads(there.read_text(encoding="utf-8")), free) != _text(json.loads(json.dumps(config)), free):
        raise ValueError(f"{folder} holds a run of another config; give another --workdir, or remove that one")


def _record_versions(path: Path) -> None:
    """What the run began with; where it goes on with something else, that is added and never replaces it."""
    now: dict = {p: version(p) for p in PACKAGES} | {"git_commit": commit()}
    then = json.loads(path.read_text(encoding="utf-8")) if path.exists() else now
    later = then.get("resumed_with", [])
    if {k: v for k, v in (later or [then])[-1].items() if k != "resumed_with"} != now:
        then = {**then, "resumed_with": [*later, now]}
    path.write_text(json.dumps(then, indent=2) + "\n", encoding="utf-8")


@contextlib.contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Keeps the folder for this process. Raises ValueError when another one runs in it."""
    try:
        with FileLock(folder / ".lock", timeout=0):
            yield
    except Timeout:
        raise ValueError(f"another process runs in {folder}; wait for it, or give another --workdir") from None


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
