"""Sequence labelling (Devlin et al. 2018, §5.3): one tag a word, read at the word's first piece, scored as conlleval does.

A document is cut between words into windows. One window can be read in two ways, so that lengths are compared on equal words:
  full    one input of the whole length
  chunks  the same words as several inputs of the trained length, their states side by side
"""

import logging
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import optax
from jax import Array

from lpe import linear
from lpe.data import batching, reading, sources, windows
from lpe.models import heads, pooling
from lpe.tasks import base
from lpe.tasks.base import UNUSED, Task, View

log = logging.getLogger(__name__)
ABOUT = (
    "Entity F1 as seqeval and conlleval count it, and the accuracy of the words' tags ± standard error (documents as the unit "
    "of sampling; ? with a single one), on held-out documents, the same words in every row."
)
PLAIN = "Accuracy of the words' tags ± standard error (documents as the unit of sampling; ? with a single one)."


class Piece(NamedTuple):
    """Consecutive words of a document that fit into one input of the trained length: ids, and labels i32[t], both by token."""

    ids: np.ndarray
    labels: np.ndarray


class Windows(NamedTuple):
    """Windows of at most so many pieces; a window lies within one document."""

    pieces: list[list[Piece]]
    document: list[int]
    places: list[str]

    def take(self, count: int) -> "Windows":
        """The windows of `count` documents, evenly spread: entities are whole only in whole documents."""
        known = sorted(set(self.document))
        kept = {known[i] for i in reading.spread(len(known), count)}
        at = [i for i, d in enumerate(self.document) if d in kept]
        return Windows([self.pieces[i] for i in at], [self.document[i] for i in at], [self.places[i] for i in at])

    def where(self, i: int) -> str:
        return self.places[i]


def labels_of(docs: dict[str, list]) -> tuple[str, ...]:
    """The tags of the data, sorted."""
    return sources.tags(docs)


def make(cfg, encode: Callable, *, length: int, labels: Sequence[str] = (), batches: str = "fixed") -> Task:
    """The tagging task.

    Args:
      cfg: the model's config.
      encode: (params, batch, *, key) -> ([B, T, D], Tokens).
      length: tokens of an input, [CLS] and [SEP] included; beyond the trained rows it is divided for the view `chunks`.
      labels: the tags in order. Default: those of the training documents.
      batches: fixed, buckets or packed (lpe/data/batching.py).

    Raises:
      ValueError: a value outside its range.
    """
    base.check_length(length)
    base.check_choice("batches", batches, batching.WAYS)
    lay = windows.layout(length, cfg.max_position_embeddings - cfg.reserved_rows)
    whole, piece = lay.content + reading.SPECIALS, lay.piece + reading.SPECIALS
    views = {"full": View(f"1 × {whole}", whole), "chunks": View(f"{lay.pieces} × {piece}", piece)}
    cfg = replace(cfg, num_labels=len(labels) or cfg.num_labels)
    entities = _entity_tags(labels)

    def logits(params: dict, batch: dict[str, Array], key: Array | None) -> Array:
        x_BTD, _ = pooling.encode(encode, params, batch, key)
        return heads.tag(params, cfg, linear.dropout(x_BTD, cfg.hidden_dropout_prob, base.head_key(key)))

    def loss(params: dict, batch: dict[str, Array], key: Array | None):
        scores = logits(params, batch, key)
        return base.cross_entropy(scores, batch["labels"].reshape(scores.shape[:2]))

    def predict(params: dict, batch: dict[str, Array]) -> dict[str, Array]:
        scores = logits(params, batch, None)
        labels = batch["labels"].reshape(scores.shape[:2])
        return {
            "label": scores.argmax(-1),
            "loss": optax.softmax_cross_entropy_with_integer_labels(scores, labels.clip(0)),
        }

    def dataset(
        cut: Windows, tokenizer, view: str, batch_size: int, *, seed: int = 0, limit: int | None = None, multiple_of=1
    ):  # fmt: skip
        cut = cut if limit is None else cut.take(limit)
        if view == "chunks":
            base.check_choice("batches (with the view 'chunks', whose inputs have one shape already)", batches, ("fixed",))

        def read(i: int) -> batching.Item:
            tokens = _chunks(cut.pieces[i], lay, tokenizer) if view == "chunks" else _whole(cut.pieces[i], tokenizer)
            return batching.Item(tokens, {"example": i, "document": cut.document[i]})

        sizes = [piece if view == "chunks" else reading.SPECIALS + sum(len(p.ids) for p in w) for w in cut.pieces]
        return batching.dataset(
            sizes, read, way=batches, length=views[view].length, batch_size=batch_size, seed=seed if limit is None else None,
            fill={"input_ids": tokenizer.pad_token_id or 0, "labels": UNUSED}, multiple_of=multiple_of,
        )  # fmt: skip

    return Task(
        heads.tagger_specs(cfg), (), ("tagger",), tuple(labels), views, partial(prepare, labels=labels, lay=lay), dataset, loss,
        predict, partial(score, labels=tuple(labels), entities=entities),
        partial(base.check_tokenizer, vocab_size=cfg.vocab_size),
        ("f1", "accuracy") if entities else ("accuracy",), "words", "documents", ABOUT if entities else PLAIN,
    )  # fmt: skip


