"""What every attention pattern keeps, found by walking the package; no pattern is known by name here.

The test file of a pattern, test_<name>.py, lists VARIANTS: options that each reach another part of it.
"""

import importlib

import jax
import numpy as np
import pytest

from lpe import registry

from .common import CFG, N, compare, make, operands, run, segments, small_blocks, some_global, toks

NAMES = registry.names("attention")
TESTS = {name: importlib.import_module(f".test_{name}", __package__) for name in NAMES}
VARIANTS = [(name, kw) for name in NAMES for kw in TESTS[name].VARIANTS]
CLAIMS = {"padding_invariant", "causal", "length_dependent"}


def test_defaults_suffice():
    for name in NAMES:
        pattern = make({"name": name})
        assert pattern.attend is not None and pattern.claims <= CLAIMS


@pytest.mark.parametrize("blocks", ["small", "real"])
@pytest.mark.parametrize("name, kw", VARIANTS)
def test_the_fast_path_equals_the_reference_in_value_and_gradient(name, kw, blocks, monkeypatch):
    """In each layer, whose number is traced: padding on both sides, holes, a row of padding, mates of other lengths, packed."""
    if blocks == "small":
        small_blocks(monkeypatch)
    pattern = make({"name": name, **kw})
    for length in (7, 65) if blocks == "small" else (1, 150):
        segment = segments(length)
        for out in compare(pattern, operands(pattern, segment.shape, length), toks(segment, pattern)):
            assert (out[segment == 0] == 0).all()
            assert np.abs(out[segment > 0]).max() > 0.1


@pytest.mark.heavy
@pytest.mark.parametrize("length", [2, 64, 129])
@pytest.mark.parametrize("name, kw", VARIANTS)
def test_more_lengths(name, kw, length):
    pattern, segment = make({"name": name, **kw}), segments(length)
    compare(pattern, operands(pattern, segment.shape, length), toks(segment, pattern))


@pytest.mark.parametrize("name, kw", VARIANTS)
def test_claims_hold_and_documents_of_a_row_are_apart(name, kw, monkeypatch):
    small_blocks(monkeypatch)
    pattern, count, total, offset = make({"name": name, **kw}), 21, 29, 5
    text = operands(pattern, (1, count))
    is_global = some_global(np.ones((1, count), int), min(2, pattern.capacity))
    attend = jax.jit(lambda ops, tok, layer: run(pattern.attend, ops, tok, layer))

    def placed(ops: dict):
        """The text at the beginning and further on, with padding or another document in the rest of the row."""
        starts, others = (0, offset, 0, offset), (0, 0, 3, 3)
        rows = operands(pattern, (4, total), 1)
        segment, mask = np.tile(np.asarray(others)[:, None], (1, total)), np.zeros((4, total), int)
        for row, start in enumerate(starts):
            here = slice(start, start + count)
            rows |= {n: rows[n].at[row, here].set(ops[n][0]) for n in "xqkv"}
            segment[row, here], mask[row, here] = 1, is_global[0]
        segment[3, offset + count :] = 4  # a document is in one piece
        return {**rows, "pattern": ops["pattern"]} | {"position": {}}, toks(segment, pattern, mask)

    def outs(ops: dict, layer: int):
        found = np.asarray(attend(*placed(ops), layer))
        return [found[i, start : start + count] for i, start in enumerate((0, offset, 0, offset))]

    later = {**text, **{n: text[n].at[:, 12:].multiply(-1.5) for n in "xqkv"}}
    moved, leaks, lengths = [], [], []
    for layer in range(CFG.num_hidden_layers):
        right, left, first, second = outs(text, layer)
        np.testing.assert_allclose(first, right, rtol=0, atol=1e-5)
        np.testing.assert_allclose(second, left, rtol=0, atol=1e-5)
        alone = np.asarray(attend(text, toks(np.ones((1, count), int), pattern, is_global), layer))[0]
        lengths.append(np.abs(right - alone).max())
        moved.append(np.abs(left - right).max())
        leaks.append(np.abs(outs(later, layer)[0] - right)[:12].max())
    print(f"moved by {max(moved):.1e}, longer by {max(lengths):.1e}, later keys leak {max(leaks):.1e}")
    assert max(moved) <= 1e-5 if "padding_invariant" in pattern.claims else max(moved) > 1e-3
    assert max(lengths) > 1e-3 if "length_dependent" in pattern.claims else max(lengths) <= 1e-5
    assert max(leaks) == 0 if "causal" in pattern.claims else max(leaks) > 1e-3


@pytest.mark.parametrize("name, kw", VARIANTS)
def test_the_mask_is_of_every_pair_and_for_any_part_of_the_rows(name, kw):
    """Patterns may be asked for some queries and some keys."""
    pattern = make({"name": name, **kw})
    tok = toks(segments(23), pattern)
    rows, columns = slice(4, 9), slice(2, 17)
    cut = lambda part: jax.tree.map(lambda x: x[:, part], tok)  # noqa: E731
    for layer in range(CFG.num_hidden_layers):
        whole = np.broadcast_to(pattern.mask(tok, tok, layer, 23), (6, N, 23, 23))
        part = np.broadcast_to(pattern.mask(cut(rows), cut(columns), layer, 23), (6, N, 5, 15))
        np.testing.assert_array_equal(part, whole[:, :, rows, columns])
        assert whole.dtype == bool and whole[:, :, np.arange(23), np.arange(23)].all()


@pytest.mark.parametrize("name", NAMES)
def test_equal_options_are_one_compilation(name):
    """Nothing that a pattern computes depends on the layer's number being known: one program serves all layers."""
    for kw in TESTS[name].VARIANTS:
        pattern, segment = make({"name": name, **kw}), segments(7)
        attend = jax.jit(lambda ops, tok, layer, pattern=pattern: run(pattern.attend, ops, tok, layer))
        shapes = {
            str(jax.make_jaxpr(attend)(operands(pattern, segment.shape), toks(segment, pattern), np.int32(layer)))
            for layer in range(CFG.num_hidden_layers)
        }
        assert len(shapes) == 1
