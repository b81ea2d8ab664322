"""Tagging: word pieces and their tags, windows on equal words, seqeval over whole documents, export to stock classes."""

import dataclasses

import jax
import numpy as np
import pytest

import lpe
from lpe import build, heads, params
from lpe.data.document import Document
from lpe.tasks import tag
from lpe.tasks.base import UNUSED

TAGS = ("B-LOC", "B-PER", "I-LOC", "I-PER", "O")
WORDS = "the state of unprecedented union and internationalization in Washington by congress".split()


def document(count: int, seed: int, where: str) -> Document:
    rng = np.random.default_rng(seed)
    words = tuple(rng.choice(WORDS, count).tolist())
    return Document(" ".join(words), where, words=words, tags=tuple(rng.choice(TAGS, count).tolist()))


DOCS = [document(300, 0, "a.conll, line 1"), document(1, 1, "a.conll, line 302"), document(90, 2, "a.conll, line 304")]


def make(model, **options):
    return build.task({"name": "tag", "length": 384, "labels": TAGS} | options, build.network(model.recipe))


@pytest.fixture(scope="module")
def long(mini):
    return mini.extend(max_length=384)


@pytest.fixture(scope="module")
def cut(mini, long):
    return make(long).prepare(DOCS, mini.tokenizer)


def weights(model, task):
    fresh = params.flatten(params.init(task.specs, jax.random.key(3)))
    return params.nest(params.flatten(model.params) | {p: 10 * x for p, x in fresh.items()})


def words_in(batch, row) -> tuple[list[int], list[int]]:
    """The first pieces and the tags of a row's words."""
    used = batch["labels"][row] != UNUSED
    return batch["input_ids"][row][used].tolist(), batch["labels"][row][used].tolist()


@pytest.mark.parametrize("view", ["full", "chunks"])
def test_every_word_has_its_tag_at_its_first_piece_once_and_in_order(mini, long, cut, view):
    task = make(long)
    found: dict[int, tuple[list, list]] = {}
    for batch in task.dataset(cut, mini.tokenizer, view, 2, limit=10**6):
        assert batch["input_ids"].shape[1:] == {"full": (380,), "chunks": (3, 128)}[view]
        for row, doc in enumerate(batch["document"][:, 0]):
            ids, labels = words_in(batch, row)
            first, tags = found.setdefault(int(doc), ([], []))
            first += ids
            tags += labels
    for number, doc in enumerate(DOCS):
        want = [mini.tokenizer(f" {w}", add_special_tokens=False)["input_ids"][0] for w in doc.words]
        assert found[number] == (want, [TAGS.index(t) for t in doc.tags])


def test_views_have_equal_windows_and_no_word_is_split_between_pieces(cut):
    assert all(len(w) <= 3 for w in cut.pieces) and max(len(p.ids) for w in cut.pieces for p in w) <= 126
    assert all(p.labels[0] != UNUSED for w in cut.pieces for p in w), "a piece begins with a word"
    assert cut.document == sorted(cut.document) and cut.where(0) == "a.conll, line 1"


def test_a_word_longer_than_a_piece_and_one_without_pieces_are_counted(mini, caplog):
    doc = Document("x", "b.conll, line 1", words=("ab" * 49, "\u200b", "the"), tags=("O", "O", "O"))
    got = make(mini, length=32).prepare([doc], mini.tokenizer)
    assert "1 words longer than 30 tokens were cut to these, 1 without tokens read as [UNK]" in caplog.text
    assert sum(int((p.labels != UNUSED).sum()) for w in got.pieces for p in w) == 3


@pytest.mark.parametrize("way", ["packed", "buckets"])
def test_packed_and_bucketed_words_have_the_loss_of_single_windows(mini, long, cut, way):
    losses = {}
    for batches in ("fixed", way):
        task = make(long, batches=batches)
        w = weights(long, task)
        predict = jax.jit(task.predict)
        results = [(b, jax.device_get(predict(w, b))) for b in task.dataset(cut, mini.tokenizer, "full", 2, limit=10**6)]
        losses[batches] = task.score(results)
    assert losses[way]["count"] == sum(len(d.words) for d in DOCS)
    assert losses[way]["by_unit"] == losses["fixed"]["by_unit"] and losses[way]["f1"] == losses["fixed"]["f1"]
    np.testing.assert_allclose(losses[way]["loss"], losses["fixed"]["loss"], rtol=1e-5)


