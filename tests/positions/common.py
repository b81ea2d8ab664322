"""A small table, the vectors that a method makes of it, and the comparison with a reference."""

import inspect
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np

from lpe import tokens
from lpe.models.bert import BertConfig

N, D = 8, 16


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
        max_position_embeddings=len(P), reserved_rows=reserved, hidden_size=P.shape[1], initializer_range=0.5
    )  # fmt: skip
    method = make(cfg, **kw)
    return method, method.adopt({"table": jnp.asarray(P)}, jax.random.key(0))


def compare(make, kw: dict, expected, n: int = N, reserved: tuple[int, ...] = (0, 2)) -> None:
    """Holds the vectors that `make(cfg, **kw)` gives to expected(P), with and without reserved rows.

    Raises:
      AssertionError: they differ by more than 1e-5.
    """
    for r in reserved:
        P = table(r, n)
        method, params = adopted(make, P, r, **kw)
        want = expected(P[r:].astype(np.float64))
        np.testing.assert_allclose(at(method, params, np.arange(len(want))), want, rtol=0, atol=1e-5)
        np.testing.assert_array_equal(params["table"][:r], P[:r])