def _entity_tags(labels: Sequence[str]) -> bool:
    """Whether the tags mark entities, as B-PER; yes where they are not known yet.

    Raises:
      ValueError: prefixes that conlleval does not count.
    """
    prefixes = {x[0] for x in labels if x != "O" and re.fullmatch(r"[A-Z]-.+", x)}
    if not all(x == "O" or re.fullmatch(r"[A-Z]-.+", x) for x in labels):
        return False
    if prefixes - set("BIES"):
        odd = ", ".join(sorted(prefixes - set("BIES")))
        raise ValueError(f"tags begin with {odd}; entity F1 knows B, I, E and S (and O alone): write U as S, L as E")
    return True


def prepare(docs, tokenizer, *, labels: Sequence[str], lay: windows.Layout) -> Windows:
    """Cuts documents between words into pieces and windows.

    A word longer than a piece keeps its first tokens, one without any becomes [UNK]; both are counted and logged.

    Raises:
      ValueError: a tag that is not among the labels, with its document.
    """
    numbers = {name: i for i, name in enumerate(labels)}
    out, long, none = Windows([], [], []), 0, 0
    for number, doc in enumerate(docs):
        if doc.tags is None:
            raise ValueError(f"{doc.where}: the document has no tags; this task needs words and tags (see lpe/data/sources.py)")
        unknown = sorted(set(doc.tags) - set(numbers))
        if unknown:
            raise ValueError(f"{doc.where}: tag {unknown[0]!r} is none of {list(labels)}")
        ids = tokenizer([f" {w}" for w in doc.words], add_special_tokens=False, verbose=False)["input_ids"]
        long, none = long + sum(len(x) > lay.piece for x in ids), none + sum(not x for x in ids)
        ids = [x[: lay.piece] or [tokenizer.unk_token_id] for x in ids]
        pieces = [_piece(part, ids, [numbers[t] for t in doc.tags]) for part in _fill([len(x) for x in ids], lay.piece)]
        for start in range(0, len(pieces), lay.pieces):
            out.pieces.append(pieces[start : start + lay.pieces])
            out.document.append(number)
            out.places.append(doc.where)
    if long or none:
        log.warning("%d words longer than %d tokens were cut to these, %d without tokens read as [UNK]", long, lay.piece, none)
    log.info("%d documents, %d windows of at most %d tokens", len(docs), len(out.pieces), lay.content + reading.SPECIALS)
    return out


