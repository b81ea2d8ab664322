"""Sliding windows with global tokens: Longformer's attention (Beltagy et al. 2020, arXiv 2004.05150, §3).

A query sees the keys up to attention_window // 2 places to each side, global tokens see all and are seen by all. A local query
meets a global key with the local projections; a global query has projections of its own for query, keys and values. With
dilation g a head sees every g-th key, and reaches g times as far. Windows look at places in the array, never at position ids.
"""

from collections.abc import Sequence
from functools import partial
from itertools import groupby
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lpe.attention import base, global_attention
from lpe.attention.base import Call, Keys
from lpe.attention.blocks import Band, Operands, Places, banded
from lpe.linear import Dropout, dense
from lpe.positions import checks
from lpe.positions.base import Bound, PositionMethod
from lpe.tokens import Tokens

EXTENDS_BY = "copy"  # Longformer's own way to a longer position table
METHOD = "attention.window"
BLOCK = (64, 256)  # the smallest and the largest block of queries, from experiments/bench_blocks.py


def seeing(n: int) -> dict:
    """Options by which a token sees n tokens around it, and the first one, as Longformer's classifiers do."""
    return {"attention_window": n, "global_tokens": "cls"}


class Reach(NamedTuple):
    """What one layer sees: so many keys to the left and to the right, apart as the dilation of each head says."""

    left: int
    right: int
    dilation: tuple[int, ...]


def make(
    cfg,
    *,
    attention_window: int | None | Sequence[int | None] = 512,
    causal: bool = False,
    right: int | None = None,
    dilation: int | Sequence[int | Sequence[int]] = 1,
    global_tokens: str = "none",
    global_capacity: int | None = None,
    sep_token_id: int | None = None,
) -> base.AttentionPattern:
    """Attention in linear time.

    Args:
      cfg: the model's config.
      attention_window: w, both sides together as in Hugging Face: w // 2 keys on each side, and the token itself. Several are
        for as many layers, and repeat where the model has a multiple of them. None is no window: such layers see all, as in
        ModernBERT. Each width is compiled apart.
      causal: a query sees no key to its right.
      right: keys to the right where they are not w // 2, as for a short look ahead; `causal` is right=0.
      dilation: the distance of neighbours. Several are for as many layers, as above, and each of them may be several, for as
        many heads: [1, [1, 2]] has every second head of every second layer see every second key.
      global_tokens: none; cls, the first token of each document; question, the tokens before its first separator (where there
        is none, all); explicit, only what the batch says. A batch's global_attention_mask goes before the policy.
      global_capacity: how many a row may have. Default: cls 1, question 64, explicit 16.
      sep_token_id: of the separator, for question.

    Raises:
      ValueError: a value outside its range, or two that do not go together.
    """
    chosen = global_attention.policy(METHOD, global_tokens, global_capacity, sep_token_id)
    reaches = _reaches(cfg, attention_window, causal, right, dilation)
    if (causal or right == 0) and chosen.capacity:
        raise ValueError(f"{METHOD}: a causal window sees no later keys, but global_tokens={global_tokens!r} do; leave one out")
    is_causal = all(r.right == 0 for r in reaches) and not chosen.capacity
    kept = partial(mask, reaches)
    return base.AttentionPattern(
        kept,
        partial(_reference, kept) if chosen.capacity else base.dense(kept),
        partial(attend, reaches, chosen.capacity),
        specs=global_attention.specs(cfg) if chosen.capacity else {},
        adopt=global_attention.adopt if chosen.capacity else base.adopt_nothing,
        mark=partial(global_attention.mark, chosen),
        capacity=chosen.capacity,
        claims=frozenset({"padding_invariant", "causal"} if is_causal else {"padding_invariant"}),
    )


