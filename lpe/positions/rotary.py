"""What rotary methods share: pairs of channels turned by position × inv_freq (RoFormer, arXiv 2104.09864, §3.2).

A pair is channels (k, k + d/2) with layout="half" (LLaMA, NeoX, ModernBERT), (2k, 2k + 1) with "interleaved" (RoFormer). It
turns by position · b^(−2k/d), b = rope_theta. Of a head's channels the first `partial_rotary_factor` turn, the rest pass.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from lpe.positions import checks, table
from lpe.positions.base import PositionMethod
from lpe.tokens import Tokens

LAYOUTS = ("half", "interleaved")
# Options that say how the weights were trained, so that another method of this kind must have them too.
OF_WEIGHTS = ("rope_theta", "layout", "partial_rotary_factor", "rotary_value", "original_max_position_embeddings")


class Pairs(NamedTuple):
    """What is turned. d: channels that turn; theta: base b; inv_freq: b^(−2k/d), f64[d/2]; values: whether values turn too.

    Values turn by their place alone, so that a shift of all positions shows.
    """

    d: int
    theta: float
    layout: str
    inv_freq: np.ndarray
    values: bool


def pairs(
    cfg,
    method: str,
    rope_theta: float,
    layout: str,
    partial_rotary_factor: float,
    rotary_value: bool = False,
    *,
    least: int = 2,
) -> Pairs:
    """The pairs of channels of a head. Raises ValueError for options out of range, or fewer than `least` channels."""
    theta = checks.number(method, "rope_theta", rope_theta, 1, above=True)
    checks.one_of(method, "layout", layout, LAYOUTS)
    checks.one_of(method, "rotary_value", rotary_value, (False, True))
    share = checks.number(method, "partial_rotary_factor", partial_rotary_factor, 0, 1, above=True)
    d = int(cfg.head_dim * share)
    if d % 2 or d < least:
        raise ValueError(
            f"positions.{method}: with partial_rotary_factor={partial_rotary_factor!r}, {d} of the {cfg.head_dim} channels of "
            f"a head would turn, and an even number from {least} is needed"
        )
    return Pairs(d, theta, layout, inverse_frequencies(theta, d), rotary_value)


def inverse_frequencies(theta: float, d: int) -> np.ndarray:
    """b^(−2k/d) for k = 0 … d/2 − 1, f64[d/2]."""
    return theta ** -(np.arange(0, d, 2) / d)


class Reach(NamedTuple):
    """How far a method stretches. factor: s; max_length: positions offered; original: L, positions in training."""

    factor: float
    max_length: int
    original: int


def reach(cfg, method: str, factor: float | None, max_length: int | None, original: int | None, least: int = 1) -> Reach:
    """Factor and lengths, each from the others where it is not given.

    Args:
      factor: s. Default: max_length / original, at least 1; 4 where max_length is not given either.
      max_length: Default: ⌊s · original⌋.
      original: original_max_position_embeddings. Default: the positions of the model's trained table.
      least: of original.

    Raises:
      ValueError: a value outside its range.
    """
    n = original_length(cfg, method, original, least)
    if max_length is not None:
        max_length = checks.whole(method, "max_length", max_length, 1, checks.REACH)
    if factor is None:
        factor = float(checks.FACTOR) if max_length is None else max(1.0, max_length / n)
    s = checks.number(method, "factor", factor, 1)
    return Reach(s, min(math.floor(round(s * n, 6)), checks.REACH) if max_length is None else max_length, n)


def original_length(cfg, method: str, original: int | None, least: int = 1) -> int:
    """original_max_position_embeddings, or the positions of the model's trained table."""
    n = table.count(cfg, method) if original is None else original
    return checks.whole(method, "original_max_position_embeddings", n, least, checks.REACH)


def from_frequencies(
    on: Pairs,
    inv_freq: Callable[[Array], Array] | np.ndarray,
    *,
    attention_factor: float = 1.0,
    max_length: int | None = None,
    claims: frozenset[str] = frozenset(),
) -> PositionMethod:
    """A PositionMethod that turns queries and keys.

    Args:
      on: the pairs.
      inv_freq: f64[d/2]; or (length i32[B, T]) -> f32[B, T, d/2], by the tokens' own sequence length.
      attention_factor: multiplies cos and sin, hence both queries and keys.
      max_length: positions offered, None = no limit.
      claims: beside "relative".
    """
    by_length = inv_freq if callable(inv_freq) else lambda length: jnp.asarray(inv_freq, jnp.float32)

    def turned(x_BTNH: Array, tok: Tokens) -> Array:
        return turn(x_BTNH, tok.position[..., None].astype(jnp.float32) * by_length(tok.length), on, attention_factor)

    def rotate(params: dict, q_BTNH: Array, k_BSNH: Array, v_BSNH: Array, q_tok: Tokens, k_tok: Tokens):
        value = turned(v_BSNH, k_tok) if on.values else v_BSNH
        return turned(q_BTNH, q_tok), turned(k_BSNH, k_tok), value

    return PositionMethod({}, rotate=rotate, max_length=max_length, claims=claims if on.values else claims | {"relative"})


def turn(x_BTNH: Array, angle_BTK: Array, on: Pairs, scale: float | Array = 1.0) -> Array:
    """Each pair k of the first d channels turned by its angle and times `scale`; in float32, returned in the dtype of x.

    Args:
      angle_BTK: f32[B, T, d/2], K = d/2.
      scale: a number, or f32[B, T, 1, d/2].
    """
    x = x_BTNH[..., : on.d].astype(jnp.float32)
    split = x.reshape(*x.shape[:-1], *((2, on.d // 2) if on.layout == "half" else (on.d // 2, 2)))
    axis = -2 if on.layout == "half" else -1
    a, b = jnp.take(split, 0, axis), jnp.take(split, 1, axis)
    cos, sin = scale * jnp.cos(angle_BTK)[:, :, None], scale * jnp.sin(angle_BTK)[:, :, None]
    y = jnp.stack([a * cos - b * sin, b * cos + a * sin], axis).reshape(x.shape).astype(x_BTNH.dtype)
    return jnp.concatenate([y, x_BTNH[..., on.d :]], axis=-1) if on.d < x_BTNH.shape[-1] else y
