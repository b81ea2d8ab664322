"""Global tokens: which they are, and what the rows of global queries are (Longformer, arXiv 2004.05150, §3.1).

Their number is static: a row of the batch has room for `capacity` of them. One with more is refused where the batch is seen,
and NaN where it is not, under jit.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from lpe.attention import base
from lpe.attention.base import Call, Keys
from lpe.linear import dense
from lpe.params import Spec, normal, under, zeros
from lpe.positions import checks
from lpe.tokens import Tokens

PROJECTIONS = ("query", "key", "value")
BLOCK = 2**31 - 1  # their number among the blocks of queries, for dropout


class Policy(NamedTuple):
    """Which tokens are global, (batch, tok) -> bool[B, T], and how many a row may have."""

    chosen: Callable[[dict[str, Array], Tokens], Array]
    capacity: int


class Slots(NamedTuple):
    """Where the global tokens of each row are: index and used [B, G]; tok their Tokens, those of unused slots as padding."""

    index: Array
    used: Array
    tok: Tokens


def policy(method: str, name: str, capacity: int | None, sep_token_id: int | None) -> Policy:
    """Raises ValueError for an unknown policy, a capacity that it cannot have, or a separator missing or without use."""
    checks.one_of(method, "global_tokens", name, tuple(POLICIES))
    found = POLICIES[name]
    if capacity is not None:
        if not found.capacity:
            raise ValueError(
                f'{method}: global_capacity={capacity!r} with global_tokens="none"; leave it out, or name a policy'
            )
        checks.whole(method, "global_capacity", capacity, 1, checks.LARGEST)
    if (found.chosen is _question) != (sep_token_id is not None):
        raise ValueError(
            f"{method}: sep_token_id={sep_token_id!r} with global_tokens={name!r}; "
            "question needs the id of its separator, tokenizer.sep_token_id, and no other policy takes one"
        )
    if sep_token_id is not None:
        checks.whole(method, "sep_token_id", sep_token_id, 0, checks.LARGEST)
        found = found._replace(chosen=partial(_question, sep_token_id=sep_token_id))
    return found if capacity is None else found._replace(capacity=capacity)


def mark(by: Policy, batch: dict[str, Array], tok: Tokens) -> Tokens:
    """`tok` with is_global, from the batch's global_attention_mask where it has one, else by the policy."""
    if "global_attention_mask" in batch:
        if not by.capacity:
            raise ValueError(
                "the batch has a global_attention_mask, and this attention no global tokens; leave it out, or extend with "
                'global_tokens="explicit"'
            )
        return tok._replace(is_global=(batch["global_attention_mask"] != 0) & (tok.segment > 0))
    return tok._replace(is_global=by.chosen(batch, tok))


def _none(batch: dict[str, Array], tok: Tokens) -> Array:
    return jnp.zeros_like(tok.is_global)


def _first(batch: dict[str, Array], tok: Tokens) -> Array:
    """bool[B, T]: the first token of each document."""
    real = tok.segment > 0
    if "segment_ids" in batch:
        return real & (tok.segment != jnp.pad(tok.segment, ((0, 0), (1, 0)))[:, :-1])
    return real & (jnp.cumsum(real, axis=1) == 1)


def _question(batch: dict[str, Array], tok: Tokens, sep_token_id: int = -1) -> Array:
    """bool[B, T]: the tokens before the first separator of each document."""
    separator = batch["input_ids"] == sep_token_id
    before = jnp.cumsum(separator, axis=1) - separator
    at_start = jax.lax.cummax(jnp.where(_first(batch, tok), before, 0), axis=1)
    return (tok.segment > 0) & (before == at_start) & ~separator


POLICIES = {
    "none": Policy(_none, 0),
    "cls": Policy(_first, 1),
    "question": Policy(_question, 64),
    "explicit": Policy(_none, 16),
}


def specs(cfg) -> dict[str, Spec]:
    """Query, key and value projections of global queries."""
    d, n, h = cfg.hidden_size, cfg.num_attention_heads, cfg.head_dim
    rows = {
        "kernel": Spec((d, n, h), ("embed", "heads", "head_dim"), normal(cfg.initializer_range)),
        "bias": Spec((n, h), ("heads", "head_dim"), zeros),
    }
    return {name: spec for p in PROJECTIONS for name, spec in under(f"{p}_global", rows).items()}


