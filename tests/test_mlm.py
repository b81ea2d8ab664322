"""The MLM task: windows, masks, views on equal tokens, and its score against a plain count."""

import dataclasses

import jax
import numpy as np
import pytest

from lpe import build, inputs
from lpe.data import sources, windows
from lpe.data.document import Document
from lpe.tasks import mlm
from tests.positions.test_contract import sizes

DOCS = [Document("the prosperity of our country is further evinced by the revenue " * 30, "a"), Document("short text", "b")]


@pytest.fixture(scope="module")
def task(mini):
    return build.task({"name": "mlm", "length": 384}, build.network(mini.extend(max_length=384).recipe))


@pytest.fixture(scope="module")
def cut(mini, task):
    return task.prepare(DOCS, mini.tokenizer)


@pytest.mark.parametrize(
    ("length", "trained", "want"),
    [
        (384, 128, (3, 126)),
        (2048, 512, (4, 510)),
        (128, 128, (1, 126)),
        (100, 128, (1, 98)),
        (200, 128, (2, 99)),
        (129, 128, (2, 63)),
    ],
)
def test_how_a_length_divides(length, trained, want):
    lay = windows.layout(length, trained)
    assert tuple(lay) == want
    assert lay.content + windows.SPECIALS <= length and lay.piece + windows.SPECIALS <= trained


def test_windows_hold_every_token_once_and_cross_no_document(mini, cut):
    for number, doc in enumerate(DOCS):
        want = mini.tokenizer(doc.text, add_special_tokens=False, verbose=False)["input_ids"]
        got = [t for row, real, d in zip(*cut[:3], strict=True) if d == number for t in row[:real]]
        assert got == want
    assert cut.take(2).real.shape == (2,) and len(cut.take(10**6).real) == len(cut.real)


def test_masks_are_15_percent_80_10_10(mini):
    lay = windows.layout(384, 128)
    rng = np.random.default_rng(0)
    tokens = rng.integers(10, 500, lay.content).astype(np.int32)
    kept = masked = changed = total = 0
    for _ in range(300):
        hidden, places, labels = mlm.mask(tokens, lay.content, lay, 0.15, mini.tokenizer, rng)
        at = (places + np.arange(lay.pieces)[:, None] * lay.piece).ravel()
        assert len(set(at)) == at.size == 57 and (labels.ravel() == tokens[at]).all()
        rest = np.ones(lay.content, bool)
        rest[at] = False
        assert (hidden[rest] == tokens[rest]).all()
        masked += (hidden[at] == mini.tokenizer.mask_token_id).sum()
        kept += (hidden[at] == tokens[at]).sum()
        changed += ((hidden[at] != tokens[at]) & (hidden[at] != mini.tokenizer.mask_token_id)).sum()
        total += at.size
    assert abs(masked / total - 0.8) < 0.015 and abs(kept / total - 0.1) < 0.015 and abs(changed / total - 0.1) < 0.015


def test_all_views_hold_the_same_tokens_and_masks(mini, task, cut):
    views = {v: list(task.dataset(cut, mini.tokenizer, v, 3, limit=100)) for v in task.views}
    for full, pieces, first, shuffled in zip(*(views[v] for v in ("full", "pieces", "first", "shuffled")), strict=True):
        assert full["input_ids"].shape[1] == 380 and pieces["input_ids"].shape[1] == 128
        for i, window in enumerate(full["example"]):
            mine = pieces["example"] == window
            assert len(pieces["input_ids"][mine]) == 3

            def content(batch, rows):
                inner = batch["attention_mask"][rows].astype(bool) & (batch["input_ids"][rows] != mini.tokenizer.cls_token_id)
                return batch["input_ids"][rows][inner & (batch["input_ids"][rows] != mini.tokenizer.sep_token_id)]

            assert (content(full, [i]) == content(pieces, mine)).all()
            assert (full["labels"][i] == pieces["labels"][mine].ravel()).all()
            assert (first["labels"][first["example"] == window] == pieces["labels"][mine][:1]).all()
        assert (pieces["input_ids"] == shuffled["input_ids"]).all()
        assert (np.sort(shuffled["position_ids"], axis=1) == np.arange(128)).all()
        assert not (shuffled["position_ids"] == np.arange(128)).all(axis=1).any()
        for batch in (full, pieces):  # a label sits where its place says
            used = batch["labels"] != mlm.UNUSED
            found = np.take_along_axis(batch["input_ids"], batch["places"], axis=1)
            plain = (found == batch["labels"]) | (found == mini.tokenizer.mask_token_id)
            assert plain[used].mean() > 0.8 and used.any()


def test_training_batches_are_endless_shuffled_and_a_function_of_seed_and_step(mini, task, cut):
    a, b = (task.dataset(cut, mini.tokenizer, "full", 4, seed=3) for _ in range(2))
    c = task.dataset(cut, mini.tokenizer, "full", 4, seed=4)
    for step in (0, 7, 1000):
        assert all((a[step][k] == b[step][k]).all() for k in a[step])
    assert any((a[0][k] != c[0][k]).any() for k in a[0])
    assert any((a[0]["input_ids"] != a[len(cut.real)]["input_ids"]).ravel())  # another epoch, other masks


