"""A forward pass layer by layer, so that a pass of minutes shows how far it is.

Every layer is one call of one program, in place of a scan within a program: no callback leaves a program, and each call takes
over the states of the one before. The input is read in one pass all the same, each layer sees the whole of it.
"""

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from lpe import build, inputs
from lpe.model import Companions, Model
from lpe.tokens import Tokens


def encode(model: Model, batch: Mapping[str, Any], done: Callable[[int, int], None] | None = None) -> Array:
    """As Model.encode, f32[B, T, D]; sums may be taken in another order.

    Args:
      done: called as done(layer, layers) when a layer has ended, from 1.

    Raises:
      ValueError: as Model.encode.
    """
    bare = dataclasses.replace(model, companions=Companions())
    x_BTD, tok = _begin(bare, inputs.checked(build.network(model.recipe), batch))
    layers = model.config.num_hidden_layers
    for i in range(layers):
        x_BTD = jax.block_until_ready(_layer(x_BTD, bare, tok, jnp.int32(i)))
        if done is not None:
            done(i + 1, layers)
    return _end(bare, x_BTD)


@jax.jit
def _begin(model: Model, batch: dict[str, Array]) -> tuple[Array, Tokens]:
    return build.network(model.recipe).stages.begin(model.params, batch)


@partial(jax.jit, donate_argnums=0)
def _layer(x_BTD: Array, model: Model, tok: Tokens, i: Array) -> Array:
    return build.network(model.recipe).stages.layer(model.params, x_BTD, tok, i)


@jax.jit
def _end(model: Model, x_BTD: Array) -> Array:
    return build.network(model.recipe).stages.end(model.params, x_BTD).astype(jnp.float32)
