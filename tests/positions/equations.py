"""The attention of each method for one sequence, in numpy, float64, from the papers' equations: what lpe is held to. No lpe.

All take q, k, v [T, N, H] (projected, not rotated, not scaled) and positions int [T] of queries and keys alike, any integers.
They return [T, N, H]. Keys: all T, or with `causal` those at an index up to the query's. `scale` is 1/√H unless given.
"""

from fractions import Fraction

import numpy as np


def attend(logits, v, causal=False):
    """softmax(logits [N, T, S]) v [S, N, H] or, one value per pair, v [T, S, N, H]."""
    N, T, S = logits.shape
    out = np.zeros((T, N, v.shape[-1]))
    for h in range(N):
        for i in range(T):
            seen = i + 1 if causal else S
            e = np.exp(logits[h, i, :seen] - logits[h, i, :seen].max())
            values = v[:seen, h] if v.ndim == 3 else v[i, :seen, h]
            out[i, h] = (e / e.sum()) @ values
    return out


def dots(q, k):
    """q_i · k_j: [N, T, S]."""
    return np.einsum("inh,jnh->nij", q, k)


def root(q, scale):
    return 1 / np.sqrt(q.shape[-1]) if scale is None else scale


def key_minus_query(positions):
    """[T, S]"""
    return positions[None, :] - positions[:, None]


def plain(q, k, v, positions=None, causal=False, scale=None):
    """arXiv 1706.03762, eq. 1."""
    return attend(dots(q, k) * root(q, scale), v, causal)


