"""Reading and writing the files of a Hugging Face folder: config.json and tensors. No torch, no pickle."""

import json
import os
import shutil
import tempfile
from pathlib import Path

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
DTYPES = {"float32": np.dtype("float32"), "float16": np.dtype("float16"), "bfloat16": np.dtype(ml_dtypes.bfloat16)}


def read_json(path: Path) -> dict:
    """Raises FileNotFoundError or ValueError naming the file."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist; a checkpoint is a folder with config.json and {WEIGHTS}")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as e:
        raise ValueError(f"{path} is not JSON: {e}") from e


def read_tensors(folder: Path) -> dict[str, np.ndarray]:
    """All tensors of a folder, as float32 where they are floating.

    Raises:
      FileNotFoundError: no weights that lpe reads, or a shard that the index names is missing.
      ValueError: a file that is damaged.
    """
    if (folder / INDEX).is_file():
        files = sorted(set(read_json(folder / INDEX)["weight_map"].values()))
    elif (folder / WEIGHTS).is_file():
        files = [WEIGHTS]
    else:
        there = ", ".join(sorted(p.name for p in folder.iterdir())) or "nothing"
        raise FileNotFoundError(f"{folder} has no {WEIGHTS}; it has {there}")
    tensors: dict[str, np.ndarray] = {}
    for name in files:
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder / name} is missing, although {INDEX} names it; fetch the whole checkpoint")
        try:
            with safe_open(folder / name, framework="np") as f:
                for key in f.keys():
                    tensors[key] = _as_float32(f.get_tensor(key))
        except SafetensorError as e:
            raise ValueError(f"{folder / name} is damaged or no safetensors file ({e}); fetch it again") from e
    return tensors


def _as_float32(x: np.ndarray) -> np.ndarray:
    return x if np.issubdtype(x.dtype, np.integer) else x.astype(np.float32)


def write_folder(folder: Path, config: dict, tensors: dict[str, np.ndarray], dtype: str, tokenizer=None) -> None:
    """Writes config.json, model.safetensors and the tokenizer; the folder appears whole or not at all.

    Raises:
      FileExistsError: the folder is there and not empty.
      ValueError: unknown dtype, or a value that does not fit into it.
    """
    if dtype not in DTYPES:
        raise ValueError(f"dtype={dtype!r}, allowed are {', '.join(DTYPES)}")
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(f"{folder} exists and is not empty; choose another folder or remove it first")
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        if tokenizer is not None:
            tokenizer.save_pretrained(work)
        (work / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        cast = {}
        for name, x in tensors.items():
            cast[name] = np.ascontiguousarray(x).astype(DTYPES[dtype])
            if not np.isfinite(cast[name].astype(np.float32)).all():
                raise ValueError(f"{name} has values that are not finite in {dtype}; save as float32 or check the training")
        save_file(cast, work / WEIGHTS, metadata={"format": "pt"})
        if folder.exists():
            folder.rmdir()
        os.chmod(work, 0o755)
        os.rename(work, folder)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
