"""What a layer knows about its tokens: place, position, segment, length. Everything else is in the vectors."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array


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
    batch brings its own `position_ids`. A masked token between real ones keeps its place.

    Args:
      batch: `input_ids` i32[B, T]; optional `attention_mask` [B, T] (1 = real token) and `position_ids` i32[B, T].
    """
    input_ids = batch["input_ids"]
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
