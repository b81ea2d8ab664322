"""xPos: rotary positions whose product decays with the distance (Sun et al. 2022, arXiv 2212.10554, §2.2, algorithm 1).

Beside the turn, pair k of a query grows by ζ_k^(p/scale_base) and of a key by ζ_k^(−p/scale_base), ζ_k = (2k/d + γ)/(1 + γ).
The product falls as ζ_k^((p_q − p_k)/scale_base) for keys before the query, and grows without bound for keys after it: the
method is for causal models only, and refused elsewhere.
"""

import jax.numpy as jnp
import numpy as np
from jax import Array

from lpe.positions import checks, rotary
from lpe.positions.base import PositionMethod
from lpe.tokens import Tokens

GAMMA = 0.4


def make(
    cfg,
    *,
    rope_theta: float = 10000.0,
    layout: str = "interleaved",
    partial_rotary_factor: float = 1.0,
    scale_base: float = 512.0,
    max_length: int | None = None,
) -> PositionMethod:
    """Rotary positions with a decay per pair. Positions are counted from the middle of the sequence, which changes no product.

    Args:
      cfg: the model's config.
      rope_theta: base b, above 1.
      layout: "interleaved" (the paper's) or "half".
      partial_rotary_factor: share of a head's channels that turn, the first ones.
      scale_base: B, places over which pair k decays to ζ_k.
      max_length: positions offered, at most ⌊64 · scale_base⌋, the default: farther, float32 overflows.

    Raises:
      ValueError: a value outside its range.
    """
    on = rotary.pairs(cfg, "xpos", rope_theta, layout, partial_rotary_factor)
    base = checks.number("xpos", "scale_base", scale_base, 1)
    longest = min(int(64 * base), checks.REACH)
    length = longest if max_length is None else checks.whole("xpos", "max_length", max_length, 1, longest)
    log_zeta = jnp.asarray(np.log((np.arange(0, on.d, 2) / on.d + GAMMA) / (1 + GAMMA)), jnp.float32)
    inv_freq = jnp.asarray(on.inv_freq, jnp.float32)

    def turned(x_BTNH: Array, tok: Tokens, sign: int) -> Array:
        centred = (tok.position - tok.length // 2).astype(jnp.float32)[..., None]
        scale = jnp.exp(sign * centred / base * log_zeta)
        return rotary.turn(x_BTNH, tok.position[..., None].astype(jnp.float32) * inv_freq, on, scale[:, :, None])

    def rotate(params: dict, q_BTNH: Array, k_BSNH: Array, v_BSNH: Array, q_tok: Tokens, k_tok: Tokens):
        return turned(q_BTNH, q_tok, 1), turned(k_BSNH, k_tok, -1), v_BSNH

    return PositionMethod({}, rotate=rotate, max_length=length, claims=frozenset({"relative", "causal_only"}))
