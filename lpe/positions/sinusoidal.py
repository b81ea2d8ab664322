"""Sinusoidal absolute positions (Vaswani et al. 2017, arXiv 1706.03762, §3.5): nothing is learned, there is no last one."""

import jax.numpy as jnp
import numpy as np
from jax import Array

from lpe.positions import checks
from lpe.positions.base import PositionMethod
from lpe.tokens import Tokens


def make(cfg, *, base: float = 10000.0, max_length: int | None = None) -> PositionMethod:
    """pe[pos, 2k] = sin(pos · base^(−2k/D)), pe[pos, 2k + 1] = cos of the same; added to the input embeddings.

    Args:
      cfg: the model's config; its embeddings' width D, mostly hidden_size, is even.
      base: wavelengths grow from 2π to 2π · base.
      max_length: positions offered. Default: no limit.

    Raises:
      ValueError: a value outside its range.
    """
    return from_base(cfg, "sinusoidal", checks.number("sinusoidal", "base", base, 1, above=True), max_length)


def from_base(cfg, method: str, base: float, max_length: int | None) -> PositionMethod:
    """The PositionMethod for a base; `method` is its name in messages."""
    size = cfg.embedding_width
    if size % 2:
        raise ValueError(
            f"positions.{method}: embeddings have a width of {size}, but sines and cosines come in pairs: it must be even"
        )
    if max_length is not None:
        checks.whole(method, "max_length", max_length, 1, checks.REACH)
    inv_freq = np.asarray(base ** -(np.arange(0, size, 2) / size), np.float32)

    def embed(params: dict, x_BTD: Array, tok: Tokens) -> Array:
        angle = tok.position[..., None].astype(jnp.float32) * inv_freq
        q_BTD = jnp.stack([jnp.sin(angle), jnp.cos(angle)], axis=-1).reshape(*tok.position.shape, size)
        inside = (tok.position >= 0) & (True if max_length is None else tok.position < max_length)
        return x_BTD + jnp.where(inside[..., None], q_BTD, jnp.nan).astype(x_BTD.dtype)

    return PositionMethod({}, embed=embed, max_length=max_length)
