"""The model a notebook holds: refusals instead of clamps, identity of extensions, compilation, what is saved."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lpe
from lpe import build, costs, model, params
from lpe.models.bert import BertConfig

CFG = BertConfig(
    vocab_size=31, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, max_position_embeddings=8
)


def tiny(seed: int = 0, heads=("mlm", "pooler", "classifier")) -> model.Model:
    return model.initialise(CFG, heads, seed=seed)


def ids(length: int, rows: int = 2, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, CFG.vocab_size, (rows, length))


LONG = [{"name": "hierarchical"}, {"name": "copy"}, {"name": "random"}]


@pytest.mark.parametrize("position", LONG, ids=lambda p: p["name"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_extending_changes_nothing_on_short_inputs(position, dtype):
    before = dataclasses.replace(tiny(), recipe=tiny().recipe._replace(dtype=dtype))
    after = before.extend(max_length=20, position=position)
    batch = {"input_ids": ids(8), "attention_mask": np.array([[1] * 8, [1] * 5 + [0] * 3])}
    np.testing.assert_array_equal(after.position_table()[:8], before.position_table())
    # Two compiled programs may round differently; the vectors that enter them are the same.
    assert float(jnp.abs(before.encode(batch) - after.encode(batch)).max()) < (1e-6 if dtype == "float32" else 2e-2)
    assert bool(jnp.isfinite(after.encode({"input_ids": ids(20)})).all())


def test_too_long_is_refused_with_the_limit_and_the_ways_out():
    for m, limit in ((tiny(), 8), (tiny().extend(max_length=20), 20)):
        with pytest.raises(ValueError, match=rf"input of {limit + 1} tokens is longer than the {limit} positions.*extend"):
            m.encode({"input_ids": ids(limit + 1)})
        with pytest.raises(ValueError, match="longer than the"):
            jax.jit(lambda m, x: m.encode({"input_ids": x}))(m, ids(limit + 1))
        m.encode({"input_ids": ids(limit)})


def test_padding_beyond_the_limit_is_no_length():
    m, short = tiny(), ids(6)
    padded = {"input_ids": np.pad(short, ((0, 0), (0, 5))), "attention_mask": np.pad(np.ones((2, 6), int), ((0, 0), (0, 5)))}
    np.testing.assert_allclose(m.encode(padded)[:, :6], m.encode({"input_ids": short}), atol=1e-5)


@pytest.mark.parametrize("position", [{"name": "learned"}, *LONG], ids=lambda p: p["name"])
def test_nothing_is_ever_clamped(position):
    """Under jit, where a value cannot be checked, a place outside a table is NaN and not the table's last row."""
    m = tiny() if position["name"] == "learned" else tiny().extend(max_length=20, position=position)
    limit = m.max_length
    run = jax.jit(lambda p, x, at: build.network(m.recipe).encode(p, {"input_ids": x, "position_ids": at})[0])
    inside = jnp.asarray([[0, limit - 1]])
    assert bool(jnp.isfinite(run(m.params, jnp.zeros((1, 2), jnp.int32), inside)).all())
    for bad in ([[0, limit]], [[0, -1]]):
        assert bool(jnp.isnan(run(m.params, jnp.zeros((1, 2), jnp.int32), jnp.asarray(bad))[0, 1]).all())
    for bad_id in (CFG.vocab_size, -1):
        assert bool(jnp.isnan(run(m.params, jnp.asarray([[0, bad_id]]), inside)[0, 1]).all())


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"input_ids": [[0, 31]]}, r"input_ids has 31, allowed are 0 to 30 \(vocab_size"),
        ({"input_ids": [[0, -1]]}, "input_ids has -1"),
        ({"input_ids": [[0, 1]], "token_type_ids": [[0, 2]]}, "token_type_ids has 2, allowed are 0 to 1"),
        ({"input_ids": [0, 1]}, r"shape \(2,\)"),
        ({"input_ids": [[0, 1]], "attention_mask": [[1]]}, "one shape"),
        ({"ids": [[0, 1]]}, "needs input_ids"),
        ("a text", "a batch is a map with input_ids, and not a str; for texts: dict"),
        ({"input_ids": [[0, 1]], "position_ids": [[0, 8]]}, "input of 9 tokens is longer than the 8 positions"),
        ({"input_ids": np.zeros((1, 0), int)}, "shape"),
        ({"input_ids": np.zeros((0, 3), int)}, "shape"),
        ({"input_ids": np.asarray([[2**32 + 1]])}, "does not fit into int32"),
        ({"input_ids": [[0.7, 1.0]]}, "input_ids has dtype float64; whole numbers are needed"),
        ({"input_ids": [[0, 1]], "attention_mask": [[0.9, 1.0]]}, "attention_mask has dtype float64"),
        ({"input_ids": [[0, 1]], "position_ids": [[0, -1]]}, "position_ids has -1"),
    ],
)
def test_a_wrong_batch_is_refused(batch, message):
    with pytest.raises(ValueError, match=message):
        tiny().encode(batch)