def _fill(sizes: list[int], room: int) -> list[range]:
    """Ranges of consecutive words, each with at most `room` tokens."""
    starts, used = [0], 0
    for i, size in enumerate(sizes):
        if used + size > room:
            starts.append(i)
            used = 0
        used += size
    return [range(a, b) for a, b in zip(starts, [*starts[1:], len(sizes)], strict=True)]


def _piece(words: range, ids: list[list[int]], tags: list[int]) -> Piece:
    labels = [[tags[w], *[UNUSED] * (len(ids[w]) - 1)] for w in words]
    return Piece(np.concatenate([ids[w] for w in words]).astype(np.int32), np.concatenate(labels).astype(np.int32))


def _whole(pieces: list[Piece], tokenizer) -> dict[str, np.ndarray]:
    ids, labels = (np.concatenate(x) for x in zip(*pieces, strict=True))
    return {"input_ids": reading.frame(ids, tokenizer), "labels": np.pad(labels, 1, constant_values=UNUSED)}


def _chunks(pieces: list[Piece], lay: windows.Layout, tokenizer) -> dict[str, np.ndarray]:
    shape = (lay.pieces, lay.piece + reading.SPECIALS)
    ids, labels = np.full(shape, tokenizer.pad_token_id or 0), np.full(shape, UNUSED)
    mask = np.zeros(shape, np.int32)
    for c, p in enumerate(pieces):
        size = len(p.ids) + reading.SPECIALS
        ids[c, :size], labels[c, 1 : size - 1], mask[c, :size] = reading.frame(p.ids, tokenizer), p.labels, 1
    return {"input_ids": ids, "labels": labels, "attention_mask": mask}


def score(results: Iterable[tuple[dict, dict]], labels: tuple[str, ...], entities: bool) -> dict:
    """Entity F1 (seqeval, as conlleval) over whole documents, and the accuracy of the words' tags.

    by_unit: [[document, right, words], …].
    """
    windows_of: dict[int, dict[int, tuple]] = {}
    losses: list[float] = []
    for batch, out in results:
        rows = len(batch["labels"])
        want, mark = batch["labels"].reshape(rows, -1), batch["segment_ids"].reshape(rows, -1)
        for r, s in np.argwhere(batch["example"] >= 0):
            at = (mark[r] == s + 1) & (want[r] != UNUSED)
            base.check_finite([float(out["loss"][r][at].sum())], [int(batch["example"][r, s])])
            losses += out["loss"][r][at].tolist()
            found = windows_of.setdefault(int(batch["document"][r, s]), {})
            found[int(batch["example"][r, s])] = (want[r][at], out["label"][r][at])
    pairs = {
        d: [np.concatenate(x) for x in zip(*(w[i] for i in sorted(w)), strict=True)] for d, w in sorted(windows_of.items())
    }
    by_unit = [[d, int((want == got).sum()), len(want)] for d, (want, got) in pairs.items()]
    accuracy, se = base.ratio(np.asarray(by_unit)[:, 1], np.asarray(by_unit)[:, 2])
    out = {"accuracy": accuracy, "accuracy_se": se, "loss": float(np.mean(losses)), "count": len(losses), "by_unit": by_unit}
    return (_entities(pairs, labels) if entities else {}) | out


def _entities(pairs: dict[int, list[np.ndarray]], labels: tuple[str, ...]) -> dict:
    from seqeval import metrics

    want, got = ([[labels[i] for i in pair[side]] for pair in pairs.values()] for side in (0, 1))
    report: Any = metrics.classification_report(want, got, output_dict=True, zero_division=0)  # pyright: ignore[reportArgumentType]
    total = report["micro avg"]
    kinds = {k: v for k, v in report.items() if not k.endswith(" avg")}
    names = ("precision", "recall", "f1-score")
    return {
        **{name.removesuffix("-score"): float(total[name]) for name in names},
        "per_class": [[k, *(round(float(v[x]), 4) for x in names), int(v["support"])] for k, v in kinds.items()],
    }
