"""pytorch_model.bin of both generations gives torch's own tensors, and nothing in a pickle runs."""

import argparse
import io
import os
import pickle
import struct
import zipfile
from collections import OrderedDict

import numpy as np
import pytest
import torch

from lpe.checkpoint import files, torch_pickle

DTYPES = "float32 float64 float16 bfloat16 int64 int32 int16 int8 uint8 bool".split()
GENERATIONS = pytest.mark.parametrize("new", [True, False], ids=["zip", "stream"])


def save(path, value, new):
    torch.save(value, path, _use_new_zipfile_serialization=new)
    return path


@GENERATIONS
@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(new, dtype, tmp_path):
    x = (torch.randn(3, 4) * 5).to(getattr(torch, dtype))
    got = torch_pickle.read(save(tmp_path / "x.bin", {"x": x}, new))["x"]
    assert got.dtype.name == dtype and not got.flags.writeable
    np.testing.assert_array_equal(got.astype(np.float64), x.double().numpy())


@GENERATIONS
def test_layouts(new, tmp_path):
    """Views, transposes, shared storage, parameters, scalars and empty tensors come out as torch sees them."""
    x = torch.arange(24.0).reshape(4, 6)
    value = OrderedDict(
        a=x, b=x.T, c=x[1:3, ::2], d=torch.nn.Parameter(x[0]), e=torch.tensor(3.0), f=torch.zeros(0, 5), g=x[3, 5]
    )
    value._metadata = OrderedDict({"": {"version": 1}})  # every state_dict has it
    got = torch_pickle.read(save(tmp_path / "x.bin", value, new))
    assert list(got) == list(value)
    for k, want in value.items():
        np.testing.assert_array_equal(got[k], want.detach().numpy())


class Runs:
    """Pickles to a call of `function`."""

    def __init__(self, function, *args):
        self.call = (function, args)

    def __reduce__(self):
        return self.call


STRANGERS = [
    (Runs(os.system, "touch ran"), "posix.system"),
    (Runs(os.mkdir, "ran"), "posix.mkdir"),
    (Runs(eval, "open('ran', 'w')"), "__builtin__.eval"),
    (Runs(getattr, "text", "upper"), "__builtin__.getattr"),
    (Runs(exec, "open('ran', 'w')"), "__builtin__.exec"),
    (argparse.Namespace(lr=1), "argparse.Namespace"),
    (np.zeros(3), "numpy.*_reconstruct"),
    (torch.nn.Linear(2, 2), "torch.nn.modules.linear.Linear"),
    (torch.float32, "torch.float32"),
    (set(), "__builtin__.set"),
    (torch.Size([3]), "torch.Size"),
]


@GENERATIONS
@pytest.mark.parametrize("stranger, name", STRANGERS, ids=[n for _, n in STRANGERS])
def test_refuses_by_name(new, stranger, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "pytorch_model.bin", {"w": torch.zeros(2), "x": stranger}, new)
    with pytest.raises(torch_pickle.Refused, match=f"pytorch_model.bin asks for {name}, which is neither a tensor"):
        files.read_tensors(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["pytorch_model.bin"]


@pytest.mark.parametrize(
    "ops",
    [
        b"ctorch._utils\n_rebuild_tensor_v2\n}(X\x01\x00\x00\x00aK\x01ub.",  # BUILD: sets an attribute of the stand-in
        b"ctorch._utils\n_rebuild_tensor_v2\nN}(X\x08\x00\x00\x00__call__K\x01u\x86b.",  # BUILD with slots
        b"ccollections\nOrderedDict\n}(X\x05\x00\x00\x00itemsK\x01ub.",  # … of the class itself
        b"ctorch\nFloatStorage\n)R.",  # calls a dtype
        b"\x82\x01.",  # extension registry
    ],
)
def test_stand_ins_cannot_be_changed(ops, tmp_path):
    with pytest.raises((pickle.UnpicklingError, AttributeError, TypeError, ValueError)):
        torch_pickle._DataUnpickler(io.BytesIO(b"\x80\x02" + ops), tmp_path).load()
    storage = torch_pickle.Storage("0", "float32", 0)
    rebuilt = torch_pickle.KNOWN["torch._utils", "_rebuild_tensor_v2"](storage, 0, (2,), (1,), False, OrderedDict())
    assert rebuilt == torch_pickle.Stored(storage, 0, (2,), (1,)) and list(OrderedDict(a=1).items()) == [("a", 1)]


def zip_with(path, pickled):
    with zipfile.ZipFile(path, "w") as z:
        z.writestr("archive/data.pkl", pickled)
        z.writestr("archive/data/0", struct.pack("<4f", 1, 2, 3, 4))
    return path


@pytest.mark.parametrize(
    "offset, size, stride, fits",
    [
        (0, (2, 2), (2, 1), True),
        (1, (3,), (1,), True),
        (1, (4,), (1,), False),
        (0, (2, 2), (3, 1), False),
        (0, (5,), (0,), False),
        (0, (2,), (-1,), False),
        (-1, (2,), (1,), False),
        (0, (2, 2), (1,), False),
        (0, (True,), (1,), False),
        (10**30, (1,), (1,), False),
    ],
)
def test_never_reads_outside_a_storage(offset, size, stride, fits, tmp_path):
    class Pickler(pickle.Pickler):
        def persistent_id(self, obj):
            return ("storage", torch.FloatStorage, "0", "cpu", 4) if obj == "THE STORAGE" else None

    rebuild, out = (
        Runs(torch._utils._rebuild_tensor_v2, "THE STORAGE", offset, size, stride, False, OrderedDict()),
        io.BytesIO(),
    )
    Pickler(out, 2).dump({"x": rebuild})
    path = zip_with(tmp_path / "x.bin", out.getvalue())
    if fits:
        assert torch_pickle.read(path)["x"].shape == size
    else:
        with pytest.raises(ValueError):
            torch_pickle.read(path)


@pytest.mark.parametrize("value", [[torch.zeros(2)], {"model": {"w": torch.zeros(2)}}, {"w": torch.zeros(2), "epoch": 3}])
@GENERATIONS
def test_names_with_tensors_only(new, value, tmp_path):
    save(tmp_path / "pytorch_model.bin", value, new)
    with pytest.raises(ValueError, match="pytorch_model.bin .*names with their tensors"):
        files.read_tensors(tmp_path)


@GENERATIONS
def test_a_state_dict_is_read_through(new, tmp_path):
    save(tmp_path / "pytorch_model.bin", {"state_dict": {"w": torch.ones(2)}, "epoch": 3, "other": {"w": torch.zeros(2)}}, new)
    assert {k: x.tolist() for k, x in files.read_tensors(tmp_path).items()} == {"w": [1, 1]}
    save(tmp_path / "pytorch_model.bin", {"state_dict": {"w": 3}}, new)
    with pytest.raises(ValueError, match="pytorch_model.bin .*names with their tensors"):
        files.read_tensors(tmp_path)


def test_other_storages_are_refused(tmp_path):
    save(tmp_path / "pytorch_model.bin", {"x": torch.zeros(2, dtype=torch.complex64)}, True)
    with pytest.raises(torch_pickle.Refused, match="torch.ComplexFloatStorage"):
        files.read_tensors(tmp_path)
