"""Classification of documents (Devlin et al. 2018, §4.1), with the usual ways to read what is longer than the model.

full       the first `length` tokens as one input: what an extended model reads
truncate   the first n, n the trained rows
head_tail  the first quarter of n and the last three quarters (Sun et al., arXiv 1905.05583, §5.3.1)
chunks     as many inputs of n as fill `length`, encoded apart and pooled together
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from lpe import linear
from lpe.data import batching, reading, sources
from lpe.models import heads, pooling
from lpe.tasks import base
from lpe.tasks.base import UNUSED, Task, View

log = logging.getLogger(__name__)
ABOUT = (
    "Accuracy ± standard error (documents as the unit of sampling; ? with a single one) and macro-F1, the mean F1 of all "
    "classes, on held-out documents, the same ones in every row."
)


class Texts(NamedTuple):
    """Tokenized documents: ids without special tokens, the number of the class, where each stands."""

    ids: list[np.ndarray]
    labels: list[int]
    places: list[str]

    def take(self, count: int) -> "Texts":
        """`count` documents spread evenly; all of them if there are fewer."""
        at = reading.spread(len(self.ids), count)
        return Texts(*([x[i] for i in at] for x in self))

    def where(self, i: int) -> str:
        return self.places[i]


def labels_of(docs: dict[str, list]) -> tuple[str, ...]:
    """The classes of the data, sorted."""
    return sources.labels(docs)


def make(
    cfg,
    encode: Callable,
    *,
    length: int,
    labels: Sequence[str] = (),
    pool: str = "cls",
    batches: str = "fixed",
) -> Task:
    """The classification task.

    Args:
      cfg: the model's config.
      encode: (params, batch, *, key) -> ([B, T, D], Tokens).
      length: tokens of an input of the view `full`, [CLS] and [SEP] included.
      labels: the classes in order. Default: those of the training documents.
      pool: cls, the pooler of the family's stock class, mostly over the first token; mean or max over the tokens.
      batches: fixed, buckets or packed (lpe/data/batching.py).

    Raises:
      ValueError: a value outside its range.
    """
    base.check_length(length)
    base.check_choice("pool", pool, pooling.POOLING)
    base.check_choice("batches", batches, batching.WAYS)
    n = min(length, cfg.max_position_embeddings - cfg.reserved_rows)
    count = length // n
    views = {
        "full": View(f"first {length}", length),
        "truncate": View(f"first {n}", n),
        "head_tail": View(f"head + tail, {n}", n),
        "chunks": View(f"{count} × {n}, pooled", n),
    }
    cfg = replace(cfg, num_labels=len(labels) or cfg.num_labels)
    specs = heads.classifier_specs(cfg) | (heads.pooler_specs(cfg) if pool == "cls" else {})

    def logits(params: dict, batch: dict[str, Array], key: Array | None) -> Array:
        x_BTD, tok = pooling.encode(encode, params, batch, key)
        stock = pool == "cls"
        x_BSD = pooling.pool(x_BTD, tok, batch["labels"].shape[1], cfg.classifier_pooling if stock else pool)
        if stock:
            x_BSD = heads.transform(params["pooler"], cfg, x_BSD)
        x_BSD = linear.dropout(x_BSD, cfg.hidden_dropout_prob, base.head_key(key))
        return linear.dense(params["classifier"], x_BSD).astype(jnp.float32)

    def loss(params: dict, batch: dict[str, Array], key: Array | None):
        return base.cross_entropy(logits(params, batch, key), batch["labels"])

    def predict(params: dict, batch: dict[str, Array]) -> dict[str, Array]:
        scores = logits(params, batch, None)
        each = optax.softmax_cross_entropy_with_integer_labels(scores, jnp.maximum(batch["labels"], 0))
        return {"label": scores.argmax(-1), "loss": each}

    return Task(
        specs, (), ("pooler", "classifier") if pool == "cls" else (), tuple(labels), views, partial(prepare, labels=labels),
        partial(dataset, views=views, batches=batches), loss, predict,
        partial(score, labels=tuple(labels)), partial(base.check_tokenizer, vocab_size=cfg.vocab_size),
        ("accuracy", "macro_f1"), "documents", "documents", ABOUT,
    )  # fmt: skip


def prepare(docs, tokenizer, *, labels: Sequence[str]) -> Texts:
    """Tokenizes the documents, whole.

    Raises:
      ValueError: a document of which the tokenizer makes nothing, or with a label that is none of these, by its place.
    """
    ids = reading.tokenize([d.text for d in docs], tokenizer)
    empty = [d.where for d, x in zip(docs, ids, strict=True) if not len(x)]
    if empty:
        raise ValueError(f"the tokenizer makes no token of {', '.join(empty[:3])}; leave such documents out")
    numbers = {name: i for i, name in enumerate(labels)}
    unknown = [d for d in docs if d.label not in numbers]
    if unknown:
        raise ValueError(f"{unknown[0].where}: label {unknown[0].label!r} is none of task.labels={list(labels)}")
    return Texts(ids, [numbers[d.label] for d in docs], [d.where for d in docs])


def dataset(
    texts: Texts, tokenizer, view: str, batch_size: int, *, views: dict[str, View], batches: str, seed: int = 0,
    limit: int | None = None, multiple_of: int = 1,
):  # fmt: skip
    """Batches of documents read in a view; see Task.dataset."""
    texts = texts if limit is None else texts.take(limit)
    length = views[view].length
    if view == "chunks":
        base.check_choice("batches (with the view 'chunks', whose inputs have one shape already)", batches, ("fixed",))
        count = views["full"].length // length
        tokens = [reading.chunks(x, length, count, tokenizer) for x in texts.ids]
    else:
        tokens = [{"input_ids": reading.frame(reading.READINGS[view](x, length), tokenizer)} for x in texts.ids]

    read_tokens = sum(int(x.get("attention_mask", x["input_ids"] >= 0).sum() - 2 * _inputs(x)) for x in tokens)
    total = sum(map(len, texts.ids))
    log.info(
        "%s reads %d of %d tokens (%.1f %%) of %d documents", view, read_tokens, total, 100 * read_tokens / total, len(tokens)
    )

    def read(i: int) -> batching.Item:
        return batching.Item(tokens[i], {"labels": texts.labels[i], "example": i})

    return batching.dataset(
        [x["input_ids"].shape[-1] for x in tokens], read, way=batches, length=length, batch_size=batch_size,
        seed=seed if limit is None else None, fill={"input_ids": tokenizer.pad_token_id or 0, "labels": UNUSED},
        multiple_of=multiple_of,
    )  # fmt: skip


def _inputs(tokens: dict[str, np.ndarray]) -> int:
    """How many framed inputs a document became."""
    return int(tokens["attention_mask"].any(axis=-1).sum()) if "attention_mask" in tokens else 1


def score(results: Iterable[tuple[dict, dict]], labels: tuple[str, ...]) -> dict:
    """Accuracy, macro-F1 and per class: precision, recall, F1 and support.

    A class that is neither predicted nor there has F1 0, as in scikit-learn with zero_division=0; macro-F1 is the mean over all
    classes. by_unit: [[document, right, 1], …].
    """
    found: dict[int, tuple[int, int, float]] = {}
    for batch, out in results:
        used = batch["labels"] != UNUSED
        for row in zip(
            *(x[used].tolist() for x in (batch["example"], batch["labels"], out["label"], out["loss"])), strict=True
        ):
            found[row[0]] = row[1:]
    base.check_finite([x[2] for x in found.values()], list(found))
    table = np.zeros((len(labels), len(labels)), int)
    for want, got, _ in found.values():
        table[want, got] += 1
    hit, support, predicted = np.diag(table), table.sum(axis=1), table.sum(axis=0)
    precision, recall = hit / np.maximum(predicted, 1), hit / np.maximum(support, 1)
    f1 = 2 * hit / np.maximum(support + predicted, 1)
    n, accuracy = len(found), float(hit.sum() / len(found))
    return {
        "accuracy": accuracy,
        "accuracy_se": float(np.sqrt(accuracy * (1 - accuracy) / (n - 1))) if n > 1 else None,
        "macro_f1": float(f1.mean()),
        "loss": float(np.mean([x[2] for x in found.values()])),
        "count": n,
        "by_unit": [[i, int(want == got), 1] for i, (want, got, _) in sorted(found.items())],
        "per_class": [
            [name, *(round(float(x[i]), 4) for x in (precision, recall, f1)), int(support[i])] for i, name in enumerate(labels)
        ],
        "confusion": table.tolist(),
    }
