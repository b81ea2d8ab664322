"""Reads and writes flax_model.msgpack; outside of it tensors have PyTorch's names and layout, as in the families' tables.

Flax names are paths; the last part says what a leaf is: kernel [in, out], scale, embedding. PyTorch calls all three weight and
keeps a linear map as [out, in]. This rule is the whole conversion; a family needs no second table.
"""

import re
from pathlib import Path

import numpy as np
from flax.serialization import msgpack_restore, msgpack_serialize
from flax.traverse_util import flatten_dict, unflatten_dict

LEAVES = {"kernel": "weight", "scale": "weight", "embedding": "weight"}
TABLES = re.compile(r"(^|[._])(embeddings?|shared|embed_\w+|relative_attention_bias)$")  # modules whose weight is looked up


def read(path: Path) -> dict[str, np.ndarray]:
    """The tensors of one file by PyTorch's names, in their own dtypes.

    Raises:
      Exception: of any kind, from a file that is damaged or not of this format.
    """
    tree = msgpack_restore(path.read_bytes())
    if not isinstance(tree, dict):
        raise ValueError(f"it holds {type(tree).__name__}, expected nested parameters")
    tensors = {}
    for key, x in flatten_dict(tree, sep="/").items():
        if not isinstance(x, np.ndarray):
            raise ValueError(f"{key} is {type(x).__name__}, expected an array")
        name, x = to_torch(key, x)
        if name in tensors:
            raise ValueError(f"two arrays come to {name}, the second is {key}")
        tensors[name] = x
    return tensors


def to_torch(key: str, x: np.ndarray) -> tuple[str, np.ndarray]:
    """PyTorch's name and layout of the array at a path "a/b/kernel".

    Raises:
      ValueError: a kernel that is no matrix; BERT has none, and its layout would be a guess.
    """
    *parents, leaf = key.split("/")
    if leaf == "kernel" and x.ndim != 2:
        raise ValueError(f"{key} has shape {x.shape}, expected a matrix")
    return ".".join((*parents, LEAVES.get(leaf, leaf))), x.T if leaf == "kernel" else x


def write(path: Path, tensors: dict[str, np.ndarray]) -> None:
    """Writes tensors of PyTorch's names and layout; the reverse of `read`."""
    flat = {path_of(name, x): x.T if _is_kernel(name, x) else x for name, x in tensors.items()}
    path.write_bytes(msgpack_serialize(unflatten_dict({k: np.ascontiguousarray(x) for k, x in flat.items()}, sep="/")))


def path_of(name: str, x: np.ndarray) -> str:
    """The path "a/b/kernel" of a tensor of PyTorch's name."""
    *parents, leaf = name.split(".")
    if leaf == "weight":
        leaf = "kernel" if _is_kernel(name, x) else "embedding" if x.ndim == 2 else "scale"
    return "/".join((*parents, leaf))


def _is_kernel(name: str, x: np.ndarray) -> bool:
    module, _, leaf = name.rpartition(".")
    return leaf == "weight" and x.ndim == 2 and not TABLES.search(module)
