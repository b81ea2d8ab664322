"""The report on a table: trained range on synthetic and on real tables, outliers, and the printed form."""

import numpy as np
import pytest

from lpe import positions
from lpe.positions import table_report


def fresh(rows: int, d: int, sigma: float = 0.02, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, sigma, (rows, d))


def smooth(rows: int, d: int, scale: float = 0.02) -> np.ndarray:
    """Trained rows as BERT has them: neighbours alike, norms like the initialiser's."""
    k, w = np.arange(rows)[:, None], 1 / 100 ** (np.arange(d) / d)
    return scale * 2**0.5 * np.sin(k * w + np.arange(d))


@pytest.mark.parametrize("d", [128, 512, 768])
@pytest.mark.parametrize("trained", [1, 100, 250, 256])
def test_trained_range(d, trained):
    table = np.concatenate([3 * smooth(trained, d), fresh(256 - trained, d)])
    assert table_report(table).trained == trained


def test_rows_that_only_became_alike_are_trained():
    assert table_report(np.concatenate([smooth(100, 256), fresh(28, 256)])).trained in (100, 101)  # 5σ from chance


@pytest.mark.parametrize("seed", range(20))
def test_a_fresh_table_is_untrained_whatever_its_size(seed):
    d = [8, 16, 64, 256][seed % 4]
    assert table_report(fresh(128, d, seed=seed)).trained == 0


def test_other_initialisers_and_shrunk_rows():
    truncated = np.clip(fresh(64, 512), -0.04, 0.04)
    rows = 2 * smooth(64, 512)
    for tail in (truncated, 0.4 * fresh(64, 512), np.zeros((64, 512))):
        assert table_report(np.concatenate([rows, tail])).trained == 64
    assert table_report(np.concatenate([rows, fresh(64, 512, 0.5)])).trained == 128
    assert table_report(np.concatenate([30 * rows, fresh(64, 512, 0.5)]), initializer_range=0.5).trained == 64


def test_reserved_rows_are_left_out_and_outliers_named():
    table = np.concatenate([np.full((2, 64), 9.0), smooth(100, 64)])
    table[2] *= 5
    report = table_report(table, reserved_rows=2)
    assert (report.positions, report.trained, report.norms.shape) == (100, 100, (100,))
    assert [k for k, _ in report.outliers] == [0]
    text = str(report)
    assert "position table: 100 rows of 64 after 2 reserved" in text and "all rows" in text and "outliers:       row 0 " in text


def test_printed_form():
    table = np.concatenate([3 * smooth(100, 64), fresh(28, 64)])
    table[:10] *= 4
    text = str(table_report(table))
    assert "rows 0 to 99; the 28 after are at initialiser statistics: extend with trained_rows=100" in text
    assert "row 7 " in text and "row 8 " not in text and "and 2 more" in text
    assert "no row; all are at initialiser statistics" in str(table_report(fresh(128, 64)))
    assert "outliers:       none" in str(table_report(smooth(128, 64)))


@pytest.mark.parametrize(
    "args, message",
    [
        ((np.zeros(4),), r"a table \[reserved_rows \+ n, D\] is needed, not \(4,\)"),
        ((np.zeros((4, 2)), 4), "with reserved_rows=4"),
        ((np.zeros((4, 2)), 0, 0.0), "initializer_range=0.0, allowed are numbers above 0"),
        ((np.array([[1.0], [np.nan]]),), "the row of position 1 is not finite"),
    ],
)
def test_errors(args, message):
    with pytest.raises(ValueError, match=message):
        table_report(*args)


def test_no_warning_without_an_extension_and_none_for_a_fresh_table():
    partly = np.concatenate([3 * smooth(100, 64), fresh(28, 64)]).astype(np.float32)
    positions.extend_table(partly, 128)
    positions.extend_table(fresh(128, 64).astype(np.float32), 256)
    with pytest.warns(UserWarning, match='rows 100 to 127 .*"trained_rows": 100'):
        positions.extend_table(partly, 129)
