"""transformer_xl: against the four terms of the paper; transformers' own layer is in tests/parity/test_positions.py."""

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
