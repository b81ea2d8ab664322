"""Linear attention: a product of features instead of a softmax (Katharopoulos et al. 2020, arXiv 2006.16236, §3.2, eqs. 4-7).

out_t = Σ_s φ(q_t)·φ(k_s) v_s / Σ_s φ(q_t)·φ(k_s), φ(x) = elu(x) + 1, over the keys of the query's document; causal, over
those up to its own place (eqs. 8-12). Since the sums over s do not depend on t, time and memory grow with the length.

Rotary positions (RoFormer, arXiv 2104.09864, §3.3, eq. 19): features are turned after φ, in the numerator only. The weights of
a query then no longer sum to 1, and may be negative; the denominator stays positive. The hook does to features what it does to
queries and keys elsewhere, so three methods mean something else than with a softmax:
- What also scales, as the attention_factor of YaRN and LongRoPE, and the queries' factor of logn, sharpens no weights here: it
  multiplies the output by that factor. Leave logn out.
- xPos scales features by their distance: the weights in the numerator decay, and the output with them.
- rotary_value turns the values by their own place, as with a softmax, and nothing turns the sum back.

The weights' attention_scale (1/√H) belongs to the product of query and key. Here this product is the weight itself, and a
factor of all weights cancels in the quotient; the paper has none either. So it is not applied: before φ it would be another
function.

There are no attention weights to drop: attention_probs_dropout_prob has no effect, in the fast path and in the reference.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

from lpe.attention import base, full
from lpe.attention.base import Call
from lpe.positions import checks

METHOD = "attention.linear"
NEEDS_TRAINING = True  # no published checkpoint has it, and one trained with dense attention does not become one without
BLOCK = (128, 256)  # the size of chunks, and the longest input that is one chunk, which is then no more work


def make(cfg, *, causal: bool = False) -> base.AttentionPattern:
    """Attention with φ(x) = elu(x) + 1, in linear time.

    Args:
      cfg: the model's config.
      causal: a query sees the keys up to its own place only.

    Raises:
      ValueError: a causal that is neither True nor False.
    """
    checks.one_of(METHOD, "causal", causal, (False, True))
    kept, claims = (full.causal_mask, {"causal"}) if causal else (full.mask, set())
    return base.AttentionPattern(
        kept,
        partial(reference, kept),
        partial(attend, causal),
        hooks=frozenset({"rotate"}),
        claims=frozenset({"padding_invariant", *claims}),
    )


def feature(x: Array) -> Array:
    """φ(x) = elu(x) + 1, positive: x + 1 above 0, else exp(x). Computed in float32, returned in the dtype of x."""
    x32 = x.astype(jnp.float32)
    return jnp.where(x32 > 0, x32 + 1, jnp.exp(jnp.where(x32 > 0, 0, x32))).astype(x.dtype)


def reference(kept: Callable, params: dict, call: Call) -> Array:
    """Dense, over every pair: [B, T, N, H]. A query with no key gives 0, in value and gradient."""
    qf_BTNH, kf_BSNH = feature(call.q_BTNH), feature(call.k_BSNH)
    q, k, v = call.position.rotate(qf_BTNH, kf_BSNH, call.v_BSNH, call.q_tok, call.k_tok)
    keep = kept(call.q_tok, call.k_tok, call.layer, call.k_tok.index.shape[1]) & base.same_segment(call.q_tok, call.k_tok)
    turned, plain = (
        jnp.where(keep, jnp.einsum("btnh,bsnh->bnts", *pair, preferred_element_type=jnp.float32), 0)
        for pair in ((q, k), (qf_BTNH, kf_BSNH))
    )
    sums_BTNH = jnp.einsum("bnts,bsnh->btnh", turned.astype(v.dtype), v, preferred_element_type=jnp.float32)
    return _quotient(sums_BTNH, plain.sum(axis=-1).swapaxes(1, 2)).astype(v.dtype)


@jax.custom_vjp
def _quotient(sums: Array, total: Array) -> Array:
    """sums / total[..., None], 0 where total is 0. XLA's own gradient divides by the square of total, which underflows."""
    return sums / jnp.where(total > 0, total, 1.0)[..., None]


def _quotient_forward(sums: Array, total: Array):
    out = _quotient(sums, total)
    return out, (out, total)


def _quotient_backward(kept: tuple[Array, Array], g: Array):
    out, total = kept
    by_sums = jnp.where(total > 0, 1.0 / jnp.where(total > 0, total, 1.0), 0.0)[..., None] * g
    return by_sums, -base.row_sums(by_sums * out)


_quotient.defvjp(_quotient_forward, _quotient_backward)


