"""Reading the files of a Hugging Face folder: config.json and tensors in any of three formats, without torch."""

import json
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
from safetensors import safe_open

from lpe.checkpoint import flax_msgpack, native, torch_pickle

WEIGHTS = "model.safetensors"
CONFIGS = ("config.json", "bert_config.json")  # the second is Google's own
DTYPES = {"float32": np.dtype("float32"), "float16": np.dtype("float16"), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
READ_DTYPES = {"float64", *DTYPES, "int64", "int32", "int16", "int8", "uint8", "bool"}
UNREAD = {"F8_": "float8", "F6_": "float6", "F4": "float4"}  # beginnings of safetensors' names; NumPy has no such dtypes
POINTER = b"version https://git-lfs"


class Quantised(ValueError):
    """The file is whole, and its numbers are of a kind that lpe does not read."""


def read_config(folder: Path) -> dict:
    """config.json, or bert_config.json where it alone is there; lpe's own as native.unpack has it. Raises as these."""
    there = [folder / name for name in CONFIGS if (folder / name).is_file()]
    return native.unpack(read_json(there[0] if there else folder / CONFIGS[0]), str(folder))


def read_json(path: Path) -> dict:
    """Raises FileNotFoundError or ValueError naming the file."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist; a checkpoint is a folder with config.json and {' or '.join(READERS)}")
    refuse_pointer(path)
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as e:
        raise ValueError(f"{path} is not JSON: {e}") from e
    if not isinstance(value, dict):
        raise ValueError(f"{path} holds {type(value).__name__}, expected {{name: value}}")
    return value


def refuse_pointer(path: Path) -> None:
    """Raises ValueError when git has left a note in place of a large file."""
    with path.open("rb") as f:
        if f.read(len(POINTER)) == POINTER:
            raise ValueError(
                f"{path} is a git-lfs pointer, not the file itself; run `git lfs pull` in the checkpoint's repository"
            )


def read_tensors(folder: Path) -> dict[str, np.ndarray]:
    """All tensors of a folder by PyTorch's names, as float32 where they are floating.

    Of several formats the first of READERS is read. Whole files and shards are alike.

    Raises:
      FileNotFoundError: no weights that lpe reads, or a shard that the index names is missing.
      ValueError: a file that is damaged, a git-lfs pointer, a pickle that asks for more than data.
    """
    weights, shards = next(((w, s) for w in READERS if (s := _shards(folder, w))), ("", []))
    if not shards:
        there = ", ".join(sorted(p.name for p in folder.iterdir())) or "nothing"
        raise FileNotFoundError(f"{folder} has no weights that lpe reads ({', '.join(READERS)}); it has {there}")
    tensors: dict[str, np.ndarray] = {}
    for path in shards:
        refuse_pointer(path)
        try:
            part = READERS[weights](path)
        except (torch_pickle.Refused, Quantised, PermissionError):
            raise
        except Exception as e:  # what a damaged file makes its parser say is beyond listing
            raise ValueError(
                f"{path} is damaged or not in the format of {weights} ({type(e).__name__}: {e}); fetch it again"
            ) from e
        for key, x in part.items():
            if key in tensors:
                raise ValueError(f"{path}: {key} is in another shard too; fetch the whole checkpoint again")
            tensors[key] = _as_float32(x, f"{path}: {key}")
    return tensors


def _shards(folder: Path, weights: str) -> list[Path]:
    if (folder / weights).is_file():
        return [folder / weights]
    index = folder / f"{weights}.index.json"
    if not index.is_file():
        return []
    names = read_json(index).get("weight_map")
    if not isinstance(names, dict) or not all(isinstance(n, str) and Path(n).name == n for n in names.values()):
        raise ValueError(f"{index} has no weight_map from names to files beside it; fetch it again")
    shards = [folder / n for n in sorted(set(names.values()))]
    missing = [p.name for p in shards if not p.is_file()]
    if missing:
        raise FileNotFoundError(
            f"{folder} lacks {', '.join(missing)}, although {index.name} names it; fetch the whole checkpoint"
        )
    return shards


def _read_safetensors(path: Path) -> dict[str, np.ndarray]:
    with safe_open(path, framework="np") as f:
        for key in f.keys():
            dtype = f.get_slice(key).get_dtype()
            for start, name in UNREAD.items():
                if dtype.startswith(start):
                    raise Quantised(
                        f"{path}: {key} is {name} ({dtype}), which lpe does not read; save the weights as {', '.join(DTYPES)}"
                    )
        return {key: f.get_tensor(key) for key in f.keys()}


def _as_float32(x: np.ndarray, name: str) -> np.ndarray:
    if x.dtype.name not in READ_DTYPES:
        raise ValueError(
            f"{name} has dtype {x.dtype.name}; lpe reads {', '.join(sorted(READ_DTYPES))}, and no quantised weights"
        )
    return x if x.dtype.kind in "iub" else x.astype(np.float32)


READERS: dict[str, Callable[[Path], dict[str, np.ndarray]]] = {
    WEIGHTS: _read_safetensors,
    "flax_model.msgpack": flax_msgpack.read,
    "pytorch_model.bin": torch_pickle.read,
}