def test_chunks_are_encoded_apart(mini, cut):
    task = make(mini)
    w = weights(mini, task)
    batch = next(iter(task.dataset(cut, mini.tokenizer, "chunks", 1, limit=10**6)))
    got = np.asarray(task.predict(w, batch)["label"]).reshape(3, 128)
    for c, mask in enumerate(batch["attention_mask"][0]):
        if mask.any():
            alone = {"input_ids": batch["input_ids"][0, c][None], "attention_mask": mask[None]}
            x = np.asarray(mini.encode(alone))[0, : mask.sum()]
            scores = x @ np.asarray(w["tagger"]["kernel"]) + np.asarray(w["tagger"]["bias"])
            assert (got[c, : mask.sum()] == scores.argmax(-1)).all()


def test_entities_across_windows_count_once_as_conlleval_counts():
    """One document in two windows: B-PER | I-PER is one entity; a prediction without its first half is a wrong one."""
    labels = {t: i for i, t in enumerate(TAGS)}
    want = [["O", "B-PER"], ["I-PER", "O", "B-LOC"]]
    got = [["O", "O"], ["I-PER", "O", "B-LOC"]]
    results = []
    for i in (1, 0):
        n = len(want[i])
        batch = {
            "labels": np.array([[UNUSED, *(labels[t] for t in want[i])]]), "segment_ids": np.ones((1, n + 1), int),
            "example": np.array([[i]]), "document": np.array([[0]]),
        }  # fmt: skip
        results.append((batch, {"label": np.array([[0, *(labels[t] for t in got[i])]]), "loss": np.ones((1, n + 1))}))
    found = tag.score(results, TAGS, entities=True)
    assert found["accuracy"] == 4 / 5 and found["count"] == 5 and found["by_unit"] == [[0, 4, 5]]
    assert found["precision"] == 1 / 2 and found["recall"] == 1 / 2 and found["f1"] == 1 / 2
    assert [(r[0], r[3], r[4]) for r in found["per_class"]] == [("LOC", 1.0, 1), ("PER", 0.0, 1)]
    perfect = [(b, {**o, "label": np.where(b["labels"] == UNUSED, 0, b["labels"])}) for b, o in results]
    assert tag.score(perfect, TAGS, entities=True)["f1"] == 1.0


def test_tags_that_conlleval_does_not_count_are_refused(mini):
    with pytest.raises(ValueError, match="tags begin with L, U; entity F1 knows B, I, E and S"):
        make(mini, labels=("B-X", "L-X", "U-X", "O"))
    with pytest.raises(ValueError, match="c.csv, line 2: the document has no tags"):
        make(mini).prepare([Document("a", "c.csv, line 2")], mini.tokenizer)


def test_plain_tags_have_no_entity_f1(mini):
    task = make(mini, labels=("nn", "vb"))
    assert task.metrics == ("accuracy",) and make(mini).metrics == ("f1", "accuracy")


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_a_trained_tagger_loads_in_transformers(tmp_path, mini, family):
    import torch
    import transformers

    model = mini
    if family == "roberta":
        cfg = dataclasses.replace(mini.config, max_position_embeddings=130, reserved_rows=2, pad_token_id=1)
        model = lpe.model.initialise(cfg, (), family="roberta", tokenizer=mini.tokenizer)
    fitted = heads.fit(model, make(model), seed=0)
    fitted.model.save_pretrained(tmp_path / "out")
    stock = transformers.AutoModelForTokenClassification.from_pretrained(tmp_path / "out").eval()
    assert type(stock).__name__.endswith("ForTokenClassification") and stock.config.id2label[1] == "B-PER"
    ids = np.random.default_rng(0).integers(5, 500, (2, 20))
    with torch.inference_mode():
        want = stock(torch.tensor(ids)).logits.numpy()
    np.testing.assert_allclose(fitted.model.tag({"input_ids": ids}), want, atol=1e-5)
    again = lpe.from_pretrained(tmp_path / "out")
    assert again.recipe.heads == ("tagger",)
    np.testing.assert_allclose(again.tag({"input_ids": ids}), want, atol=1e-5)
    assert not heads.fit(again, make(again), seed=1).fresh


def test_a_tag_that_is_no_label_is_named(mini):
    doc = Document("a", "b.conll, line 9", words=("a",), tags=("B-ORG",))
    with pytest.raises(ValueError, match="b.conll, line 9: tag 'B-ORG' is none of"):
        make(mini).prepare([doc], mini.tokenizer)
