"""sinusoidal_ntk: the article's formula on Vaswani's table; refused for a learned one, with the reason."""

import numpy as np
import pytest

from lpe import model, positions

from .common import D, config, table

VARIANTS = [{}, {"factor": 2.0, "max_length": 32}, {"base": 100.0}]


def stretched(m, s, base=10000.0):
    """`001…txt` §3.1: ω_i · (L/L')^(i/(D/2 − 1))."""
    i = np.arange(D // 2)
    angle = np.arange(m)[:, None] * base ** (-2 * i / D) * (1 / s) ** (i / (D / 2 - 1))
    return np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(m, D)


VALUES = [
    ({}, lambda P: stretched(32, 4)),
    ({"max_length": 20}, lambda P: stretched(20, 2.5)),
    ({"factor": 3.0, "base": 500.0, "max_length": 12}, lambda P: stretched(12, 3, 500.0)),
    ({"original_max_position_embeddings": 10, "max_length": 20}, lambda P: stretched(20, 2)),
]


@pytest.mark.parametrize("name", ["ntk", "ntk-aware"])
def test_ntk_on_a_learned_table_is_refused_with_the_reason(name):
    with pytest.raises(ValueError, match="A learned table has no base, so NTK has no meaning for it"):
        model.initialise(config(), ()).extend(position={"name": name, "max_length": 20})
    with pytest.raises(ValueError, match="A learned table has no waves whose base or speed could be changed"):
        positions.extend_table(table(), 20, "sinusoidal_ntk")
    with pytest.raises(ValueError, match="'learned' and 'sinusoidal_ntk' both add a vector"):
        model.initialise(config(), ()).extend(position=[{"name": "learned"}, {"name": "sinusoidal_ntk"}])
