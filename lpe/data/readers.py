"""Files as documents: text, JSON lines, CSV, TSV, Parquet, CoNLL columns. Every error names file and line."""

import csv
import io
import json
import logging
import lzma
import re
import sys
from collections.abc import Callable
from pathlib import Path

from lpe.data.document import SPLIT, SPLITS, TAGS, WORDS, Document, Fields, from_row, tagged

log = logging.getLogger(__name__)
DOCSTART = "-DOCSTART-"


def check(path: Path) -> None:
    """Raises ValueError for a kind of file that lpe does not read, FileNotFoundError for a folder without text."""
    if path.is_dir():
        if next(path.rglob("*.txt"), None) is None:
            raise FileNotFoundError(f"data folder {str(path)!r} holds no .txt file")
    elif path.name.endswith(".jsonl.xz"):
        return
    elif path.suffix not in READERS:
        raise ValueError(f"data {str(path)!r}: lpe reads folders of .txt, .jsonl.xz, {', '.join(READERS)}, and tfds:NAME")


def read(path: Path, fields: Fields) -> list[Document]:
    """The documents of a file or folder, in order.

    Raises:
      FileNotFoundError: a folder without text.
      ValueError: by file and line, what cannot be read.
    """
    check(path)
    if path.is_dir():
        return _folder(path)
    return READERS[".jsonl" if path.name.endswith(".jsonl.xz") else path.suffix](path, fields)


def _folder(path: Path) -> list[Document]:
    """Its .txt files. Folders called as splits are splits; below them, files all exactly one level deep have it as label."""
    every = sorted(f for f in path.rglob("*") if f.is_file())
    files, others = [f for f in every if f.suffix == ".txt"], [f for f in every if f.suffix != ".txt"]
    if others:
        log.warning("%s: %d files are not .txt and were left out, as %s", path, len(others), others[0].name)
    places = [f.relative_to(path).parts[:-1] for f in files]
    by_split = all(p and p[0] in SPLITS for p in places)
    inner = [p[1:] if by_split else p for p in places]
    labelled = all(len(p) == 1 for p in inner)
    return [
        Document(_text(f), str(f), p[0] if by_split else None, q[0] if labelled else None)
        for f, p, q in zip(files, places, inner, strict=True)
    ]


def _plain(path: Path, fields: Fields) -> list[Document]:
    return [Document(_text(path), str(path))]


def _text(path: Path) -> str:
    raw = path.read_bytes()
    try:
        raw = lzma.decompress(raw) if path.suffix == ".xz" else raw
        return raw.decode("utf-8-sig")
    except lzma.LZMAError as e:
        raise ValueError(f"{path} is damaged: {e}") from e
    except UnicodeDecodeError as e:
        line = raw[: e.start].count(b"\n") + 1
        raise ValueError(f"{path}, line {line}: not UTF-8 ({e.reason} at byte {e.start}); convert the file first") from e


def _json_lines(path: Path, fields: Fields) -> list[Document]:
    docs = []
    for number, line in enumerate(_text(path).split("\n"), 1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            row = json.loads(line)
        except ValueError as e:
            raise ValueError(f"{where}: not JSON ({e})") from e
        if not isinstance(row, dict):
            raise ValueError(f"{where}: needs an object with a field {fields.text!r}")
        docs.append(from_row(row, where, fields))
    return docs


def _table(path: Path, fields: Fields) -> list[Document]:
    """CSV (RFC 4180) or, with tabs, TSV; the first row names the columns."""
    docs, header, start = [], [], 1
    before = csv.field_size_limit(sys.maxsize)  # Python's limit of 128 KiB is below a long document
    try:
        rows = csv.reader(io.StringIO(_text(path), newline=""), delimiter="\t" if path.suffix == ".tsv" else ",", strict=True)
        for row in rows:
            where = f"{path}, line {start}"
            start = rows.line_num + 1
            if not row:
                continue
            if not header:
                header = row
                if len(set(header)) < len(header):
                    raise ValueError(f"{where}: two columns have one name among {', '.join(header)}")
                continue
            if len(row) != len(header):
                raise ValueError(
                    f"{where}: {len(row)} cells, but {len(header)} columns ({', '.join(header)}); quote a cell that holds "
                    "the separator"
                )
            docs.append(from_row(dict(zip(header, row, strict=True)), where, fields))
    except csv.Error as e:
        raise ValueError(
            f"{path}, line {start}: {e} in the row that begins here; a quote inside a cell is written twice, the cell in quotes"
        ) from e
    finally:
        csv.field_size_limit(before)
    return docs


def _parquet(path: Path, fields: Fields) -> list[Document]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        wanted = [c for c in pq.read_schema(path).names if c in (*fields, WORDS, TAGS, SPLIT)]
        rows = pq.read_table(path, columns=wanted or None).to_pylist()
    except pa.ArrowException as e:
        raise ValueError(f"{path} is no Parquet file that can be read: {e}") from e
    return [from_row(row, f"{path}, row {number}", fields) for number, row in enumerate(rows, 1)]


def _columns(path: Path, fields: Fields) -> list[Document]:
    """CoNLL columns: word first, tag last; a blank line ends a sentence. Where -DOCSTART- lines stand, a document is what
    lies between them, its sentences joined; else it is a sentence."""
    lines = _text(path).split("\n")
    whole = any(line.startswith(DOCSTART) for line in lines)
    docs: list[Document] = []
    words: list[str] = []
    tags: list[str] = []
    start = width = 0
    for number, line in enumerate([*lines, DOCSTART], 1):
        if line.startswith(DOCSTART) or (not line.strip() and not whole):
            if words:
                docs.append(tagged(words, tags, f"{path}, line {start}"))
            words, tags = [], []
        elif line.strip():
            cells = line.rstrip("\r").split("\t") if "\t" in line else re.split(" +", line.strip(" \r"))
            width = width or len(cells)
            if len(cells) < 2 or len(cells) != width or not (cells[0] and cells[-1]):
                raise ValueError(
                    f"{path}, line {number}: {len([c for c in cells if c])} columns, but {max(width, 2)} are expected: word "
                    "first, tag last"
                )
            start = start if words else number
            words.append(cells[0])
            tags.append(cells[-1])
    return docs


READERS: dict[str, Callable[[Path, Fields], list[Document]]] = {
    ".txt": _plain,
    ".jsonl": _json_lines,
    ".csv": _table,
    ".tsv": _table,
    ".parquet": _parquet,
    ".conll": _columns,
    ".bio": _columns,
}
