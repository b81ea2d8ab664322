"""transformer_xl: against the four terms of the paper; transformers' own layer is in tests/parity/test_positions.py."""

from types import SimpleNamespace

import pytest

from lpe.positions import transformer_xl

from . import equations

VARIANTS = [{}]
VALUES = [
    (
        {},
        lambda q, k, v, p, w: equations.transformer_xl(
            q, k, v, p, w["content_bias"], w["position_bias"], w["relative_projection"]
        ),
    )
]


def test_an_odd_size_is_refused():
    with pytest.raises(ValueError, match="hidden_size=7, but sines and cosines come in pairs"):
        transformer_xl.make(SimpleNamespace(hidden_size=7, num_attention_heads=1, head_dim=7, initializer_range=0.02))