def adopt(layer_params: dict, key: Array) -> dict:
    """The projections that are there, else copies of the local ones."""
    return layer_params.get("pattern") or {f"{p}_global": jax.tree.map(jnp.copy, layer_params[p]) for p in PROJECTIONS}


def slots(tok: Tokens, capacity: int) -> Slots:
    """The first `capacity` global tokens of each row, in order."""
    index = jnp.argsort(~tok.is_global, axis=1, stable=True)[:, :capacity]
    taken: Tokens = jax.tree.map(lambda x: jnp.take_along_axis(x, index, axis=1), tok)
    return Slots(index, taken.is_global, taken._replace(segment=jnp.where(taken.is_global, taken.segment, 0)))


def take(x_BTX: Array, at: Slots) -> Array:
    """x at the slots, [B, G, …]."""
    return jnp.take_along_axis(x_BTX, at.index.reshape(*at.index.shape, *[1] * (x_BTX.ndim - 2)), axis=1)


def put(out_BTNH: Array, rows_BGNH: Array, at: Slots, tok: Tokens) -> Array:
    """`out` with the rows of global queries; NaN throughout in a row of the batch that has more than there are slots."""
    index = jnp.where(at.used, at.index, out_BTNH.shape[1])
    out_BTNH = jax.vmap(lambda o, i, r: o.at[i].set(r, mode="drop"))(out_BTNH, index, rows_BGNH)
    full = tok.is_global.sum(axis=1) > at.used.shape[1]
    return jnp.where(full[:, None, None, None], jnp.nan, out_BTNH).astype(out_BTNH.dtype)


def attend(params: dict, call: Call, at: Slots) -> Array:
    """The rows of global queries over all keys of their segment, [B, G, N, H].

    Few of them need no keys and values of their own for every token, unless positions turn keys: the score q · (W_k x + b_k)
    is (W_kᵀ q) · x but for a term that the softmax ignores, and the sum of w (W_v x + b_v) is W_v (Σ w x) + Σ w b_v. The same
    numbers with 4·N·G·D products per token for 4·D².
    """
    q_BGNH = dense(params["query_global"], take(call.x_BTD, at))
    heads = slice(0, q_BGNH.shape[2])
    if call.position.rotates or at.used.shape[1] >= q_BGNH.shape[3]:
        k, v = (dense(params[f"{p}_global"], call.y_BSD) for p in ("key", "value"))
        q, k, v = call.position.rotate(q_BGNH, k, v, at.tok, call.k_tok)
        keys = Keys(k.swapaxes(1, 2), v.swapaxes(1, 2), call.k_tok, jnp.ones((), bool))
        q_BNGH = (q * jnp.asarray(call.scale, q.dtype)).swapaxes(1, 2)
        return base.attend_to([keys], q_BNGH, at.tok, call.position, call.dropout, heads, BLOCK).swapaxes(1, 2)
    q_BGNH = q_BGNH * jnp.asarray(call.scale, q_BGNH.dtype)
    key, value = (params[f"{p}_global"] for p in ("key", "value"))
    y_BSD, kernel_DNH = call.y_BSD, value["kernel"].astype(q_BGNH.dtype)
    u_BNGD = jnp.einsum("bgnh,dnh->bngd", q_BGNH, key["kernel"].astype(q_BGNH.dtype))
    logits_BNGS = jnp.einsum("bngd,bsd->bngs", u_BNGD, y_BSD, preferred_element_type=jnp.float32)
    extra = call.position.logits(q_BGNH, at.tok, call.k_tok, heads)
    logits_BNGS = logits_BNGS if extra is None else logits_BNGS + extra
    weights_BNGS = base.masked_softmax(logits_BNGS, base.same_segment(at.tok, call.k_tok))
    weights_BNGS = call.dropout(weights_BNGS, BLOCK).astype(y_BSD.dtype)
    pooled_BNGD = jnp.einsum("bngs,bsd->bngd", weights_BNGS, y_BSD)
    out_BGNH = jnp.einsum("bngd,dnh->bgnh", pooled_BNGD, kernel_DNH)
    out_BGNH = out_BGNH + weights_BNGS.sum(axis=-1).swapaxes(1, 2)[..., None] * value["bias"].astype(y_BSD.dtype)
    extra = call.position.values(weights_BNGS, at.tok, call.k_tok, heads)
    return out_BGNH if extra is None else out_BGNH + extra.astype(out_BGNH.dtype)
