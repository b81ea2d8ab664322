"""rope_dynamic: each sequence by its own length."""

from . import equations
from .common import N

VARIANTS = [{}, {"factor": 4.0}, {"original_max_position_embeddings": 2}]


def attention(f, n):
    def want(q, k, v, p, w):
        base = 10000.0 * (f * max(len(p), n) / n - (f - 1)) ** (8 / 6)
        return equations.rope(q, k, v, p, theta=base)

    return want


VALUES = [
    ({}, attention(1.0, N)),
    ({"factor": 2.0}, attention(2.0, N)),
    ({"original_max_position_embeddings": 5}, attention(1.0, 5)),
    ({"original_max_position_embeddings": 64}, lambda q, k, v, p, w: equations.rope(q, k, v, p)),
]