def test_a_model_is_shown_in_one_line():
    said = repr(tiny().extend(max_length=20))
    assert said.startswith("<lpe.Model bert: 2 layers of 16, ") and "'hierarchical', 20 tokens" in said and len(said) < 200


def test_a_missing_head_is_refused_with_the_way_out():
    with pytest.raises(ValueError, match="no mlm head; it has pooler"):
        tiny(heads=("pooler",)).mlm_logits({"input_ids": ids(4)})
    with pytest.raises(ValueError, match="no classifier"):
        tiny(heads=("pooler", "mlm")).classify({"input_ids": ids(4)})


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_nothing_for_real_tokens(side):
    m, short = tiny().extend(max_length=20), ids(12)
    pad = ((0, 0), (4, 0)) if side == "left" else ((0, 0), (0, 4))
    batch = {"input_ids": np.pad(short, pad), "attention_mask": np.pad(np.ones_like(short), pad)}
    real = slice(4, None) if side == "left" else slice(0, 12)
    np.testing.assert_allclose(m.encode(batch)[:, real], m.encode({"input_ids": short}), atol=1e-5)
    np.testing.assert_allclose(m.classify(batch), m.classify({"input_ids": short}), atol=1e-5)


def test_a_model_is_a_pytree_and_equal_models_share_one_compilation():
    a, b = tiny(0), tiny(1)
    traces = []

    @jax.jit
    def run(m, batch):
        traces.append(1)
        return m.encode(batch)

    for m in (a, b, a.extend(max_length=20), b.extend(max_length=20), a):
        run(m, {"input_ids": ids(8)})
    assert len(traces) == 2
    g = jax.grad(lambda m: m.encode({"input_ids": ids(8)}).var())(a)
    assert isinstance(g, model.Model) and params.count(g.params) == params.count(a.params)
    tuned = jax.tree.map(lambda w, d: w - 0.1 * d, a, g)
    assert bool(jnp.isfinite(tuned.encode({"input_ids": ids(8)})).all())


def test_a_model_out_of_jit_keeps_its_own_tokenizer():
    a, b = (model.Model(tiny().params, tiny().recipe, model.Companions(tokenizer=object(), source=s)) for s in "ab")
    same = jax.jit(lambda m: jax.tree.map(lambda x: x + 0, m))
    assert same(a).tokenizer is a.tokenizer and same(b).tokenizer is b.tokenizer and same(b).companions.source == "b"
    before = model._run._cache_size()
    for m in (a, b):
        m.encode({"input_ids": ids(7)})
    assert model._run._cache_size() == before + 1


def test_a_masked_token_between_real_ones_keeps_its_place():
    from lpe import tokens

    mask = np.array([[0, 1, 0, 1, 1, 0], [1, 1, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0]])
    tok = tokens.from_batch({"input_ids": jnp.zeros((3, 6), jnp.int32), "attention_mask": jnp.asarray(mask)})
    assert tok.position.tolist() == [[0, 0, 1, 2, 3, 3], [0, 1, 2, 2, 2, 2], [0] * 6]
    assert tok.length[:, 0].tolist() == [3, 3, 0]


def test_roberta_needs_a_mask_where_there_is_padding():
    m = model.initialise(dataclasses.replace(CFG, reserved_rows=2, pad_token_id=1), (), family="roberta")
    with pytest.raises(ValueError, match="has pad_token_id 1 but there is no attention_mask"):
        m.encode({"input_ids": [[0, 5, 1]]})
    m.encode({"input_ids": [[0, 5, 1]], "attention_mask": [[1, 1, 0]]})


def test_activations_are_those_of_transformers():
    import torch
    from transformers.activations import ACT2FN

    from lpe.models.layers import ACTIVATIONS

    x = np.linspace(-12, 12, 1001, dtype=np.float32)
    for name, f in ACTIVATIONS.items():
        np.testing.assert_allclose(f(jnp.asarray(x)), ACT2FN[name](torch.tensor(x)).numpy(), atol=2e-6, err_msg=name)
    with_parameters = {"prelu", "xielu"}
    assert set(ACT2FN) - set(ACTIVATIONS) <= with_parameters


