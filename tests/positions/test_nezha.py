"""nezha: whole models of transformers are in tests/parity/test_positions.py; here the attention."""

from . import equations

VARIANTS = [{}, {"max_relative_position": 3}]
VALUES = [
    ({"max_relative_position": clip}, lambda q, k, v, p, w, clip=clip: equations.nezha(q, k, v, p, clip)) for clip in (64, 3, 1)
]
