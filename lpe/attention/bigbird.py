"""BigBird's attention (Zaheer et al. 2020, arXiv 2007.14062, §2): blocks of tokens see global, neighbouring and random blocks.

ITC, internal transformer construction: the first and the last block are global, they see all and are seen by all. Every other
block sees itself, its two neighbours and a few random blocks, which each layer and each head draws for itself.

ETC, extended transformer construction: single tokens are global as well (global_tokens), or instead of the two blocks
(global_blocks=False). The paper puts such tokens before the text and, unlike Longformer, gives them no projections of their
own. Here they are tokens of the text, as the policy or the batch says, so they keep their places in blocks and positions.

The random blocks are a function of seed, layer and number of blocks, the same in training and in evaluation. The last block is
that of the array padded to whole blocks, so padding after the text changes what is seen.
"""

import math
from functools import partial
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from lpe.attention import base, global_attention, sparse_blocks
from lpe.attention.base import Call, Keys
from lpe.attention.blocks import Operands
from lpe.attention.sparse_blocks import Picked, Places, Taken, joined
from lpe.linear import Dropout
from lpe.positions import checks
from lpe.positions.base import Bound, PositionMethod
from lpe.tokens import Tokens

METHOD = "attention.bigbird"
BLOCK = (64, 512)  # the fewest queries of a step, and the keys that global queries meet at a time


