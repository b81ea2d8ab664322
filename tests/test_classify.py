"""Classification: readings of long texts, pooling, packing, chunks against plain loops, scores against scikit-learn, export."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn import metrics as sklearn_metrics

import lpe
from lpe import build, heads, params
from lpe.data import batching, reading
from lpe.data.document import Document
from lpe.models import pooling
from lpe.tasks import classify
from lpe.tasks.base import UNUSED

WORDS = "the state of our union has been strong since congress passed its last budget for peace and war abroad".split()


def documents(count: int = 12, low: int = 2, high: int = 260) -> list[Document]:
    rng = np.random.default_rng(0)
    sizes = np.linspace(low, high, count).astype(int)
    return [
        Document(" ".join(rng.choice(WORDS, n)), f"a.csv, line {i}", label=("left", "right", "up")[i % 3])
        for i, n in enumerate(sizes)
    ]


def make(model, **options):
    spec = {"name": "classify", "length": 384, "labels": ("left", "right", "up"), "pool": "mean"} | options
    return build.task(spec, build.network(model.recipe))


@pytest.fixture(scope="module")
def long(mini):
    return mini.extend(max_length=384)


@pytest.fixture(scope="module")
def texts(mini, long):
    return make(long).prepare(documents(), mini.tokenizer)


def collect(task, texts, tokenizer, view, batch_size=5):
    return list(task.dataset(texts, tokenizer, view, batch_size, limit=10**6))


def full_params(model, task):
    fresh = params.flatten(params.init(task.specs, jax.random.key(3)))
    return params.nest(params.flatten(model.params) | {p: x + 0.05 for p, x in fresh.items()})


def test_readings():
    tok = type("T", (), {"cls_token_id": 1, "sep_token_id": 2, "pad_token_id": 0, "unk_token_id": 3})
    ids = np.arange(10, 40)
    assert reading.truncate(ids, 10).tolist() == list(range(10, 18))
    assert reading.head_tail(ids, 10).tolist() == [10, 11, *range(34, 40)]
    assert reading.head_tail(ids[:8], 10).tolist() == list(range(10, 18))
    got = reading.chunks(ids[:12], 10, 3, tok)
    assert got["input_ids"].tolist() == [[1, *range(10, 18), 2], [1, *range(18, 22), 2, 0, 0, 0, 0], [0] * 10]
    assert got["attention_mask"].sum(1).tolist() == [10, 6, 0]
    assert reading.chunks(ids, 10, 2, tok)["input_ids"][1].tolist() == [1, *range(18, 26), 2]


@pytest.mark.parametrize("how", pooling.POOLING)
def test_pooling_equals_a_plain_loop(how):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 7, 3)).astype(np.float32)
    segment = np.array([[1, 1, 2, 2, 2, 0, 0], [1, 1, 1, 1, 0, 0, 0]])
    position = np.array([[0, 1, 0, 1, 2, 0, 0], [0, 1, 0, 1, 0, 0, 0]])  # the second row was read in chunks of two
    zero = jnp.zeros_like(segment)
    tok = lpe.tokens.Tokens(zero, jnp.asarray(position), jnp.asarray(segment), zero, zero > 0)
    got = np.asarray(pooling.pool(jnp.asarray(x), tok, 2, how))
    for row in range(2):
        for slot in range(2):
            own = [t for t in range(7) if segment[row, t] == slot + 1]
            if how == "cls":
                own = [t for t in own if position[row, t] == 0]
            want = np.zeros(3) if not own else x[row, own].max(0) if how == "max" else x[row, own].mean(0)
            np.testing.assert_allclose(got[row, slot], want, rtol=1e-6)


@pytest.mark.parametrize("pool", ["cls", "mean"])
def test_packed_and_bucketed_texts_score_as_single_ones(mini, long, texts, pool):
    got = {}
    for way in batching.WAYS:
        task = make(long, pool=pool, batches=way)
        weights = full_params(long, task)
        predict = jax.jit(task.predict)
        batches = collect(task, texts, mini.tokenizer, "full")
        outs = [(b, jax.device_get(predict(weights, b))) for b in batches]
        got[way] = {
            int(i): float(x)
            for b, o in outs
            for i, x in zip(b["example"][b["example"] >= 0], o["loss"][b["example"] >= 0], strict=True)
        }
        real = sum(int(b["attention_mask"].sum()) for b in batches)
        padding = 1 - real / sum(b["attention_mask"].size for b in batches)
        assert padding < {"fixed": 1.0, "buckets": 0.1, "packed": 0.3}[way]  # 12 texts do not fill rows well
        assert len({b["input_ids"].shape for b in batches}) <= {"fixed": 2, "buckets": 12, "packed": 2}[way]
    assert len(got["fixed"]) == len(documents())
    for way in ("buckets", "packed"):
        assert got[way].keys() == got["fixed"].keys()
        np.testing.assert_allclose([got[way][i] for i in got["fixed"]], list(got["fixed"].values()), atol=1e-5, rtol=1e-5)


def test_packed_gradients_equal_those_of_single_texts(mini, long, texts):
    grads = {}
    for way in ("fixed", "packed"):
        task = make(long, batches=way)
        weights, total, count = full_params(long, task), None, 0
        grad = jax.jit(jax.grad(lambda p, b, task=task: task.loss(p, b, None)[1]["loss"][0]))
        for batch in collect(task, texts, mini.tokenizer, "full", 12):
            g = grad(weights, batch)
            total = g if total is None else jax.tree.map(jnp.add, total, g)
            count += int((batch["labels"] != UNUSED).sum())
        assert count == len(documents())
        grads[way] = params.flatten(total)
    for path, want in grads["fixed"].items():
        np.testing.assert_allclose(grads["packed"][path], want, atol=1e-5 * max(1.0, float(np.abs(want).max())), err_msg=path)


@pytest.mark.parametrize("pool", ["cls", "mean"])
def test_chunks_are_encoded_apart_and_pooled_together(mini, texts, pool):
    task = make(mini, pool=pool)
    weights = full_params(mini, task)
    (batch,) = collect(task, texts, mini.tokenizer, "chunks", 12)
    assert batch["input_ids"].shape == (12, 3, 128)
    got = np.asarray(task.predict(weights, batch)["loss"])[:, 0]
    for row, label in enumerate(texts.labels):
        states, firsts = [], []
        for chunk, mask in zip(batch["input_ids"][row], batch["attention_mask"][row], strict=True):
            if mask.any():
                x = np.asarray(mini.encode({"input_ids": chunk[None], "attention_mask": mask[None]}))[0, : mask.sum()]
                states.append(x)
                firsts.append(x[0])
        pooled = np.mean(firsts, axis=0) if pool == "cls" else np.concatenate(states).mean(axis=0)
        if pool == "cls":
            pooled = np.tanh(pooled @ np.asarray(weights["pooler"]["kernel"]) + np.asarray(weights["pooler"]["bias"]))
        scores = pooled @ np.asarray(weights["classifier"]["kernel"]) + np.asarray(weights["classifier"]["bias"])
        want = np.log(np.exp(scores - scores.max()).sum()) + scores.max() - scores[label]
        np.testing.assert_allclose(got[row], want, rtol=1e-4, atol=1e-5)


def test_scores_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    labels = ("a", "b", "c", "d")
    want, got = rng.integers(0, 3, 50), rng.integers(0, 4, 50)  # d is predicted and never there
    numbers = rng.permutation(50)
    results = [
        (
            {"labels": np.append(want[at], UNUSED)[:, None], "example": np.append(numbers[at], -1)[:, None]},
            {"label": np.append(got[at], 0)[:, None], "loss": np.ones((len(at) + 1, 1))},
        )
        for at in np.array_split(np.arange(50), 4)
    ]
    found = classify.score(results, labels)
    assert found["accuracy"] == pytest.approx(sklearn_metrics.accuracy_score(want, got))
    f1 = sklearn_metrics.f1_score(want, got, labels=range(4), average="macro", zero_division=0)
    assert found["macro_f1"] == pytest.approx(f1)
    p, r, f, n = sklearn_metrics.precision_recall_fscore_support(want, got, labels=range(4), zero_division=0)
    for i, row in enumerate(found["per_class"]):
        assert row[0] == labels[i] and row[4] == n[i]
        np.testing.assert_allclose(row[1:4], [p[i], r[i], f[i]], atol=1e-4)
    assert found["confusion"] == sklearn_metrics.confusion_matrix(want, got, labels=range(4)).tolist()
    assert found["count"] == 50 and [u[0] for u in found["by_unit"]] == list(range(50))
    assert found["accuracy_se"] == pytest.approx(np.std(want == got, ddof=1) / np.sqrt(50), rel=1e-9)


def test_a_head_is_taken_over_when_its_labels_are_the_same_and_made_anew_otherwise(mini):
    task = make(mini, pool="cls")
    first = heads.fit(mini, task, seed=0)
    assert first.fresh == set(task.specs) and not first.extra
    assert first.model.recipe.heads == ("pooler", "classifier") and "mlm_head" not in first.model.params
    assert heads.labels(first.model) == ("left", "right", "up") and first.model.config.num_labels == 3
    again = heads.fit(first.model, task, seed=1)
    assert not again.fresh
    np.testing.assert_array_equal(again.model.params["classifier"]["kernel"], first.model.params["classifier"]["kernel"])
    other = heads.fit(first.model, make(mini, pool="cls", labels=("left", "right", "down")), seed=1)
    assert other.fresh == {"classifier/kernel", "classifier/bias"}, "BERT's pooler serves any labels"
    apart = heads.fit(mini, make(mini, pool="mean"), seed=0)
    assert set(apart.extra) == {"classifier"} and apart.model.recipe.heads == ()
    assert build.with_labels({"name": "classify", "length": 9}, {"train": documents(), "heldout": []}, ("up", "left", "right"))[
        "labels"
    ] == ("up", "left", "right"), "the checkpoint's order lets its head be used"


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_a_trained_classifier_loads_in_transformers_with_its_labels(tmp_path, mini, family):
    import torch
    import transformers

    model = mini
    if family == "roberta":
        cfg = dataclasses.replace(mini.config, max_position_embeddings=130, reserved_rows=2, pad_token_id=1)
        model = lpe.model.initialise(cfg, (), family="roberta", tokenizer=mini.tokenizer)
    fitted = heads.fit(model, make(model, pool="cls"), seed=0)
    fitted.model.save_pretrained(tmp_path / "out")
    stock = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "out").eval()
    assert stock.config.id2label == {0: "left", 1: "right", 2: "up"}
    ids = np.random.default_rng(0).integers(5, 500, (2, 20))
    with torch.inference_mode():
        want = stock(torch.tensor(ids)).logits.numpy()
    np.testing.assert_allclose(fitted.model.classify({"input_ids": ids}), want, atol=1e-5)
    np.testing.assert_allclose(lpe.from_pretrained(tmp_path / "out").classify({"input_ids": ids}), want, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 2}, "task.length=2, allowed are whole numbers above 2"),
        ({"pool": "avg"}, r"task.pool='avg' is not known \(there are: cls, mean, max"),
        ({"batches": "bucket"}, "task.batches='bucket' is not known; did you mean 'buckets'"),
        ({"head": 1}, "tasks.classify has no option 'head'"),
    ],
)
def test_wrong_options_are_named(mini, options, message):
    with pytest.raises(ValueError, match=message):
        make(mini, **options)


def test_wrong_data_is_named(mini):
    task = make(mini)
    with pytest.raises(ValueError, match=r"b.csv, line 7: label 'down' is none of task.labels=\['left', 'right', 'up'\]"):
        task.prepare([Document("text", "b.csv, line 7", label="down")], mini.tokenizer)
    with pytest.raises(ValueError, match="makes no token of b.csv, line 8"):
        task.prepare([Document("text", "", label="up"), Document("\u200b", "b.csv, line 8", label="up")], mini.tokenizer)
    with pytest.raises(
        ValueError, match=r"task.batches \(with the view 'chunks'.*\)='packed' is not known \(there are: fixed\)"
    ):
        make(mini, batches="packed").dataset(task.prepare(documents(), mini.tokenizer), mini.tokenizer, "chunks", 2)


@pytest.mark.heavy
def test_evaluation_on_other_data_keeps_the_classes_of_the_run(tmp_path):
    """A subset of the classes is judged by the run's numbers; a class that the run never saw is refused by its line."""
    from configs import classify as config_file
    from lpe import evaluate, metrics, train

    def write(name: str, labels: str) -> str:
        rows = [{"text": f"the {'war' if x == 'b' else 'peace'} " * 9, "label": x} for x in labels * 10]
        (tmp_path / name).write_text("".join(json.dumps(r) + "\n" for r in rows))
        return str(tmp_path / name)

    c = config_file.get_config("debug,pool=cls").to_dict()
    c |= {"arms": (), "task": {"name": "classify", "length": 32}}
    c["data"] |= {"source": write("abc.jsonl", "abc"), "label": "label", "documents": 0}
    c["train"] |= {"view": "full", "steps": 20, "batch_size": 8}
    c["eval"] |= {"every": 20, "examples": 100}
    c["optim"] |= {"learning_rate": 3e-3}
    folder = train.run(c, tmp_path / "run")
    c["data"]["source"] = write("bc.jsonl", "bc")
    (row,) = metrics.read(evaluate.run(c, folder) / "classify/metrics.jsonl")
    assert [x[0] for x in row["per_class"]] == ["a", "b", "c"] and row["per_class"][0][4] == 0
    assert row["per_class"][1][2] == 1.0, "b is found where b is"
    c["data"]["source"] = write("bx.jsonl", "bx")
    with pytest.raises(ValueError, match=r"bx.jsonl, line \d+: label 'x' is none of task.labels=\['a', 'b', 'c'\]"):
        evaluate.run(c, folder)
