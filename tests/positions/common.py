"""A small table and a small attention, what a method makes of them, and the comparison with a reference."""

import inspect
from collections.abc import Callable
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np

from lpe import tokens
from lpe.attention import full
from lpe.attention.base import Call
from lpe.linear import Dropout
from lpe.models.bert import BertConfig
from lpe.positions.base import Bound, PositionMethod, hooks

N, D = 8, 16
PLACES = (np.arange(19), np.random.default_rng(0).permutation(40)[:19])  # in order; out of order and with gaps


def config(reserved: int = 0, n: int = N, d: int = D) -> BertConfig:
    """An encoder small enough to be compiled for every test, with position vectors large enough to matter."""
    return BertConfig(
        vocab_size=20, hidden_size=d, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, initializer_range=0.5,
        max_position_embeddings=n + reserved, reserved_rows=reserved,
    )  # fmt: skip


def table(reserved: int = 0, n: int = N, d: int = D, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 0.5, (n + reserved, d)).astype(np.float32)


def options(make) -> set[str]:
    return {p.name for p in inspect.signature(make).parameters.values() if p.kind == p.KEYWORD_ONLY}


def token_ids(length: int):
    return tokens.from_batch({"input_ids": jnp.zeros((1, length), jnp.int32)})


def at(method, params: dict, position, length: int | None = None, dtype=jnp.float32) -> np.ndarray:
    """The vectors at given positions of a sequence of `length` tokens (default: as many as positions)."""
    count = len(position)
    padded = np.pad(np.asarray(position, np.int32), (0, -count % 64))[None]  # few shapes, hence few compilations
    length = jnp.full_like(padded, length or count)
    tok = token_ids(padded.shape[1])._replace(position=jnp.asarray(padded), length=length)
    zeros = jnp.zeros((*padded.shape, next(iter(params.values())).shape[-1] if params else D), dtype)
    return np.asarray(method.embed(params, zeros, tok)[0].astype(jnp.float32))[:count]


def adopted(make, P: np.ndarray, reserved: int = 0, **kw):
    """(method, params) of a table; works for any row size."""
    cfg = SimpleNamespace(
        max_position_embeddings=len(P), reserved_rows=reserved, hidden_size=P.shape[1], embedding_width=P.shape[1],
        initializer_range=0.5,
        num_hidden_layers=1, num_attention_heads=2, head_dim=P.shape[1] // 2, attention_scale=(P.shape[1] // 2) ** -0.5,
    )  # fmt: skip
    method = make(cfg, **kw)
    return method, method.adopt({"table": jnp.asarray(P)}, jax.random.key(0))


def compare(make, kw: dict, expected, n: int = N, reserved: tuple[int, ...] = (0, 2)) -> None:
    """Holds what `make(cfg, **kw)` gives to a reference.

    Args:
      expected: P[n, D] -> the vectors [m, D], with and without reserved rows; of a method that acts within attention
        (q, k, v, positions, params) -> [T, N, H].

    Raises:
      AssertionError: they differ by more than 1e-5.
    """
    if hooks(make(config(), **kw)) - {"embed"}:
        return compare_attention(make, kw, expected)
    for r in reserved:
        P = table(r, n)
        method, params = adopted(make, P, r, **kw)
        want = expected(P[r:].astype(np.float64))
        _hold(make, at(method, params, np.arange(len(want))), want)
        if "table" in params:
            np.testing.assert_array_equal(params["table"][:r], P[:r])


def pattern(method: PositionMethod):
    """The attention that a method is for: full, or causal."""
    return full.make(config(), causal="causal_only" in method.claims)


def heads_of(seed: int, count: int) -> list[np.ndarray]:
    """q, k, v [1, count, 2, 8]."""
    return list(np.random.default_rng(seed).normal(0, 1, (3, 1, count, 2, D // 2)).astype(np.float32))


def placed(positions: np.ndarray, length: int | None = None) -> tokens.Tokens:
    return tokens.from_batch(
        {"input_ids": jnp.zeros((1, len(positions)), jnp.int32), "position_ids": jnp.asarray(positions)[None]}
    )._replace(length=jnp.full((1, len(positions)), len(positions) if length is None else length))


def of_layer(method: PositionMethod, params: dict, layer=0) -> dict:
    """What the hooks of one layer find among their parameters."""
    own = {n: x[layer] if method.specs[n].axes[0] == "layers" else x for n, x in params.items()}
    return own | {n: jnp.asarray(x)[layer] for n, x in method.by_layer.items()}


def attention(method: PositionMethod, params: dict, *, run: Callable, qkv, tok: tokens.Tokens):
    """[1, T, N, H] from one attention: of the first layer, where a method has parameters by layer."""
    bound = Bound(of_layer(method, params), method)
    x = jnp.zeros((1, len(tok.position[0]), D))
    return run({}, Call(x, x, *qkv, tok, tok, config().attention_scale, bound, jnp.int32(0), Dropout()))


def compare_attention(make, kw: dict, expected) -> None:
    """As compare, for the dense reference and the fast path."""
    method, params = adopted(make, table(), **kw)
    own = {n: np.asarray(x, np.float64) for n, x in of_layer(method, params).items()}
    runs = (pattern(method).reference, pattern(method).attend)
    both = jax.jit(lambda qkv, tok: [attention(method, params, run=run, qkv=qkv, tok=tok)[0] for run in runs])
    for seed, positions in enumerate(PLACES):
        qkv = heads_of(seed, len(positions))
        want = expected(*(x[0].astype(np.float64) for x in qkv), positions, own)
        for got in both(qkv, placed(positions)):
            _hold(make, got, want)


def _hold(make, got, want) -> None:
    print(f"largest difference of {make.__module__}: {np.abs(np.asarray(got, np.float64) - want).max():.1e}")
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5)
