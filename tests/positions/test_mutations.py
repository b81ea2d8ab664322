"""The test of the tests: a formula with one planted error must fail the comparison that the real one passes."""

import importlib
import inspect
from types import ModuleType

import pytest

from lpe import registry
from lpe.positions import interpolate

from .common import compare

MUTANTS = [
    ("learned", "table.row, lambda", "lambda p, k: table.row(p, k // 2), lambda"),
    ("copy", "% (n - c)", "% n"),
    ("copy", "c + (k - n)", "(k - n)"),
    ("copy", "(k - n) %", "k %"),
    ("copy", "k < n", "k <= n"),
    ("grouped", "k * n // m", "k // (m // n)"),
    ("grouped", "k * n // m", "(k * n + m - 1) // m"),
    ("grouped", "k * n // m", "k * (n - 1) // (m - 1)"),
    ("random", '"random", table.row', '"random", lambda p, k: table.row(p, k + 1)'),
    ("hierarchical", "alpha / (1.0 - alpha)", "alpha"),
    ("hierarchical", "alpha / (1.0 - alpha)", "(1.0 - alpha) / alpha"),
    ("hierarchical", "p_nD[r])", "p_nD[0])"),
    ("hierarchical", "table.row(p_nD, r + block)", "table.row(p_nD, block)"),
    ("hierarchical", "1 + t //", "t //"),
    ("hierarchical", "c + t %", "t %"),
    ("hierarchical", "t // (n - c)", "t // n"),
    ("hierarchical", " - p_nD[r])", ")"),
    (
        "hierarchical_naive",
        "p_nD, k // n) + (1.0 - alpha) * table.row(p_nD, k % n",
        "p_nD, k % n) + (1.0 - alpha) * table.row(p_nD, k // n",
    ),  # fmt: skip
    ("hierarchical_naive", "(1.0 - alpha)", "1.0"),
    ("preserve_short", "-(-m // n)", "m // n"),
    ("preserve_short", "(k % s)", "(k % n)"),
    ("preserve_short", "k // s + 1, n - 1", "k // s + 1, n - 2"),
    ("preserve_short", "tok.length <= n", "tok.length <= 2 * n"),
    ("interpolate", "c + (k - m) % (m - c)", "k % m"),
    ("interpolate", "k < m, k", "k <= m, k"),
    ("interpolate", "n, m, degree, align", "n, length, degree, align"),
    ("interpolate", '"quadratic": 2', '"quadratic": 3'),
    ("splines", "k * (n - 1), max(m - 1, 1)", "k * (n - 1), m"),
    ("splines", "(k * n, m)", "(k * (n - 1), m)"),
    ("splines", "n - 1), np.where(inside", "n - 2), np.where(inside"),
    ("splines", "-0.5 * np.square(offset / sigma)", "-np.square(offset / sigma)"),
    ("splines", "4.0 * sigma", "1.0 * sigma"),
    ("splines", "np.clip(np.arange(m)[:, None] + offset, 0, m - 1)", "((np.arange(m)[:, None] + offset) % m)"),
    ("splines", "m = n - pinned, m - pinned", "m = n - pinned, m - pinned + 0 * pinned - (pinned > 0)"),
    ("splines", "weight / weight.sum()", "weight"),
]


def mutated(name: str, old: str, new: str) -> ModuleType:
    source = inspect.getsource(importlib.import_module(f"lpe.positions.{name}"))
    assert source.count(old) == 1, f"{name}: {source.count(old)} × {old!r}"
    module = ModuleType(name)
    exec(compile(source.replace(old, new), f"{name} with {new}", "exec"), module.__dict__)
    return module


def passes(name: str, make) -> bool:
    tests = importlib.import_module(f".test_{name}", __package__)
    try:
        for kw, want in tests.VALUES:
            compare(make, kw, want, reserved=(2,))
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize("name, old, new", MUTANTS)
def test_a_planted_error_is_noticed(name, old, new, monkeypatch):
    module = mutated(name, old, new)
    if "make" not in module.__dict__:  # a helper of the interpolation
        monkeypatch.setattr(interpolate, name, module)
        name, module = "interpolate", interpolate
    assert not passes(name, module.make)


def test_every_method_has_a_planted_error():
    assert {n for n, _, _ in MUTANTS} == {*registry.names("positions"), "splines"}
