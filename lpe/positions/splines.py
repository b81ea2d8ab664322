"""Interpolation along a table as a fixed linear map of its rows.

The curve through p_0 … p_{n−1} (degree 1, 2, 3; scipy.interpolate.interp1d's linear, quadratic, cubic) is, at any place, a few
B-splines times coefficients, and these are a fixed n × n matrix times P. So the long table is a banded matrix behind a square
one, and needs neither to be built nor to be stored.
"""

from typing import NamedTuple

import numpy as np
from scipy import interpolate, sparse


class Operator(NamedTuple):
    """q[k] = Σ_i weights[k, i] · (coefficients @ P)[start[k] + i]."""

    start: np.ndarray  # i32[m]
    weights: np.ndarray  # f32[m, K], K = degree + 1 without a low-pass filter
    coefficients: np.ndarray | None  # f32[n, n]; None = identity


def abscissae(n: int, m: int, align: str) -> tuple[np.ndarray, np.ndarray]:
    """Where on the trained rows the new rows lie: whole and broken part of t for k = 0 … m − 1, exact where t is whole.

    align="endpoint": t = k (n−1)/(m−1). align="pi": t = k n/m, the tail clamped at n − 1.
    """
    k = np.arange(m, dtype=np.int64)
    up, down = (k * (n - 1), max(m - 1, 1)) if align == "endpoint" else (k * n, m)
    inside = up < (n - 1) * down
    return np.where(inside, up // down, n - 1), np.where(inside, up % down / down, 0.0)


def operator(n: int, m: int, degree: int, align: str, low_pass: float, pinned: int) -> Operator:
    """The map of n rows to m whose first `pinned` rows stay, computed in float64."""
    n, m = n - pinned, m - pinned
    curve = interpolate.make_interp_spline(np.arange(n), np.eye(n), k=degree)
    band = interpolate.BSpline.design_matrix(np.add(*abscissae(n, m, align)), curve.t, degree)
    if low_pass > 0:
        band = _gaussian(m, low_pass) @ band
    coefficients = curve.c
    if pinned:
        band = sparse.block_diag([sparse.eye_array(pinned), band])
        coefficients = sparse.block_diag([sparse.eye_array(pinned), curve.c]).toarray()
    start, weights = _packed(sparse.coo_array(band), pinned + m, pinned + n)
    return Operator(start, weights, None if degree == 1 else coefficients.astype(np.float32))


def _gaussian(m: int, sigma: float) -> sparse.csr_array:
    """A Gaussian along m rows, truncated at 4σ, edges repeated."""
    radius = int(4.0 * sigma + 0.5)
    offset = np.arange(-radius, radius + 1)
    weight = np.exp(-0.5 * np.square(offset / sigma))
    row = np.repeat(np.arange(m), len(offset))
    column = np.clip(np.arange(m)[:, None] + offset, 0, m - 1).ravel()
    return sparse.coo_array((np.tile(weight / weight.sum(), m), (row, column)), shape=(m, m)).tocsr()


def _packed(band: sparse.coo_array, m: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """First column and weights of each row of a banded matrix [m, n]."""
    row, column = band.row, band.col
    start, stop = np.full(m, n), np.zeros(m, int)
    np.minimum.at(start, row, column)
    np.maximum.at(stop, row, column + 1)
    width = int((stop - start).max())
    start = np.minimum(start, n - width)
    weights = np.zeros((m, width))
    np.add.at(weights, (row, column - start[row]), band.data)
    return start.astype(np.int32), weights.astype(np.float32)
