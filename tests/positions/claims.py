"""What each claim of a position method means, as a check that raises AssertionError where it does not hold."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lpe import build, model
from lpe.models import bert, layers
from lpe.positions import learned
from lpe.positions.base import hooks

from .common import N, adopted, at, config, heads_of, of_layer, pattern, placed, table


@functools.cache
def base() -> model.Model:
    return model.initialise(config(2), ())


def encode(make, kw: dict, position: np.ndarray, length: int | None = None) -> np.ndarray:
    """The last hidden state of one sequence with the given positions, as part of one of `length` tokens."""
    return np.asarray(_compiled(make, build.freeze(kw))(jnp.asarray(position), length or len(position)))


@functools.cache
def _compiled(make, kw: tuple):
    cfg, weights = config(2), base().params
    method = make(cfg, **dict(kw))
    weights = {**weights, "position": method.adopt(weights["position"], jax.random.key(0))}
    mixer = layers.attention_mixer(cfg, method, pattern(method))

    @jax.jit
    def run(position, length):
        batch = {"input_ids": jnp.arange(len(position))[None] % 20}
        return bert.encode(weights, cfg, method, mixer, batch, placed(position, length))

    return run


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
    """Equal positions in a short sequence are not what they are in a long one."""
    k = np.arange(5)
    assert np.abs(encode(make, kw, k) - encode(make, kw, k, length=4 * N)).max() > 1e-4


def relative(make, kw: dict) -> None:
    """All positions moved alike change nothing."""
    for k in (np.arange(5), np.array([3, 0, 4, 12, 6])):
        np.testing.assert_allclose(encode(make, kw, k, 5), encode(make, kw, k + 3, 5), rtol=0, atol=1e-5)


def direction_blind(make, kw: dict) -> None:
    """Positions counted from the other end change nothing."""
    k = np.arange(5)
    np.testing.assert_allclose(encode(make, kw, k), encode(make, kw, k[::-1]), rtol=0, atol=1e-5)


def causal_only(make, kw: dict) -> None:
    """The build refuses it where queries see later keys."""
    position = ({"name": make.__module__.split(".")[-1], **kw},)
    with pytest.raises(ValueError, match="is for causal attention only"):
        base().extend(position=position)
    base().extend(position=position, attention={"name": "full", "causal": True})


def query_scale(make, kw: dict) -> None:
    """Queries are multiplied by positive numbers, one each; keys and values stay; nothing else happens."""
    method = make(config(), **kw)
    assert hooks(method) == {"rotate"} and not method.specs
    q, k, v = heads_of(0, 30)
    got_q, got_k, got_v = method.rotate({}, q, k, v, *[placed(np.arange(30))] * 2)
    factor = np.asarray(got_q / q)
    assert (factor > 0).all() and factor.std(axis=(2, 3)).max() < 1e-5 and factor.max() > 1.1
    assert (got_k == k).all() and (got_v == v).all()


def reads_query(make, kw: dict) -> None:
    """The logits that it adds are others for another query."""
    method, params = adopted(make, table(), **kw)
    layer = of_layer(method, params)
    tok, q = placed(np.arange(9)), jnp.asarray(heads_of(0, 9)[0])
    one, two = (method.logits(layer, x, tok, tok, slice(0, 2)) for x in (q, 2 * q))
    assert one is not None and np.abs(one - two).max() > 1e-3


CLAIMS = {
    f.__name__: f
    for f in (identity_on_trained, length_dependent, relative, direction_blind, causal_only, query_scale, reads_query)
}
