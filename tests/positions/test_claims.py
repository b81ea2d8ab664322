"""The checks of claims hold for methods made to have them, and fail for methods made to lack them."""

import jax.numpy as jnp
import pytest

from lpe.positions import grouped, hierarchical_naive, learned
from lpe.positions.base import PositionMethod

from . import claims


def toy(bias):
    """A method that adds bias(key position − query position) to the logits."""

    def logits(params, q_BTNH, q_tok, k_tok, heads):
        return bias(k_tok.position[:, None, None, :] - q_tok.position[:, None, :, None]).astype(jnp.float32)

    return lambda cfg: PositionMethod({}, logits=logits)


def test_they_hold_where_they_should():
    claims.relative(toy(jnp.abs), {})
    claims.relative(toy(lambda d: d), {})
    claims.direction_blind(toy(jnp.abs), {})


@pytest.mark.parametrize(
    "check, make",
    [
        (claims.relative, learned.make),
        (claims.direction_blind, learned.make),
        (claims.direction_blind, toy(lambda d: jnp.maximum(d, 0))),
        (claims.identity_on_trained, grouped.make),
        (claims.identity_on_trained, hierarchical_naive.make),
        (claims.length_dependent, learned.make),
    ],
)
def test_they_fail_where_they_should(check, make):
    with pytest.raises(AssertionError):
        check(make, {})
