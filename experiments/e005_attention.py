"""Attention probabilities of a model: how diffuse they are, how they fall with distance; and how RoPE alone falls.

For values that are unit vectors attention gives its own probabilities: out_t = Σ_s p_ts e_s. So they are made by the model's
pattern and position hooks themselves, layer by layer (build.Network.stages), and no layer is written a second time.
"""

from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lpe import build, inputs
from lpe.attention.base import Call
from lpe.linear import Dropout, dense
from lpe.model import Companions, Model
from lpe.positions import base, rotary
from lpe.positions.base import Bound
from lpe.tokens import Tokens

BINS = 11  # distances 0, 1, 2–3, 4–7, … 512–1,023
LABELS = ("0", "1", *(f"{2**b}–{2 ** (b + 1) - 1}" for b in range(1, BINS - 1)))


class Attended(NamedTuple):
    """Of each layer and head. entropy: of the rows, mean, in nats. weight: mean probability of a pair of text tokens, by
    distance (NaN where an input has no such pair)."""

    entropy_LN: np.ndarray
    weight_LNR: np.ndarray


def probabilities(model: Model, batch: dict) -> Iterator[Array]:
    """f32[B, N, T, S] of each layer, of a post-norm model whose layers have weights of their own."""
    model = Model(model.params, model.recipe, Companions())
    if model.config.pre_norm or model.config.num_hidden_groups:
        raise ValueError(f"{model.recipe.family}: probabilities are read of post-norm models without shared layers")
    x_BTD, tok = _begin(model, inputs.checked(build.network(model.recipe), batch))
    for i in range(model.config.num_hidden_layers):
        weights_BNTS, x_BTD = _layer(model, x_BTD, tok, jnp.int32(i))
        yield weights_BNTS


@jax.jit
def _begin(model: Model, batch: dict[str, Array]) -> tuple[Array, Tokens]:
    return build.network(model.recipe).stages.begin(model.params, batch)


@jax.jit
def _layer(model: Model, x_BTD: Array, tok: Tokens, i: Array) -> tuple[Array, Array]:
    net, places = build.network(model.recipe), model.params.get("position", {})
    own = jax.tree.map(lambda p: p[i], model.params["layers"]["attention"])
    position = {n: p[i] if net.position.specs[n].axes[0] == "layers" else p for n, p in places.items()}
    bound = Bound(position, net.position._replace(values=base.HOOKS["values"]))  # what else a method adds to the output
    q_BTNH, k_BTNH = dense(own["query"], x_BTD), dense(own["key"], x_BTD)
    (B, T), N = x_BTD.shape[:2], q_BTNH.shape[2]
    unit_BSNS = jnp.broadcast_to(jnp.eye(T, dtype=x_BTD.dtype)[None, :, None], (B, T, N, T))
    scale = model.config.attention_scale
    call = Call(x_BTD, x_BTD, q_BTNH, k_BTNH, unit_BSNS, tok, tok, scale, bound, i, Dropout())
    weights_BTNS = net.pattern.reference(own.get("pattern", {}), call)
    return weights_BTNS.swapaxes(1, 2), net.stages.layer(model.params, x_BTD, tok, i)


def attended(model: Model, batches: list[dict]) -> Attended:
    """Means over batches of one shape, of inputs without padding; [CLS] and [SEP] are left out of `weight`."""
    found = [[_reduce(p) for p in probabilities(model, b)] for b in batches]
    entropy, weight = (np.mean([[np.asarray(layer[k]) for layer in b] for b in found], axis=0) for k in (0, 1))
    return Attended(entropy, weight)


@jax.jit
def _reduce(p_BNTS: Array) -> tuple[Array, Array]:
    entropy_N = -jnp.where(p_BNTS > 0, p_BNTS * jnp.log(jnp.maximum(p_BNTS, 1e-30)), 0.0).sum(-1).mean((0, 2))
    p_NTS = p_BNTS.mean(0)[:, 1:-1, 1:-1]
    distance = np.abs(np.subtract.outer(np.arange(p_NTS.shape[-1]), np.arange(p_NTS.shape[-1])))
    bins = np.frexp(distance)[1]  # 0 → 0, 1 → 1, 2, 3 → 2, 4 … 7 → 3
    sums = [jnp.where(bins == b, p_NTS, 0.0).sum((1, 2)) / max(1, (bins == b).sum()) for b in range(BINS)]
    there = np.asarray([(bins == b).any() for b in range(BINS)])
    return entropy_N, jnp.where(there, jnp.stack(sums, axis=-1), jnp.nan)


def rope_alone(distances: list[int], size: int, theta: float = 10000.0, draws: int = 2000) -> dict[str, list[float]]:
    """Scores of random vectors that rotary positions turn, at each distance, over the mean score of equal ones at distance 0.

    equal: q = k, mean. apart, apart_sd: q and k drawn apart, mean and standard deviation. bound: RoFormer's §3.4.3, the mean of
    |S_i| over its value at 0, S_i the sum of e^(i · distance · θ) over the first i pairs.

    Args:
      size: channels of a head.
    """
    on = rotary.Pairs(size, theta, "half", rotary.inverse_frequencies(theta, size), False)
    q, k = (jax.random.normal(jax.random.key(seed), (draws, 1, 1, size)) for seed in (0, 1))
    out: dict[str, list[float]] = {"equal": [], "apart": [], "apart_sd": [], "bound": []}
    for d in distances:
        turned = rotary.turn(q, jnp.full((1, 1, size // 2), d) * on.inv_freq.astype(np.float32), on)
        equal, apart = (np.asarray((turned * x).sum(-1) / (q * q).sum(-1).mean()) for x in (q, k))
        sums = np.abs(np.cumsum(np.exp(1j * d * on.inv_freq)))
        bound = sums.sum() / np.arange(1, size // 2 + 1).sum()
        for name, value in zip(out, (equal.mean(), apart.mean(), apart.std(), bound), strict=True):
            out[name].append(round(float(value), 4))
    return out


def rope_mean(reach: int, size: int, theta: float = 10000.0) -> np.ndarray:
    """What `equal` is on average, f64[reach + 1]: the mean of cos(distance · θ) over the pairs."""
    return np.cos(np.outer(np.arange(reach + 1), rotary.inverse_frequencies(theta, size))).mean(1)
