"""Reads pytorch_model.bin without torch, as data only: the zip archives of torch >= 1.6 and the pickle streams before them.

A pickle is a program. Here it may ask for tensors, OrderedDict and what pickle itself builds (dict, list, tuple, numbers,
text); any other name is refused before it is looked up, so nothing in the file runs. The containers' layout follows
torch/serialization.py: a zip holds data.pkl and data/<key>; the older stream is magic number, protocol, system, the object,
the keys of its storages, then each storage as an int64 count and its values.
"""

import io
import math
import pickle
import zipfile
from collections import OrderedDict
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, NamedTuple

import ml_dtypes
import numpy as np

MAGIC = 0x1950A86A20F9469CFC6C
PROTOCOL = 1001
DTYPES = MappingProxyType(
    {
        "float32": np.dtype("<f4"),
        "float64": np.dtype("<f8"),
        "float16": np.dtype("<f2"),
        "bfloat16": np.dtype(ml_dtypes.bfloat16),
        "int64": np.dtype("<i8"),
        "int32": np.dtype("<i4"),
        "int16": np.dtype("<i2"),
        "int8": np.dtype("i1"),
        "uint8": np.dtype("u1"),
        "bool": np.dtype("?"),
    }
)


class Refused(ValueError):
    """The file asks for something that is neither a tensor nor a plain container."""


class Storage(NamedTuple):
    """A run of values elsewhere in the file; `start` is where a view into it begins, in elements."""

    key: str
    dtype: str
    start: int


class Stored(NamedTuple):
    """A tensor as the pickle describes it; its values are elsewhere in the file. Offsets and strides count elements."""

    storage: Storage
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]


class _Tensor:
    """Stands for torch._utils._rebuild_tensor(_v2). Without a __dict__, so that a pickle cannot set anything on it."""

    __slots__ = ()

    def __call__(self, storage, offset, size, stride, *rest) -> Stored:
        whole = all(type(n) is int and n >= 0 for n in (offset, *size, *stride))
        if not (isinstance(storage, Storage) and whole and len(size) == len(stride)):
            raise ValueError(f"a tensor with storage {storage!r}, offset {offset!r}, size {size!r}, stride {stride!r}")
        return Stored(storage, storage.start + offset, tuple(size), tuple(stride))


class _Parameter:
    """Stands for torch._utils._rebuild_parameter."""

    __slots__ = ()

    def __call__(self, data: Stored, *rest) -> Stored:
        return data


# All that a pickle may name. The storages' types become the names of their dtypes, which cannot be called.
KNOWN = MappingProxyType(
    {
        ("collections", "OrderedDict"): OrderedDict,
        ("torch._utils", "_rebuild_tensor"): _Tensor(),
        ("torch._utils", "_rebuild_tensor_v2"): _Tensor(),
        ("torch._utils", "_rebuild_parameter"): _Parameter(),
        ("torch", "FloatStorage"): "float32",
        ("torch", "DoubleStorage"): "float64",
        ("torch", "HalfStorage"): "float16",
        ("torch", "BFloat16Storage"): "bfloat16",
        ("torch", "LongStorage"): "int64",
        ("torch", "IntStorage"): "int32",
        ("torch", "ShortStorage"): "int16",
        ("torch", "CharStorage"): "int8",
        ("torch", "ByteStorage"): "uint8",
        ("torch", "BoolStorage"): "bool",
    }
)


class _DataUnpickler(pickle.Unpickler):
    def __init__(self, file: BinaryIO, path: Path):
        super().__init__(file, encoding="utf-8")
        self.path = path
        self.dtypes: dict[str, str] = {}  # of each storage

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        if (module_name, global_name) not in KNOWN:
            raise Refused(
                f"{self.path} asks for {module_name}.{global_name}, which is neither a tensor nor a plain container; lpe reads "
                "pickles as data and runs nothing from them. If you trust its source, save its weights as safetensors"
            )
        return KNOWN[module_name, global_name]

    def persistent_load(self, pid: Any, /) -> Storage:
        kind, dtype, key, _, _, *view = pid
        if kind != "storage" or dtype not in DTYPES:
            raise Refused(f"{self.path} refers to {kind!r} of type {dtype!r}, which is no tensor's storage")
        self.dtypes[key] = dtype
        return Storage(key, dtype, view[0][1] if view and view[0] is not None else 0)


