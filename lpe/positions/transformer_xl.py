"""Transformer-XL's relative positions (Dai et al. 2019, arXiv 1901.02860, §3.3): a content bias u, a position bias v, and W_r.

logit_ij = ((q_i + u) · k_j + (q_i + v) · W_r r_{i−j}) / √d, r the sinusoid of the distance over hidden_size, sines first, then
cosines. No array of pairs is needed for r: with c = W_rᵀ(q_i + v), angle addition turns c · r_{i−j} into the product of one
vector of query i with [cos jω, sin jω] of key j.
"""

import jax.numpy as jnp
import numpy as np
from jax import Array

from lpe.params import Spec, normal, stacked
from lpe.positions import base
from lpe.tokens import Tokens


def make(cfg) -> base.PositionMethod:
    """u and v, [N, H], and W_r, [D, N, H], in each layer. Segment memory is not part of the method.

    Args:
      cfg: the model's config; hidden_size D is even.

    Raises:
      ValueError: an odd hidden_size.
    """
    d, n, h, std = cfg.hidden_size, cfg.num_attention_heads, cfg.head_dim, cfg.initializer_range
    if d % 2:
        raise ValueError(f"positions.transformer_xl: hidden_size={d}, but sines and cosines come in pairs: it must be even")
    bias = Spec((n, h), ("heads", "head_dim"), normal(std))
    projection = Spec((d, n, h), ("embed", "heads", "head_dim"), normal(std))
    rows = {"content_bias": bias, "position_bias": bias, "relative_projection": projection}
    specs = stacked(cfg.num_hidden_layers, rows)
    inv_freq = np.asarray(10000.0 ** -(np.arange(0, d, 2) / d), np.float32)

    def rotate(params: dict, q_BTNH: Array, k_BSNH: Array, v_BSNH: Array, q_tok: Tokens, k_tok: Tokens):
        return q_BTNH + params["content_bias"].astype(q_BTNH.dtype), k_BSNH, v_BSNH

    def logits(params: dict, q_BTNH: Array, q_tok: Tokens, k_tok: Tokens, heads: slice) -> Array:
        change = ((params["position_bias"] - params["content_bias"]) * cfg.attention_scale)[heads]  # q has u, and the scale
        c_BTND = jnp.einsum("BTNH,DNH->BTND", q_BTNH.astype(jnp.float32) + change, params["relative_projection"][:, heads])
        c_sin, c_cos = jnp.split(c_BTND, 2, axis=-1)
        (sin_i, cos_i), (sin_j, cos_j) = (_waves(tok, inv_freq) for tok in (q_tok, k_tok))
        sin_i, cos_i = sin_i[:, :, None], cos_i[:, :, None]
        query = jnp.concatenate([c_sin * sin_i + c_cos * cos_i, c_cos * sin_i - c_sin * cos_i], axis=-1)
        return jnp.einsum("BTND,BSD->BNTS", query, jnp.concatenate([cos_j, sin_j], axis=-1))

    adopt = base.keep_or_init("transformer_xl", specs)
    return base.PositionMethod(specs, adopt, rotate=rotate, logits=logits, claims=frozenset({"relative", "reads_query"}))


def _waves(tok: Tokens, inv_freq: np.ndarray) -> tuple[Array, Array]:
    angle = tok.position[..., None].astype(jnp.float32) * inv_freq
    return jnp.sin(angle), jnp.cos(angle)
