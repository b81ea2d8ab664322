"""Reads flax_model.msgpack and brings it to PyTorch's names and layout, which the families' tables are written in.

Flax names are paths; the last part says what a leaf is: kernel [in, out], scale, embedding. PyTorch calls all three weight and
keeps a linear map as [out, in]. This rule is the whole conversion; a family needs no second table.
"""

from pathlib import Path

import numpy as np
from flax.serialization import msgpack_restore
from flax.traverse_util import flatten_dict

LEAVES = {"kernel": "weight", "scale": "weight", "embedding": "weight"}


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