def read(path: Path) -> dict[str, np.ndarray]:
    """The tensors of one file by name, read-only, in their own dtypes.

    Where a training kept them in {"state_dict": {…}, …}, these are read, and what else is there is left out.

    Raises:
      Refused: a name in it is not on the list.
      Exception: of any kind, from a file that is damaged or not of this format.
    """
    with path.open("rb") as f:
        zipped = f.read(4) == b"PK\x03\x04"
        f.seek(0)
        top, values = _read_zip(f, path) if zipped else _read_stream(f, path)
    if not isinstance(top, dict):
        raise ValueError(f"it holds {type(top).__name__}, expected names with their tensors")
    inner = dict.get(top, "state_dict")
    top = inner if isinstance(inner, dict) else top
    strangers = [f"{k!r} ({type(x).__name__})" for k, x in dict.items(top) if not isinstance(x, Stored)]
    if strangers:
        raise ValueError(f"expected names with their tensors, but no tensor is {', '.join(strangers[:5])}")
    return {str(k): _view(x, values[x.storage.key]) for k, x in dict.items(top)}


def _read_zip(f: BinaryIO, path: Path) -> tuple[Any, dict[str, np.ndarray]]:
    with zipfile.ZipFile(f) as z:
        (pickled,) = (n for n in z.namelist() if n.endswith("/data.pkl"))
        root = pickled.removesuffix("data.pkl")
        if f"{root}byteorder" in z.namelist() and z.read(f"{root}byteorder") != b"little":
            raise ValueError("its numbers are big-endian, which lpe does not read")
        with z.open(pickled) as p:
            unpickler = _DataUnpickler(io.BytesIO(p.read()), path)
            top = unpickler.load()
        return top, {k: np.frombuffer(z.read(f"{root}data/{k}"), DTYPES[d]) for k, d in unpickler.dtypes.items()}


def _read_stream(f: BinaryIO, path: Path) -> tuple[Any, dict[str, np.ndarray]]:
    magic, protocol, system = (_DataUnpickler(f, path).load() for _ in range(3))
    if magic != MAGIC or protocol != PROTOCOL:
        raise ValueError(f"it starts with {magic!r}, {protocol!r}, expected {MAGIC}, {PROTOCOL}")
    if not system["little_endian"]:
        raise ValueError("its numbers are big-endian, which lpe does not read")
    unpickler = _DataUnpickler(f, path)
    top = unpickler.load()
    values = {}
    for key in _DataUnpickler(f, path).load():
        dtype, count = DTYPES[unpickler.dtypes[key]], int.from_bytes(f.read(8), "little", signed=True)
        data = f.read(count * dtype.itemsize)
        if count < 0 or len(data) != count * dtype.itemsize:
            raise ValueError(f"storage {key} ends after {len(data)} of {count * dtype.itemsize} bytes")
        values[key] = np.frombuffer(data, dtype)
    return top, values


def _view(x: Stored, flat: np.ndarray) -> np.ndarray:
    """The tensor over its storage. Everything is checked: a stride out of bounds would read foreign memory."""
    count = math.prod(x.size)
    end = x.offset + (sum((n - 1) * s for n, s in zip(x.size, x.stride, strict=True)) + 1 if count else 0)
    if end > flat.size or count > flat.size or flat.dtype != DTYPES[x.storage.dtype]:
        raise ValueError(f"a tensor of size {x.size} ends at {end}, its storage at {flat.size}")
    strides = tuple(s * flat.itemsize for s in x.stride)
    return np.lib.stride_tricks.as_strided(flat[x.offset :], x.size, strides, writeable=False)
