"""From token states to one vector a document, also where documents share a row or were read in chunks."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from lpe.tokens import Tokens

POOLING = ("cls", "mean", "max")


def encode(encoder: Callable, params: dict, batch: dict[str, Array], key: Array | None) -> tuple[Array, Tokens]:
    """The encoder on [B, T] inputs; on [B, C, n] ones each chunk alone, the states side by side: [B, C·n, D].

    Concatenated states of chunks are the usual way to read what is longer than a model (Sun et al., arXiv 1905.05583, §5.3.2,
    there pooled over the chunks' first tokens).
    """
    ids = batch["input_ids"]
    if ids.ndim == 2:
        return encoder(params, batch, key=key)
    rows, width = ids.shape[0] * ids.shape[1], ids.shape[2]
    chunks = {k: v.reshape(rows, width) for k, v in batch.items() if v.shape == ids.shape}
    states, tok = encoder(params, chunks, key=key)
    return jax.tree.map(lambda v: v.reshape(ids.shape[0], -1, *v.shape[2:]), (states, tok))


def pool(x_BTD: Array, tok: Tokens, slots: int, how: str) -> Array:
    """One vector for each of `slots` documents in a row: [B, slots, D]; zeros for one that is not there.

    Args:
      x_BTD: token states.
      tok: segment s + 1 is the document of slot s.
      how: cls, the document's first token (read in chunks: the mean over the chunks' first tokens); mean; max.
    """
    own_BST = tok.segment[:, None, :] == jnp.arange(1, slots + 1)[None, :, None]
    if how == "cls":
        own_BST &= (tok.position == 0)[:, None, :]
    if how == "max":
        top_BSD = jnp.where(own_BST[..., None], x_BTD[:, None], -jnp.inf).max(axis=2)
        return jnp.where(own_BST.any(axis=2)[..., None], top_BSD, 0)
    share_BST = own_BST / jnp.maximum(own_BST.sum(axis=2, keepdims=True), 1)
    return jnp.einsum("BST,BTD->BSD", share_BST.astype(x_BTD.dtype), x_BTD)
