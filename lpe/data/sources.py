"""Where documents come from, which of them are held out, and what their labels are.

A source is an embedded name; a folder of .txt; a .txt, .jsonl, .jsonl.xz, .csv, .tsv, .parquet, .conll or .bio file; or
tfds:NAME, a data set that TFDS has prepared. lpe/data/readers.py and prepared.py say what each may hold.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from lpe import assets
from lpe.data import prepared, readers
from lpe.data.document import LABEL, TEXT, Document, Fields

log = logging.getLogger(__name__)
SPLITS = ("train", "heldout")
HELD_OUT = ("heldout", "validation", "test")  # what a source may call it
NEAR = 100  # characters within which a cut looks for a space
SHOWN = 3  # places that a message shows
DEFAULTS: dict[str, Any] = {
    "documents": 0,
    "folds": 10,
    "fold": -1,
    "heldout": "",
    "text": TEXT,
    "label": LABEL,
    "data_dir": "",
}


def documents(data: Mapping[str, Any]) -> dict[str, list[Document]]:
    """The documents of a source, by split ("train", "heldout").

    Where the source does not divide itself, fold `fold` of `folds` is held out: every document i with i % folds == fold %
    folds, counted within each label; of fewer than `folds` documents the last one, and of a single one its last tenth.

    Args:
      data: the config's group of that name; `source`, and what DEFAULTS lists:
        documents: only so many of each split, 0 for all; of labelled ones the first of every label, then the second, …
        folds, fold: see above; fold -1 is the last.
        heldout: which of the source's own splits is held out, needed where it has several beside "train".
        text, label: names of the fields, columns or features to read.
        data_dir: where TFDS keeps its data sets, "" for its default.

    Raises:
      FileNotFoundError: nothing there.
      ValueError: what cannot be read, by file and line; or a split without text.
    """
    data = check(data)
    source = data["source"]
    docs = _prepared(data) if source.startswith(prepared.PREFIX) else _own(readers.read(_path(source), _fields(data)), data)
    for d in docs:
        if not _is_text(d.text):
            raise ValueError(f"{d.where}: the text holds half a character (a lone surrogate, as \\ud800); repair the source")
    kept = [d for d in docs if d.text.strip()]
    if len(kept) < len(docs):
        places = _places(d for d in docs if not d.text.strip())
        log.warning("%s: %d of %d documents are empty and were left out: %s", source, len(docs) - len(kept), len(docs), places)
    if kept and kept[0].split is None:
        kept = _folds(kept, data)
    by_split = {s: [d for d in kept if d.split == s] for s in SPLITS}
    for split, found in by_split.items():
        if not found:
            raise ValueError(f"data {source!r} has no text for split {split!r} ({len(docs)} documents read)")
    return {split: _first(found, data["documents"]) for split, found in by_split.items()}


def check(data: Mapping[str, Any]) -> dict[str, Any]:
    """`data` with its defaults, after what can be tested without reading documents.

    Raises:
      FileNotFoundError: nothing there. ValueError: no kind that lpe reads, or a fold that does not exist.
    """
    unknown = set(data) - set(DEFAULTS) - {"source"}
    if unknown:
        raise ValueError(f"data has no key {', '.join(sorted(unknown))}; it has source, {', '.join(DEFAULTS)}")
    data = {**DEFAULTS, **data}
    source, folds, fold = data["source"], data["folds"], data["fold"]
    if folds < 2 or not -1 <= fold < folds:
        raise ValueError(f"data.folds={folds}, data.fold={fold}: allowed are folds from 2 and folds from -1 to folds - 1")
    if source.startswith(prepared.PREFIX):
        _heldout(prepared.find(source, data["data_dir"]).info.splits, data)
    else:
        readers.check(_path(source))
    return data


def labels(docs: Mapping[str, list[Document]]) -> tuple[str, ...]:
    """The label names of the training split, sorted.

    Raises:
      ValueError: a document without a label, fewer than two labels, or one that only the held-out split has; by place.
    """
    return _classes(docs, "label", lambda d: None if d.label is None else (d.label,))


def tags(docs: Mapping[str, list[Document]]) -> tuple[str, ...]:
    """The tag names of the training split, sorted. Raises ValueError as `labels` does."""
    return _classes(docs, "tag", lambda d: d.tags)


def _classes(docs: Mapping[str, list[Document]], what: str, of: Callable[[Document], tuple | None]) -> tuple[str, ...]:
    for d in (d for found in docs.values() for d in found):
        if of(d) is None:
            raise ValueError(
                f"{d.where}: the document has no {what}. Ways out: name the field with data.label (and data.text, for words), "
                "put the files of a folder into one sub-folder per label, or remove the document"
            )
    seen = {x for d in docs["train"] for x in of(d) or ()}
    if len(seen) < 2:
        raise ValueError(
            f"the training split has the {what} {', '.join(map(repr, seen))} only; two are needed. Is data.label the right "
            f"field, and data.documents large enough? The first documents: {_places(docs['train'])}"
        )
    for name in sorted({x for d in docs["heldout"] for x in of(d) or ()} - seen):
        found = [d for d in docs["heldout"] if name in (of(d) or ())]
        raise ValueError(
            f"the {what} {name!r} is in the held-out split only ({len(found)} documents: {_places(found)}), so nothing can "
            "learn it. Ways out: another data.fold or more data.folds, a larger data.documents, move such documents to the "
            f"training split, rename the {what}, or remove them"
        )
    return tuple(sorted(seen))


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _path(source: str) -> Path:
    path = assets.TEXTS.get(source, Path(source).expanduser())
    if not path.exists():
        names = ", ".join(assets.TEXTS)
        raise FileNotFoundError(f"data {source!r} is no file, no folder and none of {names}; TFDS' names begin with tfds:")
    return path


def _fields(data: Mapping[str, Any]) -> Fields:
    return Fields(data["text"], data["label"])


def _places(docs: Iterable[Document]) -> str:
    every = [d.where for d in docs]
    return "; ".join(every[:SHOWN]) + (f"; and {len(every) - SHOWN} more" if len(every) > SHOWN else "")


def _heldout(found: Iterable[str], data: Mapping[str, Any]) -> str:
    """Which of a source's own splits is held out."""
    found, source, wanted = sorted(found), data["source"], data["heldout"]
    choice = [wanted] if wanted else [s for s in HELD_OUT if s in found]
    if (data["folds"], data["fold"]) != (DEFAULTS["folds"], DEFAULTS["fold"]):
        raise ValueError(
            f"data {source!r} has splits of its own ({', '.join(found)}), so data.fold={data['fold']} of "
            f"{data['folds']} cannot be held out; leave both at their defaults, or remove the splits"
        )
    if len(choice) != 1 or choice[0] not in found or choice[0] == "train" or "train" not in found:
        raise ValueError(
            f"data {source!r} has the splits {', '.join(found)}; needs train and one to hold out: name it with data.heldout"
            + (f" (now {wanted!r})" if wanted else "")
        )
    return choice[0]