def _reaches(cfg, attention_window, causal, right, dilation) -> tuple[Reach, ...]:
    """One Reach per layer."""
    if not isinstance(causal, bool):
        raise ValueError(f"{METHOD}: causal={causal!r}, allowed are True and False")
    if causal and right is not None:
        raise ValueError(f"{METHOD}: causal=True is right=0, so right={right!r} must be left out")
    if right is not None:
        checks.whole(METHOD, "right", right, 0, checks.LARGEST)
    layers, heads = cfg.num_hidden_layers, cfg.num_attention_heads
    found = []
    pairs = zip(
        _tiled("attention_window", attention_window, layers, "num_hidden_layers"),
        _tiled("dilation", dilation, layers, "num_hidden_layers"),
        strict=True,
    )
    for w, by_head in pairs:
        w = 2 * checks.LARGEST if w is None else checks.whole(METHOD, "attention_window", w, 1, checks.LARGEST)
        steps = _tiled("dilation", by_head, heads, "num_attention_heads")
        for g in steps:
            checks.whole(METHOD, "dilation", g, 1, 1024)
        found.append(Reach(w // 2, 0 if causal else w // 2 if right is None else right, steps))
    return tuple(found)


def _tiled(option: str, value, count: int, of: str) -> tuple:
    """`value` for each of `count` layers or heads. Raises ValueError unless it is one, or several that divide the count."""
    if not isinstance(value, (list, tuple)):
        return (value,) * count
    if not value or count % len(value):
        raise ValueError(f"{METHOD}: {option}={value!r} has {len(value)} values, allowed is a divisor of {of}={count}")
    return tuple(value) * (count // len(value))


def mask(reaches: Sequence[Reach], q_tok: Tokens, k_tok: Tokens, layer: Array, total: int) -> Array:
    """The keys within reach, and every pair with a global token: bool[B, 1|N, T, S]."""
    steps_LN = np.asarray([r.dilation for r in reaches], np.int32)
    if (steps_LN == steps_LN[:, :1]).all():
        steps_LN = steps_LN[:, :1]
    left, right = (jnp.asarray([getattr(r, side) for r in reaches], jnp.int32)[layer] for side in ("left", "right"))
    step = jnp.asarray(steps_LN)[layer][:, None, None]
    distance = k_tok.index[:, None, None, :] - q_tok.index[:, None, :, None]
    near = (distance >= -left * step) & (distance <= right * step) & (distance % step == 0)
    return near | k_tok.is_global[:, None, None, :] | q_tok.is_global[:, None, :, None]


def _reference(kept, params: dict, call: Call) -> Array:
    """Dense: local rows with the local projections, global rows with their own."""
    x, y = call.x_BTD, call.y_BSD
    q, k, v = (dense(params[f"{p}_global"], z) for p, z in (("query", x), ("key", y), ("value", y)))
    rows = base.dense(kept)({}, call._replace(q_BTNH=q, k_BSNH=k, v_BSNH=v))
    return jnp.where(call.q_tok.is_global[:, :, None, None], rows, base.dense(kept)({}, call))


def attend(reaches: Sequence[Reach], capacity: int, params: dict, call: Call) -> Array:
    """Block by block; layers with different windows or dilations are branches of one switch."""
    if call.q_tok.index.shape != call.k_tok.index.shape:
        raise ValueError(
            f"{METHOD} is for self-attention, not {call.q_tok.index.shape} queries on {call.k_tok.index.shape} keys"
        )
    q, k, v = call.position.rotate(call.q_BTNH, call.k_BSNH, call.v_BSNH, call.q_tok, call.k_tok)
    q, k, v = (x.swapaxes(1, 2) for x in (q * jnp.asarray(call.scale, q.dtype), k, v))
    at = global_attention.slots(call.k_tok, capacity)
    far = tuple(global_attention.take(x.swapaxes(1, 2), at).swapaxes(1, 2) for x in (k, v)) if capacity else ()
    kinds = sorted(set(reaches))

    def local(kind: Reach):
        return partial(_local, kind, call, at.tok if capacity else None)

    if len(kinds) == 1:
        out_BNTH = local(kinds[0])(q, k, v, far)
    else:
        # Without the checkpoint, every layer would keep room for what each of the branches keeps.
        which = jnp.asarray([kinds.index(r) for r in reaches])[call.layer]
        switch = jax.checkpoint(lambda *x: jax.lax.switch(which, [local(kind) for kind in kinds], *x), prevent_cse=False)
        out_BNTH = switch(q, k, v, far)
    out_BTNH = out_BNTH.swapaxes(1, 2)
    if not capacity:
        return out_BTNH
    return global_attention.put(out_BTNH, global_attention.attend(params, call, at), at, call.q_tok)


def _local(reach: Reach, call: Call, far_tok: Tokens | None, q, k, v, far: tuple) -> Array:
    """[B, N, T, H] of local queries on their windows and on the global keys `far`; heads of one dilation go together."""
    length, outs, start = q.shape[2], [], 0
    for step, group in groupby(reach.dilation):
        heads = slice(start, start + len(list(group)))
        start = heads.stop
        near = [_fold(x[:, heads], 2, step) for x in (q, k, v)]
        tok = Tokens(*(_fold(x, 1, step) for x in call.k_tok))
        tok = tok._replace(index=_index(call.k_tok, tok.index.shape, step))
        shared = (call.position.params, _repeat(tuple(x[:, heads] for x in far), step))
        places = Places((_repeat(far_tok, step), call.dropout.key), tok, tok)
        block = partial(_block, reach, step, heads, call.position.method, call.dropout.rate)
        out = banded(block, _band(reach, tok.index.shape[1]), Operands(shared, near[0], near[1], near[2]), places, stride=step)
        outs.append(_unfold(out, step, length))
    return jnp.concatenate(outs, axis=1)


def _block(reach: Reach, step: int, heads: slice, method: PositionMethod, rate: float, shared, q, k, v, at: Places, i: Array):
    """One block of queries; the keys of its window without the global ones, then these."""
    (params, far), (far_tok, key) = shared, at.shared
    distance = at.k_tok.index[:, None, None, :] - at.q_tok.index[:, None, :, None]
    near = (distance >= -reach.left * step) & (distance <= reach.right * step)
    if far:
        near &= ~at.k_tok.is_global[:, None, None, :]
    parts = [Keys(k, v, at.k_tok, near)] + ([Keys(far[0], far[1], far_tok, jnp.ones((), bool))] if far else [])
    number = i * len(reach.dilation) + heads.start
    return base.attend_to(parts, q, at.q_tok, Bound(params, method), Dropout(rate, key), heads, number)


def _band(reach: Reach, length: int) -> Band:
    """Blocks of about half a window; the whole at once where blocks and their windows would be no less work."""
    left, right = min(reach.left, length - 1), min(reach.right, length - 1)
    size = min(max(BLOCK[0], 1 << (max(1, (left + right) // 2) - 1).bit_length()), BLOCK[1])
    blocks = -(-length // size)
    if blocks * size * (size + left + right) >= length * length:
        return Band(length, 0, 0)
    return Band(size, left, right)


def _fold(x: Array, axis: int, step: int) -> Array:
    """Every step-th place of `axis` as a row of the batch of its own: [B, …, T, …] to [B · step, …, ⌈T / step⌉, …]."""
    if step == 1:
        return x
    spare = -x.shape[axis] % step
    x = jnp.pad(x, [(0, spare if a == axis else 0) for a in range(x.ndim)])
    x = jnp.moveaxis(x.reshape(*x.shape[:axis], -1, step, *x.shape[axis + 1 :]), axis + 1, 1)
    return x.reshape(-1, *x.shape[2:])


def _unfold(x_BNTH: Array, step: int, length: int) -> Array:
    if step == 1:
        return x_BNTH
    b, n, t, h = x_BNTH.shape
    return x_BNTH.reshape(b // step, step, n, t, h).transpose(0, 2, 3, 1, 4).reshape(b // step, n, t * step, h)[:, :, :length]


def _index(tok: Tokens, shape: tuple[int, ...], step: int) -> Array:
    """The index of folded tokens, which goes on where they are padded."""
    first = jnp.repeat(tok.index[:, :1], step, axis=0) + jnp.tile(jnp.arange(step, dtype=jnp.int32), len(tok.index))[:, None]
    return first + step * jnp.arange(shape[1], dtype=jnp.int32)


def _repeat(tree, step: int):
    return jax.tree.map(lambda x: jnp.repeat(x, step, axis=0), tree) if step > 1 else tree