def seeing(n: int) -> dict:
    """Options by which a token sees about n tokens: three blocks around it, two global and three random ones."""
    return {"block_size": max(1, n // 8)}


class Form(NamedTuple):
    """The options of one model; layers and heads are the model's, ends is 1 where the first and the last block are global."""

    size: int
    random: int
    seed: int
    ends: int
    hf_compat: bool
    layers: int
    heads: int

    def plan(self, blocks: int) -> np.ndarray:
        """i32[L, N, blocks, r], -1 where a row draws none."""
        count = 0 if self.hf_compat else self.random
        return sparse_blocks.draw(self.seed, self.layers, self.heads, blocks, count, self.ends)

    def is_full(self, length: int) -> bool:
        """Whether a text of this many tokens is seen whole."""
        if self.hf_compat:
            return length <= (5 + 2 * self.random) * self.size
        return -(-length // self.size) <= 3 + 2 * self.ends + self.random


def make(
    cfg,
    *,
    block_size: int = 64,
    num_random_blocks: int = 3,
    seed: int = 0,
    global_blocks: bool = True,
    global_tokens: str = "none",
    global_capacity: int | None = None,
    sep_token_id: int | None = None,
    hf_compat: bool = False,
) -> base.AttentionPattern:
    """Attention in linear time. A text of at most 5 + num_random_blocks blocks is seen whole (3 + r without global blocks).

    The paper's ETC models (§2, appendix E) have single global tokens in place of the blocks, and no random blocks:
    global_tokens=…, global_blocks=False, num_random_blocks=0.

    Args:
      cfg: the model's config.
      block_size: tokens of a block.
      num_random_blocks: r, how many blocks a row of blocks draws, each once, outside its window and the global blocks. Where
        there are fewer it has these.
      seed: of the draws; a model is tuned and used with one seed.
      global_blocks: whether the first and the last block are global.
      global_tokens: none; cls, the first token of each document; question, the tokens before its first separator (where there
        is none, all); explicit, only what the batch says. A batch's global_attention_mask goes before the policy.
      global_capacity: how many a row may have. Default: cls 1, question 64, explicit 16.
      sep_token_id: of the separator, for question.
      hf_compat: as transformers' BigBird does in evaluation, for its checkpoints. There all random blocks are the first block,
        which so counts 1 + r times in the softmax of every block of queries but the first and the last, and a text of at most
        (5 + 2r) · block_size tokens, padding included, is seen whole. It stays so in training, where transformers draws.

    Raises:
      ValueError: a value outside its range, or two that do not go together.
    """
    checks.whole(METHOD, "block_size", block_size, 1, checks.LARGEST)
    least, why = (1, ", as in transformers") if hf_compat is True else (0, "")
    checks.whole(METHOD, "num_random_blocks", num_random_blocks, least, 1024, why)
    checks.whole(METHOD, "seed", seed, 0, 2**32 - 1)
    checks.one_of(METHOD, "global_blocks", global_blocks, (True, False))
    checks.one_of(METHOD, "hf_compat", hf_compat, (False, True))
    chosen = global_attention.policy(METHOD, global_tokens, global_capacity, sep_token_id)
    for name, value, neutral in (
        ("global_blocks", global_blocks, True),
        ("global_tokens", global_tokens, "none"),
        ("seed", seed, 0),
    ):
        if hf_compat and value != neutral:
            raise ValueError(
                f"{METHOD}: hf_compat=True with {name}={value!r}; transformers has {name}={neutral!r} only; leave one out"
            )
    layers, heads = cfg.num_hidden_layers, cfg.num_attention_heads
    form = Form(block_size, num_random_blocks, seed, int(global_blocks), hf_compat, layers, heads)
    return base.AttentionPattern(
        partial(mask, form),
        partial(_reference, form),
        partial(attend, form, chosen.capacity),
        mark=partial(global_attention.mark, chosen),
        capacity=chosen.capacity,
        claims=frozenset({"length_dependent"} if global_blocks or num_random_blocks else ()),
    )


def mask(form: Form, q_tok: Tokens, k_tok: Tokens, layer: Array, total: int) -> Array:
    """Neighbouring, random and global blocks, and every pair with a global token: bool[B, 1|N, T, S]."""
    q, k = (tok.index // form.size for tok in (q_tok, k_tok))
    if form.is_full(total):
        return jnp.ones((len(q), 1, q.shape[1], k.shape[1]), bool)
    blocks = -(-total // form.size)
    drawn_BNTr = jnp.moveaxis(jnp.asarray(form.plan(blocks))[layer][:, q], 1, 0)
    q, k = q[:, None, :, None], k[:, None, None, :]
    kept = (jnp.abs(q - k) <= 1) | k_tok.is_global[:, None, None, :] | q_tok.is_global[:, None, :, None]
    for r in range(drawn_BNTr.shape[-1]):
        kept |= drawn_BNTr[..., r : r + 1] == k
    return kept | _at_end(q, blocks) | _at_end(k, blocks) if form.ends else kept


def _at_end(block: Array, blocks: int) -> Array:
    return (block == 0) | (block == blocks - 1)


def _reference(form: Form, params: dict, call: Call) -> Array:
    position = _counted(form, call.position, call.k_tok.index.shape[1])
    return base.dense(partial(mask, form))({}, call._replace(position=position))


def _counted(form: Form, position: Bound, total: int) -> Bound:
    """`position`, whose logits count the first block 1 + r times, for hf_compat; no mask can say that."""
    if not form.hf_compat or form.is_full(total):
        return position
    blocks, given = -(-total // form.size), position.method

    def logits(params: dict, q_BTNH: Array, q_tok: Tokens, k_tok: Tokens, heads: slice) -> Array:
        again = ~_at_end(q_tok.index // form.size, blocks)[:, None, :, None] & (k_tok.index < form.size)[:, None, None, :]
        more = jnp.where(again, math.log(1 + form.random), 0.0)
        extra = given.logits(params, q_BTNH, q_tok, k_tok, heads)
        return more if extra is None else extra + more

    return position._replace(method=given._replace(logits=logits))


def attend(form: Form, capacity: int, params: dict, call: Call) -> Array:
    """Rows of blocks some at a time; then global queries, which see all."""
    if call.q_tok.index.shape != call.k_tok.index.shape:
        raise ValueError(
            f"{METHOD} is for self-attention, not {call.q_tok.index.shape} queries on {call.k_tok.index.shape} keys"
        )
    q, k, v = call.position.rotate(call.q_BTNH, call.k_BSNH, call.v_BSNH, call.q_tok, call.k_tok)
    q, length = q * jnp.asarray(call.scale, q.dtype), q.shape[1]
    if form.is_full(length):
        keys, heads = Keys(k.swapaxes(1, 2), v.swapaxes(1, 2), call.k_tok, jnp.ones((), bool)), slice(0, form.heads)
        out = base.attend_to([keys], q.swapaxes(1, 2), call.q_tok, call.position, call.dropout, heads).swapaxes(1, 2)
        at = global_attention.slots(call.k_tok, capacity)
        return global_attention.put(out, global_attention.take(out, at), at, call.q_tok) if capacity else out
    return _sparse(form, capacity, call, q, k, v)


class Far(NamedTuple):
    """What sees every row and is seen by all, global blocks and then global tokens: q, k, v [B, N, F, H].

    k_tok has a key once: a global token in a global block is padding there.
    """

    q: Array
    k: Array
    v: Array
    q_tok: Tokens
    k_tok: Tokens


def _sparse(form: Form, capacity: int, call: Call, q: Array, k: Array, v: Array) -> Array:
    length = q.shape[1]
    blocks = -(-length // form.size)
    chunk = -(-blocks // max(1, round(blocks * form.size / BLOCK[1])))  # so many blocks do global queries meet at a time
    split = partial(sparse_blocks.split, size=form.size, blocks=blocks + -blocks % chunk)
    x = tuple(split(y) for y in (q, k, v))
    tok = Tokens(*map(split, call.k_tok))
    local = tok._replace(segment=jnp.where(tok.is_global, 0, tok.segment)) if capacity else tok
    at = global_attention.slots(call.k_tok, capacity)
    far = _far(form, blocks, x, tok, local, tuple(global_attention.take(y, at).swapaxes(1, 2) for y in (q, k, v)), at.tok)
    rows, steps = _rows(form, call, blocks, far, x, tok, local)
    if not far.q.shape[2]:
        return _unsplit(rows, length)
    first = steps * 3  # the numbers before it are those of the parts of each step, for dropout
    out_BNFH = sparse_blocks.over_chunks(far.q, far.q_tok, (x[1], x[2]), tok, chunk, call.position, call.dropout, first)
    if form.ends:
        top, bottom = (out_BNFH[None, :, :, i * form.size : (i + 1) * form.size] for i in range(2))
        rows = jnp.concatenate([top, rows, bottom])
    out_BTNH = _unsplit(rows, length)
    slots_BGNH = out_BNFH[:, :, 2 * form.size * form.ends :].swapaxes(1, 2)
    return global_attention.put(out_BTNH, slots_BGNH, at, call.q_tok) if capacity else out_BTNH


def _far(form: Form, blocks: int, x: tuple, tok: Tokens, local: Tokens, at_slots: tuple, slots: Tokens) -> Far:
    q, k, v = at_slots
    if not form.ends:
        return Far(q, k, v, slots, slots)
    ends = np.asarray([0, blocks - 1])
    q, k, v = (jnp.concatenate([joined(y[ends], 0), z], axis=2) for y, z in zip(x, at_slots, strict=True))

    def with_slots(blocked: Tokens) -> Tokens:
        return Tokens(*(jnp.concatenate([joined(y[ends], 0), z], axis=1) for y, z in zip(blocked, slots, strict=True)))

    return Far(q, k, v, with_slots(tok), with_slots(local))


def _unsplit(x: Array, length: int) -> Array:
    """[blocks, B, N, size, H] to [B, T, N, H]."""
    x = x.transpose(1, 0, 3, 2, 4)
    return x.reshape(len(x), -1, *x.shape[3:])[:, :length]


def _rows(form: Form, call: Call, blocks: int, far: Far, x: tuple, tok: Tokens, local: Tokens) -> tuple[Array, int]:
    """The rows of blocks that are not global, [rows, B, N, size, H], and how many steps they take."""
    rows = np.arange(form.ends, blocks - form.ends)
    group = min(max(1, BLOCK[0] // form.size), len(rows))
    steps = -(-len(rows) // group)
    taken = np.resize(np.pad(rows, (0, group), mode="edge"), (steps, group))  # the last row again where a step has room
    near = taken[..., None] + np.arange(-1, 2)
    inside = (near >= form.ends) & (near < blocks - form.ends)  # global blocks are met as such
    drawn = jnp.moveaxis(jnp.asarray(form.plan(blocks))[call.layer][:, taken], 0, 2)  # [steps, G, N, r]
    picked = Picked(jnp.asarray(np.clip(near, 0, blocks - 1), jnp.int32), jnp.maximum(drawn, 0))
    position = _counted(form, call.position, call.k_tok.index.shape[1])
    step = partial(_step, form, position.method, call.dropout.rate)
    shared = (far.k_tok, call.dropout.key, jnp.asarray(inside), drawn >= 0)
    q, k, v = x

    def by_step(y: Array) -> Array:
        y = jnp.pad(y[form.ends : blocks - form.ends], [(0, steps * group - len(rows) if a == 0 else 0) for a in range(y.ndim)])
        return y.reshape(steps, group, *y.shape[1:])

    at = Places(shared, Tokens(*map(by_step, tok)), local, picked)
    out: Array = sparse_blocks.over_steps(step, Operands((position.params, far.k, far.v), by_step(q), k, v), at)
    return out.reshape(-1, *out.shape[2:])[: len(rows)], steps


def _step(form: Form, method: PositionMethod, rate: float, shared, q: Array, k: Taken, v: Taken, q_tok, tok: Taken, at, i):
    """Some blocks of queries, [G, B, N, size, H]; they lie along the batch."""
    (params, far_k, far_v), (far_tok, key, inside, drawn) = shared, at
    groups, batch = q.shape[:2]

    def flat(x: Array) -> Array:
        return x.reshape(groups * batch, *x.shape[2:])

    def by_token(kept: Array) -> Array:
        return jnp.repeat(jnp.repeat(kept[i], form.size, axis=-1), batch, axis=0)

    def of_all(x: Array) -> Array:
        return flat(jnp.broadcast_to(x, (groups, *x.shape)))

    near_tok = Tokens(*(flat(joined(x, 1)) for x in tok.near))
    near_k, near_v = (flat(joined(x.near, 1)) for x in (k, v))
    parts = [Keys(near_k, near_v, near_tok, by_token(inside)[:, None, None, :])]
    if drawn.shape[-1]:
        own_k, own_v = (x.drawn.reshape(groups * batch, form.heads, -1, x.drawn.shape[-1]) for x in (k, v))
        own_tok = Tokens(*(x.reshape(groups * batch, form.heads, -1) for x in tok.drawn))
        parts.append(Keys(own_k, own_v, own_tok, by_token(drawn)[:, :, None, :]))
    if far_k.shape[2]:
        parts.append(Keys(of_all(far_k), of_all(far_v), Tokens(*map(of_all, far_tok)), jnp.ones((), bool)))
    heads, tokens = slice(0, form.heads), Tokens(*map(flat, q_tok))
    out = base.attend_to(parts, flat(q), tokens, Bound(params, method), Dropout(rate, key), heads, i)
    return out.reshape(q.shape[:-1] + out.shape[-1:])