def attend(causal: bool, params: dict, call: Call) -> Array:
    """Chunk by chunk, all at once; only the sums of whole chunks are carried from one to the next.

    A query meets the keys of its own chunk one by one, those before and after it as the sums Σ φ(k)⊗v and Σ φ(k). Documents
    are each in one piece (masked tokens may stand within), so that one document at most reaches into a chunk from each side:
    these sums are of one document each, begin anew with another one, and count for its queries only.
    """
    if call.q_tok.index.shape != call.k_tok.index.shape:
        raise ValueError(
            f"{METHOD} is for self-attention, not {call.q_tok.index.shape} queries on {call.k_tok.index.shape} keys"
        )
    length = call.q_BTNH.shape[1]
    size = length if length <= BLOCK[1] else BLOCK[0]
    qf, kf = feature(call.q_BTNH), feature(call.k_BSNH)
    q, k, v = call.position.rotate(qf, kf, call.v_BSNH, call.q_tok, call.k_tok)
    q, k, v = (_chunks(x, size) for x in (q, k, v))
    qf, kf = (_chunks(x, size) for x in (qf, kf)) if call.position.rotates else (q, k)
    segment_BMC = _chunks(call.q_tok.segment, size)
    # Made anew in the backward pass: the scores of a chunk are more numbers than its queries.
    near = jax.checkpoint(partial(_near, causal, call.position.rotates), prevent_cse=False)
    sums_BNMCH, total_BNMC = near(q, qf, k, kf, v, segment_BMC)
    for after in () if length == size else (False,) if causal else (False, True):
        far_sums, far_total = _from_one_side(after, q, qf, k, kf, v, segment_BMC)
        sums_BNMCH, total_BNMC = sums_BNMCH + far_sums, total_BNMC + far_total
    out = _quotient(sums_BNMCH, total_BNMC).astype(v.dtype)
    return out.reshape(*out.shape[:2], -1, out.shape[-1])[:, :, :length].swapaxes(1, 2)


def _chunks(x: Array, size: int) -> Array:
    """[B, T, N, H] as [B, N, chunks M, size C, H], [B, T] as [B, M, C]; filled up with padding."""
    x = jnp.pad(x, [(0, -x.shape[1] % size if axis == 1 else 0) for axis in range(x.ndim)])
    x = x.swapaxes(1, 2) if x.ndim == 4 else x
    return x.reshape(*x.shape[: x.ndim - (2 if x.ndim == 4 else 1)], -1, size, *x.shape[3:])


def _near(causal: bool, rotates: bool, q, qf, k, kf, v, segment_BMC: Array) -> tuple[Array, Array]:
    """What the keys of its own chunk give to numerator [B, N, M, C, H] and denominator [B, N, M, C] of each query."""
    keep = (segment_BMC[..., :, None] == segment_BMC[..., None, :]) & (segment_BMC[..., None] > 0)
    keep = (keep & jnp.tri(keep.shape[-1], dtype=bool) if causal else keep)[:, None]
    turned = jnp.where(keep, base._scores(q, k), 0)
    plain = jnp.where(keep, base._scores(qf, kf), 0) if rotates else turned
    return base._sums(turned.astype(v.dtype), v), base.row_sums(plain)


def _from_one_side(after: bool, q, qf, k, kf, v, segment_BMC: Array) -> tuple[Array, Array]:
    """What the chunks before each chunk, or after it, give to numerator [B, N, M, C, H] and denominator [B, N, M, C]."""
    edge_BM1 = _edge(segment_BMC, first=after)
    mine = ((segment_BMC == edge_BM1) & (segment_BMC > 0))[:, None, :, :, None]
    k, kf = jnp.where(mine, k, 0), jnp.where(mine, kf, 0)
    sums_BNMHH = jnp.einsum("bnmch,bnmcg->bnmhg", k, v, preferred_element_type=jnp.float32)
    total_BNMH = kf.sum(axis=-2, dtype=jnp.float32)

    def step(carry, chunk):
        """The sums that come to a chunk, and those that leave it: with its own, and anew if it ends with another document."""
        document_B, sums, total = carry
        own_B, *own = chunk
        now_B = jnp.where(own_B > 0, own_B, document_B)
        same = (now_B == document_B)[:, None, None]
        leaving = (now_B, jnp.where(same[..., None], sums, 0) + own[0], jnp.where(same, total, 0) + own[1])
        return leaving, carry

    chunks = (edge_BM1[:, :, 0].T, jnp.moveaxis(sums_BNMHH, 2, 0), jnp.moveaxis(total_BNMH, 2, 0))
    start = jax.tree.map(lambda x: jnp.zeros_like(x[0]), chunks)
    document_MB, sums, total = jax.lax.scan(step, start, chunks, reverse=after)[1]
    sums, total = jnp.moveaxis(sums, 0, 2), jnp.moveaxis(total, 0, 2)
    mine = ((segment_BMC == document_MB.T[:, :, None]) & (segment_BMC > 0))[:, None]
    far = jnp.matmul(q, sums.astype(q.dtype), preferred_element_type=jnp.float32)
    far_total = jnp.matmul(qf.astype(jnp.float32), total[..., None], precision="highest")[..., 0]
    return jnp.where(mine[..., None], far, 0), jnp.where(mine, far_total, 0)


def _edge(segment_BMC: Array, first: bool) -> Array:
    """The document of the first or of the last real token of each chunk, [B, M, 1]; 0 where it has none."""
    place = jnp.arange(segment_BMC.shape[-1], dtype=jnp.int32)
    rank = jnp.where(segment_BMC > 0, -place if first else place, -segment_BMC.shape[-1])
    return jnp.take_along_axis(segment_BMC, jnp.argmax(rank, axis=-1, keepdims=True), axis=-1)