def test_loss_is_the_mean_over_masked_places_and_prediction_agrees(mini, task, cut):
    net = build.network(mini.extend(max_length=384).recipe)
    batch = {k: np.asarray(v) for k, v in task.dataset(cut, mini.tokenizer, "full", 3, limit=3)[0].items()}
    loss, metrics = jax.jit(task.loss, static_argnums=2)(mini.params, batch, None)
    x, _ = net.encode(mini.params, batch)
    from lpe.models import heads

    scores = np.asarray(heads.mlm_logits(mini.params, mini.config, x), np.float64)
    top = scores.max(-1, keepdims=True)
    log_p = scores - top - np.log(np.exp(scores - top).sum(-1, keepdims=True))
    each, right = [], []
    for row, (places, labels) in enumerate(zip(batch["places"], batch["labels"], strict=True)):
        for place, label in zip(places, labels, strict=True):
            if label != mlm.UNUSED:
                each.append(-log_p[row, place, label])
                right.append(scores[row, place].argmax() == label)
    np.testing.assert_allclose(loss, np.mean(each), rtol=1e-5)
    assert int(metrics["accuracy"][1]) == len(each) and int(metrics["accuracy"][0]) == sum(right)
    got = task.score([(batch, jax.device_get(task.predict(mini.params, batch)))])
    assert got["accuracy"] == np.mean(right) and got["count"] == len(each)
    np.testing.assert_allclose(got["loss"], np.mean(each), rtol=1e-5)


def test_standard_error_against_the_formula_and_a_bootstrap():
    rng = np.random.default_rng(0)
    batch = {"labels": np.where(rng.random((60, 9)) < 0.8, 1, mlm.UNUSED), "example": np.repeat(np.arange(30), 2)}
    batch["places"] = np.tile(np.arange(9), (60, 1))
    easy = np.repeat(rng.random(30), 2)[:, None]
    out = {"right": rng.random((60, 9)) < easy, "loss": np.arange(540.0).reshape(60, 9)}
    got = mlm.score([(batch, out)])
    used = batch["labels"] != mlm.UNUSED
    per = np.asarray(
        [[(out["right"] & used)[batch["example"] == w].sum(), used[batch["example"] == w].sum()] for w in range(30)]
    )
    draws = [per[rng.integers(0, 30, 30)].sum(0) for _ in range(4000)]
    assert abs(got["accuracy_se"] - np.std([r / n for r, n in draws])) < 0.1 * got["accuracy_se"]
    assert sum(n for _, n in got["by_place"]) == got["count"] == used.sum()
    assert got["loss_by_unit"] == [(out["loss"] * used)[batch["example"] == w].sum() for w in range(30)]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"length": 2}, "length=2"),
        ({"length": 9, "mask_rate": 0.0}, "mask_rate=0.0"),
        ({"length": 9, "documents": "packed"}, "task.documents='packed' is not known; did you mean 'pack'"),
    ],
)
def test_bad_options(mini, option, message):
    with pytest.raises(ValueError, match=message):
        build.task({"name": "mlm", **option}, build.network(mini.recipe))


def test_a_tokenizer_that_cannot_serve(mini, task):
    small = build.network(mini.recipe._replace(config=dataclasses.replace(mini.config, vocab_size=500)))
    with pytest.raises(ValueError, match="brings no tokenizer"):
        task.check(None)
    with pytest.raises(ValueError, match="ids up to 511, but the model has vocab_size=500"):
        build.task({"name": "mlm", "length": 9}, small).check(mini.tokenizer)
    with pytest.raises(ValueError, match="does not fit this text"):
        windows.cut([Document("日本語のテキスト" * 50, "a")], mini.tokenizer, 126)


def test_one_window_has_no_standard_error_and_a_loss_that_is_not_finite_is_no_score():
    batch = {"labels": np.ones((1, 4), int), "example": np.zeros(1, int), "places": np.arange(4)[None]}
    assert mlm.score([(batch, {"right": np.ones((1, 4), bool), "loss": np.ones((1, 4))})])["accuracy_se"] is None
    with pytest.raises(FloatingPointError, match=r"examples \[0\] is not finite"):
        mlm.score([(batch, {"right": np.ones((1, 4), bool), "loss": np.full((1, 4), np.nan)})])


def short_documents(count: int) -> list[Document]:
    """Pieces of the embedded speeches with log-normal lengths, a few of them longer than an input."""
    text = sources.documents({"source": "sotu", "documents": 4})["train"][0].text
    rng = np.random.default_rng(0)
    starts, sizes = rng.integers(0, len(text) - 3000, count), np.clip(rng.lognormal(5.0, 0.7, count), 20, 2000).astype(int)
    return [Document(text[a : a + n], f"{a}") for a, n in zip(starts, sizes, strict=True)]


