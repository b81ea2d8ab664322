"""Independent blocks of the text: the baseline that windows are compared with."""

from functools import partial

import jax.numpy as jnp
from jax import Array

from lpe.attention import base
from lpe.attention.base import Call, Keys
from lpe.attention.blocks import Band, Operands, Places, banded
from lpe.linear import Dropout
from lpe.positions import checks
from lpe.positions.base import Bound, PositionMethod
from lpe.tokens import Tokens

METHOD = "attention.chunked"
IN_PIECES = True  # tokens of two blocks never meet, in any number of layers: the same as reading the text in pieces


def seeing(n: int) -> dict:
    """Options by which a token sees the n tokens of its block."""
    return {"chunk_size": n}


def make(cfg, *, chunk_size: int = 512, causal: bool = False) -> base.AttentionPattern:
    """Attention within blocks, counted from the beginning of the array: what a token sees depends on padding before it.

    Args:
      cfg: the model's config.
      chunk_size: tokens of a block.
      causal: a query sees no later keys.

    Raises:
      ValueError: a value outside its range.
    """
    checks.whole(METHOD, "chunk_size", chunk_size, 1, checks.LARGEST)
    checks.one_of(METHOD, "causal", causal, (False, True))
    kept = partial(mask, chunk_size, causal)
    claims = frozenset({"causal"} if causal else ())
    return base.AttentionPattern(kept, base.dense(kept), partial(attend, chunk_size, causal), claims=claims)


def mask(size: int, causal: bool, q_tok: Tokens, k_tok: Tokens, layer: Array, total: int) -> Array:
    q, k = q_tok.index[:, None, :, None], k_tok.index[:, None, None, :]
    same = q // size == k // size
    return same & (k <= q) if causal else same


def attend(size: int, causal: bool, params: dict, call: Call) -> Array:
    """One chunk after the other."""
    if call.q_tok.index.shape != call.k_tok.index.shape:
        raise ValueError(
            f"{METHOD} is for self-attention, not {call.q_tok.index.shape} queries on {call.k_tok.index.shape} keys"
        )
    q, k, v = call.position.rotate(call.q_BTNH, call.k_BSNH, call.v_BSNH, call.q_tok, call.k_tok)
    q, k, v = (x.swapaxes(1, 2) for x in (q * jnp.asarray(call.scale, q.dtype), k, v))
    block = partial(_block, causal, call.position.method, call.dropout.rate)
    places = Places(call.dropout.key, call.q_tok, call.k_tok)
    band = Band(min(size, q.shape[2]), 0, 0)
    return banded(block, band, Operands(call.position.params, q, k, v), places).swapaxes(1, 2)


def _block(causal: bool, method: PositionMethod, rate: float, params: dict, q, k, v, at: Places, i: Array) -> Array:
    keep = at.k_tok.index[:, None, None, :] <= at.q_tok.index[:, None, :, None] if causal else jnp.ones((), bool)
    keys, heads = Keys(k, v, at.k_tok, keep), slice(0, q.shape[1])
    return base.attend_to([keys], q, at.q_tok, Bound(params, method), Dropout(rate, at.shared), heads, i)
