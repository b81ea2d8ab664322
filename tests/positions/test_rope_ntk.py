"""rope_ntk: frequencies are transformers' (test_rope_golden.py); here the whole attention, and the article's formula."""

import numpy as np

from . import equations

VARIANTS = [{}, {"factor": 2.0, "max_length": 32}, {"rope_theta": 500.0}]


def article(s, d=8, theta=10000.0):
    """`001…txt` §3.1: ω_i · (L/L')^(i/(d/2 − 1))."""
    i = np.arange(d // 2)
    return theta ** (-2 * i / d) * (1 / s) ** (i / (d / 2 - 1))


VALUES = [
    ({}, lambda q, k, v, p, w: equations.rope(q, k, v, p, inv_freq=article(4))),
    ({"max_length": 24}, lambda q, k, v, p, w: equations.rope(q, k, v, p, inv_freq=article(3))),
    ({"factor": 2.5, "rope_theta": 50.0}, lambda q, k, v, p, w: equations.rope(q, k, v, p, inv_freq=article(2.5, 8, 50.0))),
]  # fmt: skip


def test_the_code_printed_in_the_article_is_another_formula():
    """`001…txt` §3.2 changes the exponent and makes the slow waves faster than they were: it must not be followed."""
    d, s, n = 64, 8, 512
    printed = np.exp(-np.arange(0, d, 2) * np.log(10000.0) / (d * (s * n / 512) ** (2 / (d - 2))))
    assert printed[-1] > article(1, d)[-1] > article(s, d)[-1]
