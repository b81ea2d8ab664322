"""The interface of a position method: pure hooks with neutral defaults (DESIGN.md)."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jax import Array

from lpe.params import Spec
from lpe.tokens import Tokens


def _adopt(source: dict[str, Array], key: Array) -> dict[str, Array]:
    return {}


def _embed(params: dict, x_BTD: Array, tok: Tokens) -> Array:
    return x_BTD


def _rotate(params: dict, q_BTNH: Array, k_BSNH: Array, v_BSNH: Array, q_tok: Tokens, k_tok: Tokens):
    return q_BTNH, k_BSNH, v_BSNH


def _logits(params: dict, q_BTNH: Array, q_tok: Tokens, k_tok: Tokens, heads: slice) -> Array | None:
    return None


def _values(params: dict, weights_BNTS: Array, q_tok: Tokens, k_tok: Tokens, heads: slice) -> Array | None:
    return None


class PositionMethod(NamedTuple):
    """How a model tells places apart. Hooks read Tokens, never arange; a neutral hook changes nothing.

    specs: parameters of the method.
    adopt: (source, key) -> params: keep, resize or drop the rows loaded from a checkpoint.
    embed: adds to the input embeddings.
    rotate: rotates queries, keys, values.
    logits: f32[B|1, N, T, S] added to the attention logits, for the blocks that a pattern keeps.
    values: [B, T, N, H] added to the attention output; linear in the weights.
    rows: i32[rows of the parameter table], the source row of each, -1 = new.
    max_length: number of positions, None = no limit.
    claims: properties that the contract test checks: relative, direction_blind, identity_on_trained, causal_only,
      length_dependent (a position's vector depends on the length of its sequence).
    """

    specs: dict[str, Spec]
    adopt: Callable = _adopt
    embed: Callable = _embed
    rotate: Callable = _rotate
    logits: Callable = _logits
    values: Callable = _values
    rows: np.ndarray | None = None
    max_length: int | None = None
    claims: frozenset[str] = frozenset()


class Bound(NamedTuple):
    """The hooks that attention calls, with one layer's parameters filled in."""

    rotate: Callable
    logits: Callable
    values: Callable