def test_truncate_keeps_the_first_window_of_each_document_and_counts_the_rest(mini, caplog):
    caplog.set_level("INFO")
    task = build.task({"name": "mlm", "length": 128, "documents": "truncate"}, build.network(mini.recipe))
    cut = task.prepare(DOCS, mini.tokenizer)
    ids = [mini.tokenizer(d.text, add_special_tokens=False, verbose=False)["input_ids"] for d in DOCS]
    assert cut.document.tolist() == [0, 1] and cut.tokens[0].tolist() == ids[0][:126]
    total = sum(map(len, ids))
    assert f"{len(ids[0]) - 126} of {total} tokens" in caplog.text and len(cut.real) == 2


@pytest.mark.parametrize(
    ("length", "extension"),
    [(128, {}), (300, {"max_length": 300, "position": {"name": "hierarchical"}})],
    ids=["learned", "hierarchical"],
)
def test_packed_rows_give_the_loss_gradient_and_predictions_of_one_window_per_row(mini, length, extension, caplog):
    caplog.set_level("INFO")
    model = mini.extend(**extension) if extension else mini
    task = build.task({"name": "mlm", "length": length, "documents": "pack"}, build.network(model.recipe))
    assert {n: v.length for n, v in task.views.items()} == {"full": length, "unpacked": length}
    cut = task.prepare(short_documents(40), mini.tokenizer)
    share = 1 - (cut.windows.real + 2).sum() / (cut.examples * length)
    assert share < 0.1 and f"{cut.examples} rows of {length}: {100 * share:.1f} % padding" in caplog.text
    full, unpacked = (task.dataset(cut, mini.tokenizer, v, 2, seed=1) for v in ("full", "unpacked"))
    assert len({tuple((k, v.shape) for k, v in ds[i].items()) for ds in (full, unpacked) for i in range(9)}) == 2
    number = next(i for i in range(9) if full[i]["segment_ids"].max(1).min() > 1)
    a, b = full[number], unpacked[number]
    inputs.checked(build.network(model.recipe), {k: a[k] for k in ("input_ids", "attention_mask", "segment_ids")})
    assert a["input_ids"].shape == (2, length)
    assert (a["input_ids"][a["attention_mask"] > 0] == b["input_ids"][b["attention_mask"] > 0]).all()
    step = jax.jit(lambda p, x: (jax.value_and_grad(lambda p: task.loss(p, x, None)[0])(p), task.predict(p, x)))
    results, scores = [], []
    for batch in (a, b):
        used = batch["labels"] != mlm.UNUSED
        loss, out = jax.device_get(step(model.params, batch))
        results.append((loss, out["loss"][used], out["right"][used]))
        scores.append(task.score([(batch, out)]))
    assert a["labels"][a["labels"] != mlm.UNUSED].tolist() == b["labels"][b["labels"] != mlm.UNUSED].tolist()
    jax.tree.map(lambda p, q: np.testing.assert_allclose(p, q, atol=1e-5), *results)
    assert scores[0]["by_unit"] == scores[1]["by_unit"] and scores[0]["count"] > 20 and 0 < scores[0]["accuracy"] < 1


def test_a_packed_evaluation_reads_every_window_once(mini):
    task = build.task({"name": "mlm", "length": 128, "documents": "pack"}, build.network(mini.recipe))
    cut = task.prepare(short_documents(30), mini.tokenizer)
    batches = list(task.dataset(cut, mini.tokenizer, "full", 3, limit=10**6))
    assert sum(int((b["attention_mask"]).sum()) for b in batches) == (cut.windows.real + 2).sum()
    assert sorted(np.concatenate([b["example"] for b in batches])) == list(range(cut.examples))
    assert len(list(task.dataset(cut, mini.tokenizer, "unpacked", 1, limit=2))) == 2


def test_chunks_of_the_head_change_nothing_but_memory(mini, cut):
    """Masked places 50 at a time, no divisor of their number: the same loss and gradients without an array of all scores."""
    net = build.network(mini.extend(max_length=384).recipe)
    whole, chunked = (build.task({"name": "mlm", "length": 384, "chunk_size": n}, net) for n in (0, 25))
    batch = whole.dataset(cut, mini.tokenizer, "full", 2, seed=1)[0]
    scores = batch["labels"].size * mini.config.vocab_size
    (want, want_grad), (got, got_grad) = (
        jax.jit(jax.value_and_grad(lambda p, t=t: t.loss(p, batch, None)[0]))(mini.params) for t in (whole, chunked)
    )
    assert batch["labels"].shape[1] % 25 and abs(got - want) < 1e-6 * want
    for a, b in zip(jax.tree.leaves(got_grad), jax.tree.leaves(want_grad), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5)
    found = [
        sizes(jax.make_jaxpr(jax.grad(lambda p, t=t: t.loss(p, batch, None)[0]))(mini.params).jaxpr) for t in (whole, chunked)
    ]
    assert scores in found[0] and scores not in found[1]
