"""A small attention with every kind of row, and the fast path of a pattern beside its reference, with gradients."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from lpe import build, linear, params, registry, tokens
from lpe.attention.base import AttentionPattern, Call
from lpe.models import bert, layers
from lpe.models.bert import BertConfig
from lpe.positions.base import Bound, PositionMethod, hooks
from lpe.tokens import Tokens
from tests.positions.common import of_layer

N, H, D = 4, 4, 16  # heads, head_dim, hidden_size
CFG = BertConfig(
    vocab_size=20, hidden_size=D, num_attention_heads=N, num_hidden_layers=2, intermediate_size=16, initializer_range=0.5,
    max_position_embeddings=160,
)  # fmt: skip
SCALE = CFG.attention_scale
NEUTRAL = PositionMethod({})


def make(spec: dict, cfg: BertConfig = CFG) -> AttentionPattern:
    return registry.make("attention", spec, cfg)


def small_blocks(monkeypatch) -> None:
    """Blocks of 4 to 8 queries, so that short inputs have many. For functions that are compiled afterwards only."""
    for name in registry.names("attention"):
        if hasattr(module := registry.load("attention", name), "BLOCK"):
            monkeypatch.setattr(module, "BLOCK", (4, 8))


def segments(length: int) -> np.ndarray:
    """Rows [6, length]: full, padded right, padded left, with holes, all padding, and three documents with padding between."""
    place = np.arange(length)
    packed = np.select([place < length // 3, place < length // 2, place < length - 2], [1, 2, 0], 3)
    packed[-(length // 3) :] = 3
    return np.stack([place >= 0, place < -(-length // 2), place >= length // 3, place % 5 != 2, place < 0, packed]).astype(int)


def some_global(segment: np.ndarray, capacity: int, seed: int = 0) -> np.ndarray:
    """0/1: as many tokens as a row may have in the first row, and fewer in each of the next."""
    mask = np.zeros(segment.shape, int)
    for i, row in enumerate(segment):
        count = min((row > 0).sum(), max(0, capacity - i)) if i != 5 else min((row > 0).sum(), capacity)
        mask[i, np.random.default_rng(seed + i).permutation(np.flatnonzero(row))[:count]] = 1
    return mask


def toks(segment: np.ndarray, pattern: AttentionPattern | None = None, mask: np.ndarray | None = None, ids=None) -> Tokens:
    """The Tokens of rows that hold these segments; `mask` says which are global (default: some, where the pattern has any)."""
    batch = {
        "input_ids": jnp.asarray(np.zeros(segment.shape, int) if ids is None else ids),
        "segment_ids": jnp.asarray(segment),
    }
    tok = tokens.from_batch(batch)
    if pattern is None or not pattern.capacity:
        return tok
    mask = some_global(segment, pattern.capacity) if mask is None else mask
    try:
        return pattern.mark({**batch, "global_attention_mask": jnp.asarray(mask)}, tok)
    except ValueError:  # a pattern that says itself which tokens are global
        return pattern.mark(batch, tok)


def operands(pattern: AttentionPattern, shape: tuple[int, int], seed: int = 0, position: PositionMethod = NEUTRAL) -> dict:
    """What has a gradient: x [B, T, D], q, k, v [B, T, N, H], and the parameters of the pattern and of the position method."""
    rng = np.random.default_rng(seed)
    own = {n: jnp.asarray(rng.normal(0, 0.4, s.shape), jnp.float32) for n, s in pattern.specs.items()}
    tails = {"x": (D,), "q": (N, H), "k": (N, H), "v": (N, H)}
    found = {n: jnp.asarray(rng.normal(0, 1, (*shape, *tail)), jnp.float32) for n, tail in tails.items()}
    return {**found, "pattern": params.nest(own), "position": params.init(position.specs, jax.random.key(seed))}


def run(attend: Callable, ops: dict, tok: Tokens, layer=0, position: PositionMethod = NEUTRAL, drop=None) -> jax.Array:
    """[B, T, N, H] of pattern.attend or pattern.reference; what a position method embeds reaches all operands."""
    layer = jnp.asarray(layer)
    own = of_layer(position, ops["position"], layer)
    x, q, k, v = (ops[n] for n in "xqkv")
    if "embed" in hooks(position):
        x = position.embed(own, x, tok)
        q, k, v = (y + x.reshape(y.shape) for y in (q, k, v))
    call = Call(x, x, q, k, v, tok, tok, SCALE, Bound(own, position), layer, drop or linear.Dropout())
    return attend(ops["pattern"], call)


def with_gradient(attend: Callable, ops: dict, tok: Tokens, layer=0, position: PositionMethod = NEUTRAL, drop=None):
    """(output, gradients of all operands), to be called under jit."""

    def loss(ops):
        out = run(attend, ops, tok, layer, position, drop)
        return (np.random.default_rng(9).normal(size=out.shape).astype(np.float32) * out).sum(), out

    grads, out = jax.grad(loss, has_aux=True)(ops)
    return {"out": out, **grads}


def compare(pattern: AttentionPattern, ops: dict, tok: Tokens, position: PositionMethod = NEUTRAL, layer_count: int = 2):
    """Holds the fast path to the reference in every layer, whose number is traced; returns the output of each layer."""
    paths = (pattern.attend, pattern.reference)
    both = jax.jit(lambda ops, tok, layer: [with_gradient(f, ops, tok, layer, position) for f in paths])
    outs = []
    for layer in range(layer_count):
        got, want = both(ops, tok, jnp.int32(layer))
        equal(got, want)
        outs.append(np.asarray(got["out"]))
    return outs


def equal(got, want, tolerance: float = 1e-5) -> float:
    """Raises AssertionError where two trees differ by more than 1e-5 (of the largest number, where that is above 1)."""
    worst = 0.0
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(got), jax.tree.leaves(want), strict=True):
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        assert np.isfinite(a).all() and np.isfinite(b).all(), path
        difference = np.abs(a - b).max(initial=0) / max(1.0, np.abs(b).max(initial=0))
        assert difference <= tolerance, f"{jax.tree_util.keystr(path)} differs by {difference:.1e}"
        worst = max(worst, difference)
    print(f"largest difference: {worst:.1e}")
    return worst


def plain(ops: dict, segment: np.ndarray, near: Callable, is_global: np.ndarray | None = None) -> np.ndarray:
    """softmax(scale · q kᵀ) v key by key in float64; near: (query place, key place, head) -> whether it is within reach.

    A global token sees all of its segment, with projections of its own, and all of its segment see it.
    """
    x, q, k, v = (np.asarray(ops[n], np.float64) for n in "xqkv")
    far = np.zeros(segment.shape, bool) if is_global is None else np.asarray(is_global, bool)
    own = {n: np.einsum("btd,dnh->btnh", x, np.asarray(p["kernel"])) + np.asarray(p["bias"]) for n, p in ops["pattern"].items()}
    out = np.zeros(q.shape)
    for b, t, n in np.ndindex(*q.shape[:3]):
        mine = segment[b] == segment[b, t]
        keys = [s for s in np.flatnonzero(mine) if far[b, s] or far[b, t] or near(t, s, n)]
        if not segment[b, t] or not keys:
            continue
        qs, ks, vs = (own[f"{p}_global"] for p in ("query", "key", "value")) if far[b, t] else (q, k, v)
        e = np.exp(SCALE * (ks[b, keys, n] @ qs[b, t, n]))
        out[b, t, n] = (e / e.sum()) @ vs[b, keys, n]
    return out


def hidden(net: build.Network, weights: dict, batch: dict, fast: bool = True) -> tuple[jax.Array, Tokens]:
    """The last hidden state of a network, by the fast path or by the reference of its attention."""
    pattern = net.pattern if fast else net.pattern._replace(attend=None)
    mixer = layers.attention_mixer(net.recipe.config, net.position, pattern)
    tok = pattern.mark(batch, tokens.from_batch(batch))
    return bert.encode(weights, net.recipe.config, net.position, mixer, batch, tok), tok
