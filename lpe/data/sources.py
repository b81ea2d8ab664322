"""Where documents come from: the embedded speeches, a folder of text, a text file, or JSON lines with a `text` field."""

import json
import logging
import lzma
from pathlib import Path
from typing import NamedTuple

from lpe import assets

log = logging.getLogger(__name__)
SPLITS = ("train", "heldout")
NEAR = 100  # characters within which a cut looks for a space
EVERY = 10  # one document in ten is held out where a source does not say which


class Document(NamedTuple):
    """One text and where it stands, for messages."""

    text: str
    where: str
    split: str | None = None


def documents(source: str, limit: int = 0) -> dict[str, list[Document]]:
    """The documents of a source, by split ("train", "heldout").

    JSON lines may carry "split"; elsewhere every tenth document is held out, and of a single document its last tenth.

    Args:
      source: an embedded name, a folder (its .txt files, recursively), a .txt file, or .jsonl, also .jsonl.xz.
      limit: only the first so many documents of each split; 0 for all.

    Raises:
      FileNotFoundError: nothing there.
      ValueError: an encoding, a line or a field that cannot be read, by file and line; or a split without text.
    """
    docs = _read(source)
    kept = [d for d in docs if d.text.strip()]
    if len(kept) < len(docs):
        log.warning("%s: %d of %d documents are empty and were left out", source, len(docs) - len(kept), len(docs))
    if kept and not any(d.split for d in kept):
        kept = _split(kept, source)
    by_split = {s: [d for d in kept if d.split == s] for s in SPLITS}
    for split, found in by_split.items():
        if not found:
            raise ValueError(f"data {source!r} has no text for split {split!r} ({len(docs)} documents read)")
    return {split: found[: limit or None] for split, found in by_split.items()}


def check(source: str) -> Path:
    """Where a source is. Raises FileNotFoundError when it is nowhere."""
    path = assets.TEXTS.get(source, Path(source).expanduser())
    if not path.exists():
        raise FileNotFoundError(f"data {source!r} is no file, no folder and none of {', '.join(assets.TEXTS)}")
    return path


def _read(source: str) -> list[Document]:
    path = check(source)
    if path.is_dir():
        files = sorted(path.rglob("*.txt"))
        if not files:
            raise FileNotFoundError(f"data folder {source!r} holds no .txt file")
        return [Document(_decode(f.read_bytes(), f), str(f)) for f in files]
    if path.name.endswith((".jsonl", ".jsonl.xz")):
        raw = path.read_bytes()
        try:
            raw = lzma.decompress(raw) if path.suffix == ".xz" else raw
        except lzma.LZMAError as e:
            raise ValueError(f"{path} is damaged: {e}") from e
        return _json_lines(_decode(raw, path), path)
    if path.suffix == ".txt":
        return [Document(_decode(path.read_bytes(), path), str(path))]
    raise ValueError(f"data {source!r}: lpe reads folders of .txt, .txt, .jsonl and .jsonl.xz")


def _decode(raw: bytes, path: Path) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        line = raw[: e.start].count(b"\n") + 1
        raise ValueError(f"{path}, line {line}: not UTF-8 ({e.reason} at byte {e.start}); convert the file first") from e


def _json_lines(text: str, path: Path) -> list[Document]:
    docs = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as e:
            raise ValueError(f"{path}, line {number}: not JSON ({e})") from e
        if not isinstance(row, dict) or not isinstance(row.get("text"), str):
            raise ValueError(f"{path}, line {number}: needs an object with a string 'text'")
        if row.get("split") not in (*SPLITS, None):
            raise ValueError(f"{path}, line {number}: split={row['split']!r}, allowed are {', '.join(SPLITS)}")
        docs.append(Document(row["text"], f"{path}, line {number}", row.get("split")))
    return docs


def _split(docs: list[Document], source: str) -> list[Document]:
    if len(docs) == 1:
        text, where, _ = docs[0]
        cut = len(text) - len(text) // EVERY
        cut = text.rfind(" ", cut - NEAR, cut) + 1 or cut
        log.info("%s: one document; its last tenth is held out", source)
        return [Document(text[:cut], where, "train"), Document(text[cut:], where, "heldout")]
    held = [i for i in range(len(docs)) if i % EVERY == EVERY - 1] or [len(docs) - 1]
    log.info("%s: %d documents, %d of them held out (every tenth)", source, len(docs), len(held))
    return [d._replace(split="heldout" if i in set(held) else "train") for i, d in enumerate(docs)]
