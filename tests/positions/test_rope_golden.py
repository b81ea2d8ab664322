"""Frequencies and attention factors of every rotary method are those of transformers (tests/golden/make_rope.py)."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from lpe import registry
from lpe.positions.base import PositionMethod

from .common import placed

GOLDEN = np.load(Path(__file__).parents[1] / "golden" / "rope.npz")
CASES = list(enumerate(json.loads(str(GOLDEN["cases"]))))


def turned(method: PositionMethod, head_dim: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """(inv_freq, attention_factor) of each pair that turns, from where unit vectors go at position 1."""
    x = np.zeros((1, 1, 1, head_dim), np.float32)
    half = lambda y: np.stack([y[..., : head_dim // 2], y[..., head_dim // 2 :]])  # noqa: E731
    x[..., : head_dim // 2] = 1.0
    tok = placed(np.array([1]), length)
    cos, sin = half(np.asarray(method.rotate({}, x, x, x, tok, tok)[0], np.float64)[0, 0, 0])
    return np.arctan2(sin, cos), np.hypot(sin, cos)


@pytest.mark.parametrize(("number", "case"), CASES, ids=[f"{i}-{c['name']}" for i, c in CASES])
def test_frequencies(number, case):
    kw, d = dict(case["kw"]), case["head_dim"]
    share = kw.pop("partial_rotary_factor", 1.0)
    # The channels that turn come first; a head of those alone has the same frequencies, and its pairs are easy to see.
    cfg = SimpleNamespace(head_dim=int(d * share), max_position_embeddings=case["n"] + 2, reserved_rows=2)
    make = registry.load("positions", case["name"]).make
    if (kw.get("mscale") is None) != (kw.get("mscale_all_dim") is None):
        with pytest.raises(ValueError, match="give both or none"):  # transformers leaves a single one out in silence
            make(cfg, **kw)
        kw = {k: x for k, x in kw.items() if not k.startswith("mscale")}
    inv_freq, factor = turned(make(cfg, **kw), cfg.head_dim, case["length"])
    np.testing.assert_allclose(inv_freq, GOLDEN[f"inv_freq_{number}"], rtol=1e-5)
    np.testing.assert_allclose(factor, GOLDEN[f"attention_factor_{number}"], rtol=1e-5)
    print(f"{case['name']} {case['kw']}: {np.abs(inv_freq / GOLDEN[f'inv_freq_{number}'] - 1).max():.1e}")


def test_every_rotary_method_is_there():
    assert {c["name"] for _, c in CASES} == {n for n in registry.names("positions") if n.startswith("rope")}


def test_the_lists_of_longrope_change_above_the_trained_length():
    lengths = {c["length"] - c["n"] for _, c in CASES if c["name"] == "rope_longrope"}
    assert {-1, 0, 1} <= lengths