def _own(docs: list[Document], data: Mapping[str, Any]) -> list[Document]:
    """Documents of a file with the file's own splits, if it has any, as train and heldout."""
    count = Counter(d.split for d in docs)
    bare = next((d for d in docs if d.split is None), None)
    if bare is not None and len(count) == 1:
        if data["heldout"]:
            raise ValueError(f"data.heldout={data['heldout']!r}, but {data['source']!r} has no splits; it takes data.fold")
        return docs
    if bare is not None:
        raise ValueError(f"{bare.where}: no split, but {len(docs) - count[None]} other documents of this source have one")
    if not docs:
        return docs
    held = _heldout([s for s in count if s], data)
    _log_splits(data["source"], {str(s): n for s, n in count.items()}, held)
    names = {"train": "train", held: "heldout"}
    return [d._replace(split=names[d.split]) for d in docs if d.split in names]


def _prepared(data: Mapping[str, Any]) -> list[Document]:
    builder = prepared.find(data["source"], data["data_dir"])
    held = _heldout(builder.info.splits, data)
    _log_splits(data["source"], {n: s.num_examples for n, s in builder.info.splits.items()}, held)
    docs = []
    for own, split in (("train", "train"), (held, "heldout")):
        docs += [d._replace(split=split) for d in prepared.read(builder, data["source"], own, _fields(data))]
    return docs


def _log_splits(source: str, count: Mapping[str, int], held: str) -> None:
    others = ", ".join(f"{n} of split {s!r}" for s, n in count.items() if s not in ("train", held))
    left = f"; left out: {others}" if others else ""
    log.info("%s: %d documents to train on, %d held out (split %r)%s", source, count["train"], count[held], held, left)


def _folds(docs: list[Document], data: Mapping[str, Any]) -> list[Document]:
    """The documents with their split; the fold is counted within each label."""
    source, folds, fold = data["source"], data["folds"], data["fold"]
    if len(docs) == 1 and fold == DEFAULTS["fold"]:
        log.info("%s: one document; its last tenth is held out", source)
        return list(_cut(docs[0], data["folds"]))
    rank: Counter = Counter()
    held = set()
    for i, d in enumerate(docs):
        held |= {i} if rank[d.label] % folds == fold % folds else set()
        rank[d.label] += 1
    if not held and fold == DEFAULTS["fold"] and set(rank) == {None}:
        held = {len(docs) - 1}
    if not held:
        of_each = "" if set(rank) == {None} else f", at most {max(rank.values())} of one label"
        raise ValueError(
            f"data {source!r} has {len(docs)} documents{of_each}: too few for fold {fold} of {folds}; lower data.folds, or "
            "leave labels unread with data.label=''"
        )
    few = [str(label) for label, n in rank.items() if n < folds and label is not None]
    if few:
        log.warning("%s: %d labels have fewer than %d documents, so some folds hold none out: %s", source, len(few), folds, few)
    log.info("%s: %d documents, %d of them held out (fold %d of %d)", source, len(docs), len(held), fold % folds, folds)
    return [d._replace(split="heldout" if i in held else "train") for i, d in enumerate(docs)]


def _cut(doc: Document, folds: int) -> Iterable[Document]:
    """One document as two: its beginning, and its last tenth (at 10 folds), cut between words."""
    if doc.words is not None:
        cut = len(doc.words) - max(1, len(doc.words) // folds)
        for split, part in (("train", slice(cut)), ("heldout", slice(cut, None))):
            words, tagged = doc.words[part], doc.tags[part] if doc.tags is not None else None
            yield doc._replace(text=" ".join(words), split=split, words=words, tags=tagged)
        return
    cut = len(doc.text) - len(doc.text) // folds
    cut = doc.text.rfind(" ", cut - NEAR, cut) + 1 or cut
    yield doc._replace(text=doc.text[:cut], split="train")
    yield doc._replace(text=doc.text[cut:], split="heldout")


def _first(docs: list[Document], limit: int) -> list[Document]:
    """So many documents, in order; of labelled ones the first of every label, by name, then the second of every label, …"""
    if not limit or len(docs) <= limit:
        return docs
    rank: dict = defaultdict(int)
    order = []
    for i, d in enumerate(docs):
        order.append((rank[d.label], d.label or "", i))
        rank[d.label] += 1
    return [docs[i] for i in sorted(i for *_, i in sorted(order)[:limit])]
