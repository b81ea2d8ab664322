"""What each claim of a position method means, as a check that raises AssertionError where it does not hold."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from lpe import model, tokens
from lpe.attention import full
from lpe.models import bert, layers
from lpe.positions import learned

from .common import N, adopted, at, config, table


@functools.cache
def base() -> model.Model:
    return model.initialise(config(2), ())


def encode(make, kw: dict, position: np.ndarray) -> np.ndarray:
    """The last hidden state of one sequence with the given positions."""
    cfg, weights = config(2), base().params
    method = make(cfg, **kw)
    weights = {**weights, "position": method.adopt(weights["position"], jax.random.key(0))}
    batch = {"input_ids": jnp.arange(len(position))[None] % 20, "position_ids": jnp.asarray(position)[None]}
    mixer = layers.attention_mixer(cfg, method, full.make(cfg))
    return np.asarray(bert.encode(weights, cfg, method, mixer, batch, tokens.from_batch(batch)))


def identity_on_trained(make, kw: dict) -> None:
    """Inputs that the trained table reaches keep their vectors to the last bit."""
    for reserved in (0, 2):
        P = table(reserved)
        method, got = adopted(make, P, reserved, **kw)
        n = min(kw.get("trained_rows", N), method.max_length or N)
        plain, own = adopted(learned.make, P, reserved)
        for dtype in (jnp.float32, jnp.bfloat16):
            for length in (1, n - 1, n):
                k = np.arange(length)
                assert np.abs(at(method, got, k, dtype=dtype) - at(plain, own, k, dtype=dtype)).max() == 0.0


def length_dependent(make, kw: dict) -> None:
    """A position's vector in a short sequence is another than in a long one."""
    method, got = adopted(make, table(), **kw)
    assert np.abs(at(method, got, [3], length=4) - at(method, got, [3], length=N + 1)).max() > 0


def relative(make, kw: dict) -> None:
    """All positions moved alike change nothing."""
    k = np.arange(5)
    np.testing.assert_allclose(encode(make, kw, k), encode(make, kw, k + 3), rtol=0, atol=1e-5)


def direction_blind(make, kw: dict) -> None:
    """Positions counted from the other end change nothing."""
    k = np.arange(5)
    np.testing.assert_allclose(encode(make, kw, k), encode(make, kw, k[::-1]), rtol=0, atol=1e-5)


CLAIMS = {f.__name__: f for f in (identity_on_trained, length_dependent, relative, direction_blind)}
