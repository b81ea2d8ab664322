"""What a layer knows about its tokens: place, position, segment, length. Everything else is in the vectors."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax


class Tokens(NamedTuple):
    """One side of an attention, or a block of it; every field is [B, T].

    index: i32 place in the array. Windows, blocks and causality look only here.
    position: i32 for position methods: from 0 at the first real token.
    segment: i32, 0 = padding. Attention never crosses segments.
    length: i32, real tokens in the token's own segment.
    is_global: bool, tokens that a pattern treats as global.
    """

    index: Array
    position: Array
    segment: Array
    length: Array
    is_global: Array


def from_batch(batch: dict[str, Array]) -> Tokens:
    """Tokens of a batch as transformers' tokenizers make it, padded on the left or on the right.

    Positions count from 0 at the first real token, for RoBERTa too (stock RoBERTa counts from pad_token_id + 1), unless the
    batch brings its own `position_ids`. A masked token between real ones keeps its place. In packed rows positions restart
    in every segment.

    Args:
      batch: `input_ids` i32[B, T]; optional `attention_mask` [B, T] (1 = real token), `position_ids` i32[B, T], and
        `segment_ids` i32[B, T]: 0 = padding, else the document in the row, each in one piece; they go before the mask.
    """
    input_ids = batch["input_ids"]
    if "segment_ids" in batch:
        return _packed(batch["segment_ids"].astype(jnp.int32), batch.get("position_ids"))
    index = jnp.broadcast_to(jnp.arange(input_ids.shape[1], dtype=jnp.int32), input_ids.shape)
    mask = batch.get("attention_mask")
    segment = jnp.ones_like(input_ids) if mask is None else (mask != 0).astype(jnp.int32)
    position = batch.get("position_ids")
    if position is None:
        first = jnp.argmax(segment, axis=1, keepdims=True)
        last = segment.shape[1] - 1 - jnp.argmax(segment[:, ::-1], axis=1, keepdims=True)
        position = jnp.where(segment.any(axis=1, keepdims=True), jnp.clip(index, first, last) - first, 0)
    length = jnp.broadcast_to(segment.sum(axis=1, keepdims=True), input_ids.shape)
    return Tokens(index, position.astype(jnp.int32), segment, length, jnp.zeros(input_ids.shape, bool))


def check_segments(segment: np.ndarray, mask: Any = None) -> None:
    """Raises ValueError, by row, for segment_ids [B, T] that are negative, in several pieces, or not where the mask is 1."""
    if segment.min() < 0:
        raise ValueError(f"segment_ids has {segment.min()}, allowed are 0 (padding) and 1 and more (documents)")
    for row, ids in enumerate(segment):
        starts = ids[np.flatnonzero(np.diff(ids, prepend=-1))]
        found, pieces = np.unique(starts[starts > 0], return_counts=True)
        if (pieces > 1).any():
            raise ValueError(
                f"segment_ids, row {row}: document {found[pieces.argmax()]} is in {pieces.max()} pieces, allowed is one"
            )
    if mask is not None and (rows := np.flatnonzero(((segment > 0) != (np.asarray(mask) != 0)).any(1))).size:
        raise ValueError(f"row {rows[0]}: attention_mask is not 1 where segment_ids is above 0; leave attention_mask out")


def _packed(segment: Array, position: Array | None) -> Tokens:
    """Tokens of rows that hold several documents, one after the other."""
    total = segment.shape[1]
    index = jnp.broadcast_to(jnp.arange(total, dtype=jnp.int32), segment.shape)
    change = segment[:, 1:] != segment[:, :-1]
    edge = jnp.ones((len(segment), 1), bool)
    first = lax.cummax(jnp.where(jnp.concatenate([edge, change], axis=1), index, 0), axis=1)
    last = lax.cummin(jnp.where(jnp.concatenate([change, edge], axis=1), index, total), axis=1, reverse=True)
    real = segment > 0
    if position is None:
        position = jnp.where(real, index - first, 0)
    length = jnp.where(real, last - first + 1, 0)
    return Tokens(index, position.astype(jnp.int32), segment, length, jnp.zeros(segment.shape, bool))
