"""rope_linear: frequencies are transformers' (test_rope_golden.py); here the whole attention."""

from . import equations

VARIANTS = [{}, {"factor": 2.0}, {"factor": 2.0, "max_length": 32}, {"layout": "interleaved"}]
VALUES = [
    ({"factor": 2.0}, lambda q, k, v, p, w: equations.rope(q, k, v, p / 2)),
    ({"max_length": 40}, lambda q, k, v, p, w: equations.rope(q, k, v, p / 5)),
    ({}, lambda q, k, v, p, w: equations.rope(q, k, v, p / 4)),
    ({"original_max_position_embeddings": 16, "max_length": 40}, lambda q, k, v, p, w: equations.rope(q, k, v, p / 2.5)),
]  # fmt: skip