def test_long_positions_cost_no_parameters():
    m = tiny().extend(position={"name": "hierarchical"})
    assert m.max_length == 64 and m.params["position"]["table"].shape == (8, 16)
    bert = BertConfig(num_hidden_layers=1, hidden_size=4, num_attention_heads=1, intermediate_size=4, vocab_size=3)
    long = model.initialise(bert, ()).extend(position={"name": "hierarchical"})
    assert long.max_length == 262_144 and long.params["position"]["table"].shape == (512, 4)


def test_scan_equals_layers_one_by_one_and_remat_changes_nothing():
    m = tiny()
    x = m.encode({"input_ids": ids(8)})
    for remat in ("full", "dots"):
        again = dataclasses.replace(m, recipe=m.recipe._replace(remat=remat))
        np.testing.assert_allclose(again.encode({"input_ids": ids(8)}), x, atol=1e-6)
        g, h = (jax.grad(lambda m: m.encode({"input_ids": ids(8)}).var())(k).params for k in (m, again))
        assert all(np.allclose(a, b, atol=1e-6) for a, b in zip(jax.tree.leaves(g), jax.tree.leaves(h), strict=True))


def test_what_is_recomputed_takes_no_memory():
    """Layers of which several make one step of the scan must not share what they recompute: XLA would keep it."""
    cfg = BertConfig(vocab_size=30, num_hidden_layers=4, hidden_size=16, num_attention_heads=4, intermediate_size=64)
    recipe = build.Recipe("bert", cfg, (), build.positions({"name": "learned"}), build.attention({"name": "full"}))
    memory = {r: costs.of(recipe._replace(remat=r), 512, "train").memory for r in ("none", "full")}
    assert memory["full"] < 0.6 * memory["none"]


def test_bfloat16_is_near_float32_and_gives_float32_out(mini):
    x = np.random.default_rng(0).integers(5, 500, (2, 100))
    half = dataclasses.replace(mini, recipe=mini.recipe._replace(dtype="bfloat16"))
    a, b = mini.encode({"input_ids": x}), half.encode({"input_ids": x})
    assert b.dtype == jnp.float32
    assert 0 < float(jnp.abs(a - b).mean()) < 0.02 * float(jnp.abs(a).mean())


def test_dropout_needs_a_key_and_keeps_the_mean():
    m = tiny()
    net = build.network(m.recipe)
    batch = {"input_ids": jnp.asarray(ids(8))}
    a, b = (np.asarray(net.encode(m.params, batch, key=jax.random.key(i))[0]) for i in (0, 1))
    assert np.abs(a - b).max() > 1e-2
    np.testing.assert_array_equal(a, np.asarray(net.encode(m.params, batch, key=jax.random.key(0))[0]))


def test_what_is_saved_loads_in_transformers_with_equal_outputs(tmp_path, mini):
    import torch
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    long = mini.extend(max_length=384, position={"name": "hierarchical", "alpha": 0.4})
    long.save_pretrained(tmp_path / "out")
    stock = AutoModelForMaskedLM.from_pretrained(tmp_path / "out").eval()
    assert stock.config.max_position_embeddings == 384
    for length in (20, 384):
        x = np.random.default_rng(0).integers(5, 500, (2, length))
        with torch.no_grad():
            want = stock(torch.tensor(x)).logits.numpy()
        np.testing.assert_allclose(long.mlm_logits({"input_ids": x}), want, atol=1e-4)
    assert AutoTokenizer.from_pretrained(tmp_path / "out").model_max_length == 384
    again = lpe.from_pretrained(tmp_path / "out")
    np.testing.assert_array_equal(again.position_table(), long.position_table())
    with pytest.raises(FileExistsError, match="is not empty"):
        long.save_pretrained(tmp_path / "out")


def test_a_failed_save_leaves_nothing_behind(tmp_path):
    m = tiny()
    m.params["mlm_head"]["bias"] = m.params["mlm_head"]["bias"].at[0].set(1e30)
    with pytest.raises(ValueError, match="not finite in float16"):
        m.save_pretrained(tmp_path / "out", dtype="float16")
    with pytest.raises(ValueError, match="dtype='int8'"):
        m.save_pretrained(tmp_path / "out", dtype="int8")
    assert list(tmp_path.iterdir()) == []