def sinusoidal(positions, D, base=10000.0):
    """[T, D], arXiv 1706.03762 §3.5: (2k) sin(pos · base^(−2k/D)), (2k+1) cos."""
    out = np.zeros((len(positions), D))
    for t, position in enumerate(positions):
        for k in range(D // 2):
            angle = position * base ** (-2 * k / D)
            out[t, 2 * k], out[t, 2 * k + 1] = np.sin(angle), np.cos(angle)
    return out


def pairs(rotary_dim, layout):
    """The two dimensions of each plane: (k, k + d/2), or (2k, 2k + 1)."""
    half = rotary_dim // 2
    return {"half": [(k, k + half) for k in range(half)], "interleaved": [(2 * k, 2 * k + 1) for k in range(half)]}[layout]


def rotated(x, positions, inv_freq, layout, factor=1.0):
    """arXiv 2104.09864 eqs. 14, 15, by complex numbers: plane k of x_t turns by positions_t · inv_freq_k. The rest passes."""
    out = x.copy()
    for k, (a, b) in enumerate(pairs(2 * len(inv_freq), layout)):
        turned = (x[..., a] + 1j * x[..., b]) * factor * np.exp(1j * positions * inv_freq[k])[:, None]
        out[..., a], out[..., b] = turned.real, turned.imag
    return out


def rope(
    q,
    k,
    v,
    positions,
    theta=10000.0,
    layout="half",
    rotary_dim=None,
    inv_freq=None,
    attention_factor=1.0,
    rotary_value=False,
    causal=False,
    scale=None,
):
    """arXiv 2104.09864 eq. 16. attention_factor multiplies cos and sin (YaRN), rotary_value turns v too, as q and k."""
    d = rotary_dim or q.shape[-1]
    inv_freq = [theta ** (-2 * i / d) for i in range(d // 2)] if inv_freq is None else inv_freq
    q, k = (rotated(x, positions, inv_freq, layout, attention_factor) for x in (q, k))
    v = rotated(v, positions, inv_freq, layout, attention_factor) if rotary_value else v
    return plain(q, k, v, causal=causal, scale=scale)


def xpos(q, k, v, positions, theta=10000.0, layout="half", scale_base=512, causal=True, scale=None):
    """arXiv 2212.10554, algorithm 1, γ = 0.4: plane i of q times ζ_i^(p / scale_base), of k times its inverse."""
    d = q.shape[-1]
    q, k = (rotated(x, positions, [theta ** (-2 * i / d) for i in range(d // 2)], layout) for x in (q, k))
    for i, plane in enumerate(pairs(d, layout)):
        zeta = (2 * i / d + 0.4) / 1.4
        for dimension in plane:
            q[..., dimension] *= zeta ** (positions / scale_base)[:, None]
            k[..., dimension] *= zeta ** (-positions / scale_base)[:, None]
    return plain(q, k, v, causal=causal, scale=scale)


def logn(q, k, v, positions, n, length=None, causal=False, scale=None):
    """kexue.fm/archives/8823: q times log_n(length), at least 1; length is `length`, or causally the query's position + 1."""
    q = q.copy()
    for t, position in enumerate(positions):
        seen = position + 1 if causal else length
        q[t] *= np.log(seen) / np.log(n) if seen > n else 1.0
    return plain(q, k, v, causal=causal, scale=scale)


def shaw(q, k, v, positions, key_table, value_table=None, clip=None, causal=False, scale=None):
    """arXiv 1803.02155 eqs. 3, 4, 5: a_ij = table[clip(j − i, ±clip) + clip], added to the keys and to the values."""
    rows = np.clip(key_minus_query(positions), -clip, clip) + clip
    logits = (dots(q, k) + np.einsum("inh,ijh->nij", q, key_table[rows])) * root(q, scale)
    values = v[None] + (0 if value_table is None else value_table[rows][:, :, None])
    return attend(logits, np.broadcast_to(values, (len(q), *v.shape)), causal)


def nezha(q, k, v, positions, max_relative_position=64, causal=False, scale=None):
    """arXiv 1909.00204, functional relative encoding: Shaw's two places with one fixed table. Its row r is the sinusoid of r
    (0 … 2·max), as transformers has it; the paper prints that of j − i."""
    table = sinusoidal(range(2 * max_relative_position + 1), q.shape[-1])
    return shaw(q, k, v, positions, table, table, max_relative_position, causal, scale)


def t5_bucket(relative, num_buckets=32, max_distance=128):
    """arXiv 1910.10683 §2.1, bidirectional; relative = key − query.

    Half of the buckets are for keys after the query. Of each half, the first half hold one distance each, the rest ranges that
    grow logarithmically up to max_distance, the last one all beyond. In fractions: no rounding at the bounds.
    """
    half = num_buckets // 2
    exact, distance = half // 2, abs(relative)
    bucket = distance
    if distance >= exact:
        steps = half - exact
        above = Fraction(distance, exact) ** steps
        bucket = exact + max(m for m in range(steps) if above >= Fraction(max_distance, exact) ** m)
    return bucket + (half if relative > 0 else 0)


def t5(q, k, v, positions, table, num_buckets=32, max_distance=128, causal=False, scale=None):
    """arXiv 1910.10683 §2.1: table[bucket, head] is added to the scaled logits. T5 itself has scale=1."""
    logits = dots(q, k) * root(q, scale)
    for i, query in enumerate(positions):
        for j, key in enumerate(positions):
            logits[:, i, j] += table[t5_bucket(int(key - query), num_buckets, max_distance)]
    return attend(logits, v, causal)


def transformer_xl(q, k, v, positions, u, v_bias, w_r, causal=False, scale=None):
    """arXiv 1901.02860 §3.3, the four terms (a)-(d), scaled after the sum. u, v_bias [N, H]; w_r [D, N, H].

    R_(i−j) = [sin, cos] of (query − key) · 10000^(−2k/D), sines first as in the authors' code. Negative distances: the same.
    """
    D = w_r.shape[0]
    logits = dots(q, k) + dots(u[None], k)  # (a) content, (c) global content
    for i, query in enumerate(positions):
        for j, key in enumerate(positions):
            angles = [(query - key) * 10000.0 ** (-2 * m / D) for m in range(D // 2)]
            r = np.einsum("d,dnh->nh", np.concatenate([np.sin(angles), np.cos(angles)]), w_r)
            logits[:, i, j] += np.sum((q[i] + v_bias) * r, axis=-1)  # (b) position by content, (d) global position
    return attend(logits * root(q, scale), v, causal)


def alibi_slopes(N):
    """arXiv 2108.12409 §3: 2^(−8h/N), h = 1 … N. N no power of two: those of the power P below, then every other of 2P's (the
    authors' code)."""
    P = 2 ** (N.bit_length() - 1)
    slopes = [2 ** (-8 * h / P) for h in range(1, P + 1)]
    if P < N:
        slopes += [2 ** (-8 * h / (2 * P)) for h in range(1, 2 * P + 1)][::2][: N - P]
    return np.array(slopes)


def alibi(q, k, v, positions, slopes=None, causal=False, scale=None):
    """arXiv 2108.12409 §3: −slope_h · |i − j| is added to the scaled logits."""
    slopes = alibi_slopes(q.shape[1]) if slopes is None else np.asarray(slopes)
    bias = -slopes[:, None, None] * np.abs(key_minus_query(positions))
    return attend(dots(q, k) * root(q, scale) + bias, v, causal)
