"""What a position table looks like before it is extended: row norms, outliers, and which rows were ever trained.

A row that no input reached in training is still a draw from the initialiser N(0, σ²I): its norm is about σ√D (with a spread
of 1/√(2D) of that), and it is orthogonal to its neighbours (cosines spread by 1/√D). Trained rows differ in at least one:
they have grown, or neighbours have become alike. The last rows for which neither shows are called untrained. Weight decay
shrinks such rows and keeps them orthogonal, so norms down to about a quarter of σ√D are accepted, and rows of zeros.
"""

from typing import NamedTuple

import numpy as np

TOLERANCE = 5.0  # standard deviations; 1 draw in 2 million is outside
SHRUNK = 0.25  # of the initialiser's norm, by weight decay
OUTLIER = 2.0  # times the median norm of the trained rows, or less than 1 / 2.0 of it


class TableReport(NamedTuple):
    """Positions are counted from 0, reserved rows left out.

    norms: f64[positions], Euclidean norm of each row.
    median: of the norms of the trained rows; of all rows when none is trained.
    outliers: (position, norm) of the trained rows far from the median.
    trained: rows 0 … trained − 1 were trained; those after look as the initialiser left them.
    expected: norm of a row that the initialiser draws, σ√D.
    """

    positions: int
    hidden_size: int
    reserved_rows: int
    norms: np.ndarray
    median: float
    outliers: tuple[tuple[int, float], ...]
    trained: int
    expected: float

    def __str__(self) -> str:
        kept = f" after {self.reserved_rows} reserved" if self.reserved_rows else ""
        used = self.norms[: self.trained or None]
        shown = ", ".join(f"row {k} {norm:.2f}" for k, norm in self.outliers[:8])
        more = f" and {len(self.outliers) - 8} more" if len(self.outliers) > 8 else ""
        if self.trained == self.positions:
            trained = "all rows"
        elif self.trained == 0:
            trained = "no row; all are at initialiser statistics"
        else:
            trained = (
                f"rows 0 to {self.trained - 1}; the {self.positions - self.trained} after are at initialiser statistics: "
                f"extend with trained_rows={self.trained}"
            )
        return "\n".join(
            [
                f"position table: {self.positions} rows of {self.hidden_size}{kept}",
                f"trained:        {trained}",
                f"row norms:      median {self.median:.3f}, {used.min():.3f} to {used.max():.3f}; "
                f"the initialiser's {self.expected:.3f}",
                f"outliers:       {shown + more or 'none'} (more than {OUTLIER:g} times the median, or less than half of it)",
            ]
        )


def table_report(table, reserved_rows: int = 0, initializer_range: float = 0.02) -> TableReport:
    """Row norms, outliers and trained range of a position table.

    Args:
      table: [reserved_rows + n, D], any float dtype, as the checkpoint holds it.
      reserved_rows: rows before position 0 (RoBERTa 2, BERT 0).
      initializer_range: σ of the config; the trained range rests on it.

    Raises:
      ValueError: not a table of finite numbers with at least one position; a σ that is not positive.
    """
    p_nD = np.asarray(table).astype(np.float64)
    if p_nD.ndim != 2 or not 0 <= reserved_rows < p_nD.shape[0]:
        raise ValueError(f"table_report: a table [reserved_rows + n, D] is needed, not {p_nD.shape} with {reserved_rows=}")
    if not initializer_range > 0:
        raise ValueError(f"table_report: {initializer_range=}, allowed are numbers above 0; BERT's is 0.02")
    p_nD = p_nD[reserved_rows:]
    if not np.isfinite(p_nD).all():
        bad = int(np.flatnonzero(~np.isfinite(p_nD).all(axis=1))[0])
        raise ValueError(f"table_report: the row of position {bad} is not finite; the checkpoint is damaged")
    n, d = p_nD.shape
    norms = np.linalg.norm(p_nD, axis=1)
    expected = initializer_range * d**0.5
    trained = _trained(p_nD, norms, expected)
    used = norms[: trained or None]
    median = float(np.median(used))
    far = np.flatnonzero((used > OUTLIER * median) | (used < median / OUTLIER))
    outliers = tuple((int(k), float(norms[k])) for k in far)
    return TableReport(n, d, reserved_rows, norms, median, outliers, trained, expected)


def _trained(p_nD: np.ndarray, norms: np.ndarray, expected: float) -> int:
    """The number of rows up to the last that does not look like a draw from the initialiser."""
    d = p_nD.shape[1]
    unit_nD = p_nD / np.where(norms > 0, norms, 1.0)[:, None]
    cosine = np.abs((unit_nD[1:] * unit_nD[:-1]).sum(axis=1))
    nearest = np.maximum(np.append(cosine, 0.0), np.insert(cosine, 0, 0.0))
    grown = norms > expected * (1.0 + TOLERANCE / (2 * d) ** 0.5)
    shrunk = (norms > 0) & (norms < expected * (SHRUNK - 1.0 / (2 * d) ** 0.5))
    changed = np.flatnonzero(grown | shrunk | (nearest > TOLERANCE / d**0.5))
    return int(changed[-1]) + 1 if len(changed) else 0
