"""A ring with a relay: the topology of the Star-Transformer as a pattern (Guo et al. 2019, arXiv 1902.09113, §3.1, figure 1).

The first token of each document, [CLS], is its relay: it sees all of its document and is seen by all. The other tokens, the
satellites, see themselves and their two neighbours; the first and the last satellite are neighbours too. All projections are
shared, and the pattern has no parameters of its own.

It is not the paper's model, where a satellite also sees its own embedding (eq. 3), the relay is a state that begins as the
mean of the embeddings, and satellites and relay are updated in turn, cyclically, with shared layers (algorithm 1).

Neighbours are those among the real tokens of a document: a masked token is no member of the ring, and those on its two sides
are neighbours. To say so, `mark` numbers the tokens of a document without its masked ones. Position ids are never looked at.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from lpe.attention import base, global_attention
from lpe.attention.base import Call, Keys
from lpe.positions import checks
from lpe.tokens import Tokens

METHOD = "attention.star"
NEEDS_TRAINING = True  # weights trained with dense attention do not become those of a ring without training


class Ring(NamedTuple):
    """The neighbours of each token.

    left, right: i32[B, T], places in the array; each the other's inverse. What is no satellite is its own neighbour.
    keep: bool[B, T, 3], which of itself, left and right is a key; none is counted twice.
    """

    left: Array
    right: Array
    keep: Array


def make(cfg, *, closed: bool = True, global_capacity: int = 1) -> base.AttentionPattern:
    """A ring of satellites around the first token of each document, in linear time.

    Args:
      cfg: the model's config.
      closed: the first and the last satellite of a document are neighbours.
      global_capacity: how many relays a row may have, one for each of its documents.

    Raises:
      ValueError: a value outside its range.
    """
    checks.one_of(METHOD, "closed", closed, (False, True))
    checks.whole(METHOD, "global_capacity", global_capacity, 1, checks.LARGEST)
    kept = partial(mask, closed)
    return base.AttentionPattern(
        kept,
        base.dense(kept),
        partial(attend, closed, global_capacity),
        mark=mark,
        capacity=global_capacity,
        claims=frozenset({"padding_invariant"}),
    )


def mark(batch: dict[str, Array], tok: Tokens) -> Tokens:
    """`tok` with the first token of each document global; index and length count a document's real tokens only.

    Raises ValueError for a batch that names global tokens.
    """
    if "global_attention_mask" in batch:
        raise ValueError(
            "the batch has a global_attention_mask, and the relays of attention.star are the first tokens of documents; leave "
            'it out, or extend with attention={"name": "window", "global_tokens": "explicit"}'
        )
    real, place = tok.segment > 0, _places(tok)
    before, after = (_segment_at(tok, x) for x in (_last(real, place), _next(real, place)))
    relay = real & (tok.segment != before)
    tok = tok._replace(is_global=relay)
    masked = ~real & (before == after) & (before > 0)
    count = jnp.cumsum(real, axis=1, dtype=jnp.int32)
    first = _at(count, jnp.maximum(_start(tok), 0))
    last = _at(count, _end(tok) - 1)
    length = jnp.where(real, last - first + 1, tok.length)
    return tok._replace(index=tok.index - jnp.cumsum(masked, axis=1, dtype=jnp.int32), length=length)


def mask(closed: bool, q_tok: Tokens, k_tok: Tokens, layer: Array, total: int) -> Array:
    """Neighbours on the ring, and every pair with a relay: bool[B, 1, T, S].

    A document has one relay, before all others: of its satellites only the first and the last are length − 2 places apart.
    """
    q, k = (x.index for x in (q_tok, k_tok))
    distance = jnp.abs(k[:, None, None, :] - q[:, None, :, None])
    near = distance <= 1
    if closed:
        near |= distance == q_tok.length[:, None, :, None] - 2
    return near | k_tok.is_global[:, None, None, :] | q_tok.is_global[:, None, :, None]


def attend(closed: bool, capacity: int, params: dict, call: Call) -> Array:
    """Satellites with their three keys of the ring and the relays in one softmax, then the rows of relays over all keys."""
    if call.q_tok.index.shape != call.k_tok.index.shape:
        raise ValueError(
            f"{METHOD} is for self-attention, not {call.q_tok.index.shape} queries on {call.k_tok.index.shape} keys"
        )
    tok, heads = call.k_tok, slice(0, call.q_BTNH.shape[2])
    q, k, v = call.position.rotate(call.q_BTNH, call.k_BSNH, call.v_BSNH, call.q_tok, tok)
    q = q * jnp.asarray(call.scale, q.dtype)
    at = global_attention.slots(tok, capacity)
    rows = Keys(k.swapaxes(1, 2), v.swapaxes(1, 2), tok, jnp.ones((), bool))
    q_BNGH, number = global_attention.take(q, at).swapaxes(1, 2), global_attention.BLOCK
    rows_BGNH = base.attend_to([rows], q_BNGH, at.tok, call.position, call.dropout, heads, number).swapaxes(1, 2)
    return global_attention.put(_satellites(_ring(closed, tok), at, call, q, k, v), rows_BGNH, at, tok)


def _satellites(ring: Ring, at: global_attention.Slots, call: Call, q_BTNH: Array, k_BTNH: Array, v_BTNH: Array) -> Array:
    """[B, T, N, H]; rows of relays and of padding are of no meaning."""
    b, t, n, h = q_BTNH.shape
    tok, position, heads = call.k_tok, call.position, slice(0, n)
    ways = ((ring.left, ring.right), (ring.right, ring.left))
    ks, vs = ([x, *(_moved(x, *way) for way in ways)] for x in (k_BTNH, v_BTNH))
    # To the hooks of positions each query is a row of its own, with three keys.
    near_tok = Tokens(*(jnp.stack([x, _at(x, ring.left), _at(x, ring.right)], axis=-1).reshape(b * t, 3) for x in tok))
    own_tok = Tokens(*(x.reshape(b * t, 1) for x in tok))

    near_BNT3 = jnp.stack([_product(q_BTNH, x).swapaxes(1, 2) for x in ks], axis=-1)
    extra = position.logits(q_BTNH.reshape(b * t, 1, n, h), own_tok, near_tok, heads)
    if extra is not None:
        near_BNT3 += jnp.broadcast_to(extra, (b * t, n, 1, 3)).reshape(b, t, n, 3).swapaxes(1, 2)
    far_k, far_v = (global_attention.take(x, at) for x in (k_BTNH, v_BTNH))
    far_BNTG = jnp.einsum("btnh,bgnh->bntg", q_BTNH, far_k, preferred_element_type=jnp.float32)
    extra = position.logits(q_BTNH, tok, at.tok, heads)
    far_BNTG = far_BNTG if extra is None else far_BNTG + extra
    keep = jnp.concatenate([ring.keep[:, None], base.same_segment(tok, at.tok)], axis=-1)
    weights = base.masked_softmax(jnp.concatenate([near_BNT3, far_BNTG], axis=-1), keep)
    weights = call.dropout(weights, 0).astype(v_BTNH.dtype)

    near_BNT3, far_BNTG = weights[..., :3], weights[..., 3:]
    near_BTN3 = near_BNT3.swapaxes(1, 2)
    out_BTNH = jnp.einsum("bntg,bgnh->btnh", far_BNTG, far_v)
    for i, x in enumerate(vs):
        out_BTNH += _scaled(near_BTN3[..., i], x)
    near = position.values(near_BTN3.reshape(b * t, n, 1, 3), own_tok, near_tok, heads)
    far = position.values(far_BNTG, tok, at.tok, heads)
    if near is not None and far is not None:
        out_BTNH += near.reshape(b, t, n, h) + far
    return out_BTNH.astype(v_BTNH.dtype)


@jax.custom_vjp
def _product(a: Array, b: Array) -> Array:
    """Σ_h a_h b_h in float32."""
    return base.row_sums(a.astype(jnp.float32) * b)


_product.defvjp(
    lambda a, b: (_product(a, b), (a, b)),
    lambda ab, g: ((g[..., None] * ab[1]).astype(ab[0].dtype), (g[..., None] * ab[0]).astype(ab[1].dtype)),
)


@jax.custom_vjp
def _scaled(w: Array, v: Array) -> Array:
    """w v, w one number for each vector."""
    return w[..., None] * v


_scaled.defvjp(
    lambda w, v: (_scaled(w, v), (w, v)),
    lambda wv, g: (base.row_sums(g.astype(jnp.float32) * wv[1]).astype(wv[0].dtype), wv[0][..., None] * g),
)


@jax.custom_vjp
def _moved(x_BTNH: Array, there: Array, back: Array) -> Array:
    """x[there]; `back` is the inverse of `there`, so that the gradient is a gather too."""
    return jnp.take_along_axis(x_BTNH, there[:, :, None, None], axis=1, mode="promise_in_bounds")


_moved.defvjp(
    lambda x, there, back: (_moved(x, there, back), (there, back)),
    lambda ways, g: (_moved(g, ways[1], ways[0]), None, None),
)


def _ring(closed: bool, tok: Tokens) -> Ring:
    place, satellite = _places(tok), (tok.segment > 0) & ~tok.is_global
    start, end = _start(tok), _end(tok)
    before, after = _last(satellite, place), _next(satellite, place)
    has_left, has_right = before > start, after < end
    left = jnp.where(has_left, before, _at(jnp.maximum(before, jnp.where(satellite, place, -1)), end - 1))
    right = jnp.where(has_right, after, _at(after, jnp.maximum(start, 0)))
    left, right = (jnp.where(satellite, x, place) for x in (left, right))
    keep_right = (right != place) & (closed | has_right)
    keep_left = (left != place) & (closed | has_left) & ~(keep_right & (left == right))
    return Ring(left, right, jnp.stack([tok.segment > 0, keep_left, keep_right], axis=-1))


def _places(tok: Tokens) -> Array:
    return jnp.broadcast_to(jnp.arange(tok.segment.shape[1], dtype=jnp.int32), tok.segment.shape)


def _last(which: Array, place: Array) -> Array:
    """The nearest place before each one where `which` holds, −1 where there is none."""
    found = jax.lax.cummax(jnp.where(which, place, -1), axis=1)
    return jnp.pad(found, ((0, 0), (1, 0)), constant_values=-1)[:, :-1]


def _next(which: Array, place: Array) -> Array:
    """The nearest place after each one where `which` holds, T where there is none."""
    count = which.shape[1]
    found = jax.lax.cummin(jnp.where(which, place, count), axis=1, reverse=True)
    return jnp.pad(found, ((0, 0), (0, 1)), constant_values=count)[:, 1:]


def _start(tok: Tokens) -> Array:
    """The place of the relay of each token's document."""
    return jax.lax.cummax(jnp.where(tok.is_global, _places(tok), -1), axis=1)


def _end(tok: Tokens) -> Array:
    """The place of the next document's relay, T where there is none."""
    return _next(tok.is_global, _places(tok))


def _at(x_BT: Array, place: Array) -> Array:
    return jnp.take_along_axis(x_BT, place, axis=1, mode="clip")


def _segment_at(tok: Tokens, place: Array) -> Array:
    """The segment there; 0 outside of the array."""
    return jnp.where((place >= 0) & (place < place.shape[1]), _at(tok.segment, place), 0)
