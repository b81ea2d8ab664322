"""lpe's `interpolate` equals the PyPI package context-extension 0.1.3 (Apache-2.0), run on MiniLM by sentence-transformers.

It stretches by scipy's interp1d in float64, dimension by dimension, over linspace(0, n − 1, m), which is align="endpoint", with
scipy's not-a-knot ends; its `offset` first rows stay, as `reserved_rows` here. It runs unchanged on sentence-transformers 6.2.
"""

import sys
from importlib import import_module

import numpy as np
import pytest

import lpe
from lpe.positions import extend_table
from tests import assets, embeddings

WORDS = 1_500
pytestmark = pytest.mark.xdist_group("sentence-transformers")  # one process imports it


@pytest.fixture(scope="module")
def minilm():
    return lpe.from_pretrained(assets.path("minilm"))


@pytest.fixture(scope="module")
def peer():
    """Its function; imported here alone, since sentence-transformers takes seconds to import."""
    there = str(assets.path("context_extension").parent)
    sys.path.insert(0, there)
    try:
        module = import_module("context_extension.interpolate_embeddings")
    finally:
        sys.path.remove(there)

    def stretched(length: int, kind: str, offset: int = 0):
        return module.interpolate_embeddings(
            str(assets.path("minilm")), length, offset=offset, interpolation_type=kind, verbose=False
        )

    return stretched


@pytest.fixture(scope="module")
def long(peer):
    return peer(2048, "cubic")


def table_of(model) -> np.ndarray:
    return model[0].auto_model.embeddings.position_embeddings.weight.detach().numpy()


def difference(ours, theirs: np.ndarray) -> float:
    assert ours.shape == theirs.shape
    return float(np.abs(np.asarray(ours) - theirs).max())


@pytest.mark.parametrize(
    ("length", "kind", "offset"),
    [(600, "cubic", 0), (2048, "cubic", 0), (1300, "cubic", 2), (700, "linear", 0), (700, "quadratic", 0)],
)
def test_its_table_is_ours(length, kind, offset, peer, minilm, request):
    table = minilm.params["position"]["table"]
    theirs = table_of(request.getfixturevalue("long") if length == 2048 else peer(length, kind, offset))
    options = {"name": "interpolate", "kind": kind, "reserved_rows": offset}
    found = difference(extend_table(table, length, **options), theirs)
    print(f"parity context-extension: {kind}, {length} positions, {offset} reserved: {found:.1e}")
    assert found < 1e-6
    assert difference(extend_table(table, length, align="pi", **options), theirs) > 0.01


def test_its_model_embeds_a_long_text_as_ours(long, minilm):
    ours = minilm.extend(position={"name": "interpolate", "kind": "cubic", "max_length": 2048})
    text = embeddings.text(WORDS)
    assert len(ours.tokenizer(text)["input_ids"]) > WORDS
    assert long.max_seq_length == ours.max_length == 2048
    found = difference(embeddings.embed(ours, [text]), long.encode([text], show_progress_bar=False))
    print(f"parity context-extension: embedding of {WORDS} words: {found:.1e}")
    assert found < 1e-5
