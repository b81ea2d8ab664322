"""Textbook forms of the table methods in numpy, float64: what lpe is held to. Written from the formulas; imports no lpe.

All take P[n, D] without reserved rows and return the table of m positions.
"""

import numpy as np
from scipy.interpolate import interp1d
from scipy.ndimage import gaussian_filter1d


def hierarchical(P, m, alpha=0.4):
    """q[i·n + j] = α u_i + (1 − α) u_j, u_i = (p_i − α p_0) / (1 − α): the author's own equations (1) and (3)."""
    n = len(P)
    u = (P - alpha * P[0]) / (1 - alpha)
    return np.stack([alpha * u[k // n] + (1 - alpha) * u[k % n] for k in range(m)])


def hierarchical_variant(P, m, alpha=0.4, reference_row=0, pin_rows=0):
    """The two variants: another row to measure blocks from, and first rows that do not recur."""
    n, r, c = len(P), reference_row, pin_rows
    q = [P[k] for k in range(min(n, m))]
    for t in range(m - n):
        i, j = 1 + t // (n - c), c + t % (n - c)
        q.append(P[j] + alpha / (1 - alpha) * (P[r + i] - P[r]))
    return np.stack(q)


def hierarchical_naive(P, m, alpha=0.4):
    n = len(P)
    return np.stack([alpha * P[k // n] + (1 - alpha) * P[k % n] for k in range(m)])


def copy(P, m, pin_rows=0):
    q = list(P)
    while len(q) < m:
        q.extend(P[pin_rows:])
    return np.stack(q[:m])


def grouped(P, m):
    """The largest i with i ≤ k / s, s = m / n."""
    n = len(P)
    return np.stack([P[max(i for i in range(n) if i * m <= k * n)] for k in range(m)])


def interpolate(P, m, kind="linear", align="endpoint", low_pass=0.0, periodic_after=None, pin_rows=0):
    """scipy's interp1d and gaussian_filter1d on the rows that move; then the periodic continuation."""
    m0 = periodic_after or m
    c, moving = pin_rows, P[pin_rows:]
    n, k = len(moving), np.arange(m0 - c)
    t = np.linspace(0, n - 1, m0 - c) if align == "endpoint" else np.minimum(k * n / (m0 - c), n - 1)
    q = interp1d(np.arange(n), moving, kind=kind, axis=0)(t)
    if low_pass:
        q = gaussian_filter1d(q, low_pass, axis=0, mode="nearest", truncate=4.0)
    return copy(np.concatenate([P[:c], q]), m, c)[:m]


def preserve_short(P, m):
    """The stretched table that long sequences read."""
    n = len(P)
    s = int(np.ceil(m / n))
    q = []
    for k in range(m):
        i, j = divmod(k, s)
        last = P[n - 1]
        q.append(last if i >= n - 1 else (1 - j / s) * P[i] + j / s * P[i + 1])
    return np.stack(q)
