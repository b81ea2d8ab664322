"""Writes a checkpoint's folder, whole or not at all, and its tensors in one of two formats, in one file or several."""

import contextlib
import glob
import json
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout
from huggingface_hub import split_state_dict_into_shards_factory
from safetensors.numpy import save_file

from lpe.checkpoint import flax_msgpack
from lpe.checkpoint.files import DTYPES, WEIGHTS

SIZE = re.compile(r"\d+(\.\d+)?\s*(KB|MB|GB|TB)", re.I)
LOCK = ".lock"  # it says that a half-written folder belongs to a process that lives
PART, OLD = ".part", ".old"  # ends of the names of half-written folders, and of those that step aside
log = logging.getLogger(__name__)


def _save_safetensors(path: Path, tensors: dict[str, np.ndarray]) -> None:
    save_file(tensors, path, metadata={"format": "pt"})


WRITERS: dict[str, tuple[str, Callable[[Path, dict[str, np.ndarray]], None]]] = {
    "safetensors": (WEIGHTS, _save_safetensors),
    "msgpack": ("flax_model.msgpack", flax_msgpack.write),
}


def check(dtype: str, weights: str, max_shard_size: str) -> None:
    """Raises ValueError for an option that there is not."""
    for name, value, allowed in (("dtype", dtype, DTYPES), ("weights", weights, WRITERS)):
        if value not in allowed:
            raise ValueError(f"{name}={value!r}, allowed are {', '.join(allowed)}")
    if not isinstance(max_shard_size, str) or not SIZE.fullmatch(max_shard_size) or not float(max_shard_size[:-2]):
        raise ValueError(f"max_shard_size={max_shard_size!r}, allowed are sizes such as '5GB' or '500MB'")


@contextlib.contextmanager
def whole(folder: Path, overwrite: bool = False) -> Iterator[Path]:
    """A folder to write into, which becomes `folder` at the end; where that is not reached, nothing of it is left.

    A process that is killed leaves .NAME-….part beside the target, and the next one that writes there removes it.

    Args:
      folder: must not exist yet or be empty, unless `overwrite`: then what is there stays until the new one is whole.

    Raises:
      FileExistsError: it is there, or a file is.
    """
    check_free(folder, overwrite)
    folder.parent.mkdir(parents=True, exist_ok=True)
    _recover(folder)
    check_free(folder, overwrite)
    work = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", suffix=PART, dir=folder.parent))
    try:
        with FileLock(work / LOCK):
            yield work
            check_free(folder, overwrite)  # it took a while
            _allow(work)
            _put(work, folder)
        (folder / LOCK).unlink(missing_ok=True)  # not before: a folder without it is taken for dead
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise


def check_free(folder: Path, overwrite: bool) -> None:
    """Raises FileExistsError, with the way out, where something is in the way; NotADirectoryError below a file."""
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder} exists and is not a folder; choose another name")
    above = next(p for p in folder.parents if p.exists())
    if not above.is_dir():
        raise NotADirectoryError(f"{folder}: {above} is not a folder; choose another name")
    if folder.exists() and any(folder.iterdir()) and not overwrite:
        raise FileExistsError(
            f"{folder} exists and is not empty; choose another folder, remove it first, or overwrite it (--overwrite)"
        )


def _recover(folder: Path) -> None:
    """Clears away what killed processes left beside `folder`, and brings back one that was killed while stepping aside."""
    name, alive = f".{glob.escape(folder.name)}-{'?' * 8}", False  # as mkdtemp makes them
    for left in folder.parent.glob(name + PART):
        try:
            with FileLock(left / LOCK, timeout=0):
                shutil.rmtree(left, ignore_errors=True)
        except (Timeout, OSError):  # it lives, or is gone meanwhile
            alive = True
    for old in [] if alive else folder.parent.glob(name + OLD):
        if folder.exists():
            shutil.rmtree(old, ignore_errors=True)
        else:
            os.rename(old, folder)
            log.warning("%s is back: an earlier process was killed while it replaced it", folder)


def _allow(work: Path) -> None:
    """The rights that the user's umask gives, in place of the owner's alone that temporary files have."""
    os.umask(mask := os.umask(0o077))
    for path in (work, *work.rglob("*")):
        os.chmod(path, (0o777 if path.is_dir() else 0o666) & ~mask)


def _put(work: Path, folder: Path) -> None:
    """Renames `work` to `folder`; one that is there steps aside first, and comes back if that fails."""
    if not folder.exists():
        os.rename(work, folder)
        return
    aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", suffix=OLD, dir=folder.parent))
    os.rename(folder, aside)
    try:
        os.rename(work, folder)
    except BaseException:
        os.rename(aside, folder)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def write_weights(folder: Path, tensors: dict[str, np.ndarray], dtype: str, weights: str, max_shard_size: str) -> None:
    """The tensors in one file, or in several with an index, as transformers writes them.

    Args:
      tensors: by PyTorch's names and in its layout, float32.
      dtype, weights, max_shard_size: as `check` allows.

    Raises:
      ValueError: a value that does not fit into `dtype`, by name.
    """
    name, save = WRITERS[weights]
    stem, suffix = name.rsplit(".", 1)
    cast = {key: _cast(key, x, dtype) for key, x in tensors.items()}
    plan = split_state_dict_into_shards_factory(
        cast,
        get_storage_size=lambda x: x.nbytes,
        filename_pattern=f"{stem}{{suffix}}.{suffix}",
        max_shard_size=max_shard_size.replace(" ", ""),
    )
    for file, keys in plan.filename_to_tensors.items():
        save(folder / file, {key: cast[key] for key in keys})
    if plan.is_sharded:
        names = {key: flax_msgpack.path_of(key, cast[key]) if weights == "msgpack" else key for key in cast}
        where = {names[key]: file for key, file in plan.tensor_to_filename.items()}
        write_json(folder / f"{name}.index.json", {"metadata": plan.metadata, "weight_map": where})


def _cast(name: str, x: np.ndarray, dtype: str) -> np.ndarray:
    with np.errstate(over="ignore"):  # refused below, by name
        cast = np.ascontiguousarray(x).astype(DTYPES[dtype])
    if not np.isfinite(cast.astype(np.float32)).all():
        raise ValueError(f"{name} has values that are not finite in {dtype}; save as float32 or check the training")
    return cast


def write_json(path: Path, value: dict) -> None:
    path.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n", encoding="utf-8")
