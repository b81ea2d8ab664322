"""Pieces that every encoder is made of: linear maps, layer norm, dropout, activations, and token mixing by attention."""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from lpe.attention.base import AttentionPattern, Call
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


def dense_specs(d_in: int, d_out: int, axes: tuple[str | None, str | None], stddev: float) -> dict[str, Spec]:
    return {
        "kernel": Spec((d_in, d_out), axes, normal(stddev)),
        "bias": Spec((d_out,), axes[1:], zeros),
    }


def dense(params: dict, x: Array, axes: int = 1) -> Array:
    """The last `axes` axes of x contracted with the kernel's first, plus bias, in the dtype of x.

    One matrix product of two-dimensional operands: XLA's CPU backward pass is twice as fast on it as on one with batch axes.
    """
    kernel, bias = params["kernel"].astype(x.dtype), params["bias"].astype(x.dtype)
    batch, inner, outer = x.shape[: x.ndim - axes], x.shape[x.ndim - axes :], kernel.shape[axes:]
    y = x.reshape(-1, math.prod(inner)) @ kernel.reshape(math.prod(inner), math.prod(outer))
    return y.reshape(*batch, *outer) + bias


def norm_specs(d: int) -> dict[str, Spec]:
    return {"scale": Spec((d,), ("embed",), ones), "bias": Spec((d,), ("embed",), zeros)}


def layer_norm(params: dict, x: Array, eps: float) -> Array:
    """Layer normalisation over the last axis; statistics in float32."""
    x32 = x.astype(jnp.float32)
    mean = x32.mean(axis=-1, keepdims=True)
    centred = x32 - mean
    var = jnp.square(centred).mean(axis=-1, keepdims=True)
    return (centred * jax.lax.rsqrt(var + eps) * params["scale"] + params["bias"]).astype(x.dtype)


def dropout(x: Array, rate: float, key: Array | None) -> Array:
    """Zeroes with probability `rate` and scales the rest; no key means evaluation, x unchanged."""
    if key is None or rate == 0.0:
        return x
    return jnp.where(jax.random.bernoulli(key, 1.0 - rate, x.shape), x / (1.0 - rate), 0).astype(x.dtype)


class Mixer(NamedTuple):
    """Token mixing of a layer; attention is the first.

    apply: (params, position_params, x_BTD, tok, *, layer, key) -> y_BTD, before the residual.
    """

    specs: dict[str, Spec]
    adopt: Callable
    apply: Callable


def attention_mixer(cfg, position: PositionMethod, pattern: AttentionPattern) -> Mixer:
    """Multi-head attention with the given position method and pattern, query/key/value/output projections with biases."""
    d, n, h, std = cfg.hidden_size, cfg.num_attention_heads, cfg.head_dim, cfg.initializer_range
    specs: dict[str, Spec] = {}
    for name in ("query", "key", "value"):
        specs[f"{name}/kernel"] = Spec((d, n, h), ("embed", "heads", "head_dim"), normal(std))
        specs[f"{name}/bias"] = Spec((n, h), ("heads", "head_dim"), zeros)
    specs["output/kernel"] = Spec((n, h, d), ("heads", "head_dim", "embed"), normal(std))
    specs["output/bias"] = Spec((d,), ("embed",), zeros)
    specs |= under("pattern", pattern.specs)
    attend = pattern.attend or pattern.reference

    def apply(params: dict, position_params: dict, x_BTD: Array, tok: Tokens, *, layer: Array, key: Array | None) -> Array:
        bound = Bound(*(partial(hook, position_params) for hook in (position.rotate, position.logits, position.values)))
        drop = partial(dropout, rate=cfg.attention_probs_dropout_prob, key=key)
        q_BTNH, k_BTNH, v_BTNH = (dense(params[name], x_BTD) for name in ("query", "key", "value"))
        call = Call(x_BTD, x_BTD, q_BTNH, k_BTNH, v_BTNH, tok, tok, cfg.attention_scale, bound, layer, drop)
        out_BTNH = attend(params.get("pattern", {}), call)
        return dense(params["output"], out_BTNH, axes=2)

    return Mixer(specs, pattern.adopt, apply)
