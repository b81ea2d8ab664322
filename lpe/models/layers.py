"""Pieces that every encoder is made of: layer norm, activations, and token mixing by attention."""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from lpe.attention.base import AttentionPattern, Call
from lpe.linear import Dropout, dense
from lpe.params import Spec, normal, ones, under, zeros
from lpe.positions.base import Bound, PositionMethod
from lpe.registry import nearest
from lpe.tokens import Tokens


@jax.custom_vjp
def gelu(x: Array) -> Array:
    """x Φ(x), exact (Hendrycks & Gimpel, arXiv 1606.08415); its written-out gradient keeps x alone for the backward pass."""
    return x * _normal_cdf(x)


def _normal_cdf(x: Array) -> Array:
    return 0.5 * (1.0 + jax.lax.erf(x * 0.5**0.5))


def _gelu_backward(x: Array, g: Array) -> tuple[Array]:
    density = (2.0 * math.pi) ** -0.5 * jnp.exp(-0.5 * jnp.square(x))
    return (g * (_normal_cdf(x) + x * density),)


gelu.defvjp(lambda x: (gelu(x), x), _gelu_backward)

# The names and formulas of Hugging Face's `hidden_act`; BERT's "gelu" is the exact one.
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "gelu": gelu,
    "gelu_new": partial(jax.nn.gelu, approximate=True),
    "gelu_pytorch_tanh": partial(jax.nn.gelu, approximate=True),
    "gelu_fast": partial(jax.nn.gelu, approximate=True),
    "gelu_accurate": partial(jax.nn.gelu, approximate=True),
    "gelu_python_tanh": partial(jax.nn.gelu, approximate=True),
    "gelu_python": gelu,
    "gelu_10": lambda x: jnp.clip(gelu(x), -10, 10),
    "hardswish": jax.nn.hard_swish,
    "sqrtsoftplus": lambda x: jnp.sqrt(jax.nn.softplus(x)),
    "laplace": lambda x: 0.5 * (1.0 + jax.lax.erf((x - 0.707107) / (0.282095 * 2**0.5))),
    "leaky_relu": jax.nn.leaky_relu,
    "linear": lambda x: x,
    "mish": jax.nn.mish,
    "relu2": lambda x: jnp.square(jax.nn.relu(x)),
    "relu6": jax.nn.relu6,
    "sigmoid": jax.nn.sigmoid,
    "quick_gelu": lambda x: x * jax.nn.sigmoid(1.702 * x),
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "swish": jax.nn.silu,
    "tanh": jnp.tanh,
}


def activation(name: str) -> Callable[[Array], Array]:
    """Raises ValueError for a name that is none of Hugging Face's."""
    if name not in ACTIVATIONS:
        raise ValueError(f"hidden_act={name!r} is not known{nearest(name, sorted(ACTIVATIONS))}")
    return ACTIVATIONS[name]


def norm_specs(cfg, d: int) -> dict[str, Spec]:
    """Rows of a norm over d channels; none for one without parameters."""
    rows = {"scale": Spec((d,), ("embed",), ones)} if cfg.norm_scale else {}
    return rows | ({"bias": Spec((d,), ("embed",), zeros)} if cfg.norm_bias else {})


def norm(params: dict, cfg, x: Array) -> Array:
    """Layer norm (arXiv 1607.06450) or RMS norm (arXiv 1910.07467) over the last axis, as the config says; in float32.

    Args:
      params: scale and bias, those that there are.
    """
    y = x.astype(jnp.float32)
    if not cfg.rms_norm:
        y = y - y.mean(axis=-1, keepdims=True)
    y = y * jax.lax.rsqrt(jnp.square(y).mean(axis=-1, keepdims=True) + cfg.layer_norm_eps)
    y = y * params["scale"] if cfg.norm_scale else y
    return (y + params["bias"] if cfg.norm_bias else y).astype(x.dtype)


def in_chunks(f: Callable, args: tuple[Array, ...], size: int):
    """f(*args), `size` tokens at a time, each made anew in the backward pass; 0 is all at once.

    Args:
      f: treats every token alone, so that the result is the same.
      args: [B, T, …] each, as are f's results.
    """
    length = args[0].shape[1]
    if not 0 < size < length:
        return f(*args)

    def cut(x: Array) -> Array:
        x = jnp.pad(x, [(0, -length % size if axis == 1 else 0) for axis in range(x.ndim)])
        return x.reshape(len(x), -1, size, *x.shape[2:]).swapaxes(0, 1)

    def joined(y: Array) -> Array:
        return y.swapaxes(0, 1).reshape(y.shape[1], -1, *y.shape[3:])[:, :length]

    step = jax.checkpoint(lambda each: f(*each), prevent_cse=False)
    return jax.tree.map(joined, jax.lax.map(step, tuple(cut(x) for x in args)))


class Mixer(NamedTuple):
    """Token mixing of a layer; attention is the first.

    apply: (params, position_params, x_BTD, tok, *, layer, key) -> y_BTD, before the residual.
    """

    specs: dict[str, Spec]
    adopt: Callable
    apply: Callable


def attention_mixer(cfg, position: PositionMethod, pattern: AttentionPattern) -> Mixer:
    """Multi-head attention with the given position method and pattern, and query, key, value and output projections."""
    d, n, h, std = cfg.hidden_size, cfg.num_attention_heads, cfg.head_dim, cfg.initializer_range
    specs: dict[str, Spec] = {}
    for name in ("query", "key", "value"):
        specs[f"{name}/kernel"] = Spec((d, n, h), ("embed", "heads", "head_dim"), normal(std))
        if cfg.attention_bias:
            specs[f"{name}/bias"] = Spec((n, h), ("heads", "head_dim"), zeros)
    specs["output/kernel"] = Spec((n, h, d), ("heads", "head_dim", "embed"), normal(std))
    if cfg.attention_bias:
        specs["output/bias"] = Spec((d,), ("embed",), zeros)
    specs |= under("pattern", pattern.specs)
    attend = pattern.attend or pattern.reference

    def apply(params: dict, position_params: dict, x_BTD: Array, tok: Tokens, *, layer: Array, key: Array | None) -> Array:
        bound, drop = Bound(position_params, position), Dropout(cfg.attention_probs_dropout_prob, key)
        q_BTNH, k_BTNH, v_BTNH = (dense(params[name], x_BTD) for name in ("query", "key", "value"))
        call = Call(x_BTD, x_BTD, q_BTNH, k_BTNH, v_BTNH, tok, tok, cfg.attention_scale, bound, layer, drop)
        out_BTNH = attend(params.get("pattern", {}), call)
        return dense(params["output"], out_BTNH, axes=2)

    return Mixer(specs, pattern.adopt, apply)
