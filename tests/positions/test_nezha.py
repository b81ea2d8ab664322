"""nezha: whole models of transformers are in tests/parity/test_positions.py; here the attention."""

from types import SimpleNamespace

import pytest

from lpe.positions import nezha

from . import equations

VARIANTS = [{}, {"max_relative_position": 3}]
VALUES = [
    ({"max_relative_position": clip}, lambda q, k, v, p, w, clip=clip: equations.nezha(q, k, v, p, clip)) for clip in (64, 3, 1)
]


def test_an_odd_size_is_refused():
    with pytest.raises(ValueError, match="head_dim=7, but sines and cosines come in pairs"):
        nezha.make(SimpleNamespace(head_dim=7))
