"""One text with what is known of it, and how a row of any table becomes one."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

TEXT, LABEL, WORDS, TAGS = "text", "label", "tokens", "tags"  # the fields that are read unless the config names others
SPLIT = "split"
SPLITS = ("train", "heldout", "validation", "test")


class Document(NamedTuple):
    """One text, where it stands, and what its source says of it.

    text: words joined by blanks where the source has words.
    where: for messages, as "a.csv, line 3".
    split: train, heldout, validation or test; None where the source does not say.
    label: class name. words, tags: of equal number, for tagging.
    """

    text: str
    where: str
    split: str | None = None
    label: str | None = None
    words: tuple[str, ...] | None = None
    tags: tuple[str, ...] | None = None


class Fields(NamedTuple):
    """The fields (columns, features) that hold text or words, and the label or tags; label "" reads none."""

    text: str = TEXT
    label: str = LABEL


def from_row(row: Mapping[str, Any], where: str, fields: Fields, names: Mapping[str, Sequence[str]] | None = None) -> Document:
    """A document from a row: a string is text, a list of strings is words. Whole numbers as labels become their digits.

    A row without the text field that has "tokens" is read as words with "tags".

    Args:
      names: class names of fields whose labels are numbers; -1 is no label.

    Raises:
      ValueError: by place, a field that is missing or of another type, or tags that are not as many as words.
    """
    text, label = fields
    if text == TEXT and TEXT not in row and isinstance(row.get(WORDS), (list, tuple, np.ndarray)):
        text, label = WORDS, TAGS
    if text not in row:
        raise ValueError(f"{where}: no field {text!r} among {', '.join(map(repr, row))}; name the one to read with data.text")
    if label not in row and label not in (LABEL, TAGS, ""):
        raise ValueError(f"{where}: no field {label!r} among {', '.join(map(repr, row))}; data.label asks for it ('' for none)")
    split = row.get(SPLIT) or None
    if split not in (*SPLITS, None):
        raise ValueError(f"{where}: split={split!r}, allowed are {', '.join(SPLITS)}")
    value, mark = _plain(row[text], f"{where}, field {text!r}"), _plain(row.get(label), f"{where}, field {label!r}")
    known = (names or {}).get(label)
    if isinstance(value, str):
        return Document(value, where, split, _name(mark, f"{where}, field {label!r}", known))
    if not isinstance(value, list) or not all(isinstance(w, str) for w in value):
        raise ValueError(f"{where}: field {text!r} is {value!r:.60}; needs a string, or a list of strings (words)")
    if not isinstance(mark, list):
        return Document(" ".join(value), where, split, _name(mark, f"{where}, field {label!r}", known), tuple(value))
    return tagged(value, [_name(m, f"{where}, field {label!r}", known) for m in mark], where, split)


def tagged(words: Sequence[str], tags: Sequence[str | None], where: str, split: str | None = None) -> Document:
    """A document of words with one tag each. Raises ValueError, by place, where their numbers differ or a tag is missing."""
    if len(words) != len(tags):
        raise ValueError(f"{where}: {len(words)} words but {len(tags)} tags; each word needs one")
    named = tuple(t for t in tags if t is not None)
    if len(named) < len(tags):
        raise ValueError(f"{where}: word {list(tags).index(None)} has no tag")
    return Document(" ".join(words), where, split, None, tuple(words), named)


def _plain(value: Any, where: str) -> Any:
    """Bytes and NumPy values, as TFDS gives them, as Python's own."""
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError as e:
            raise ValueError(f"{where}: not UTF-8 ({e.reason} at byte {e.start})") from e
    if isinstance(value, (np.ndarray, np.generic)):
        return _plain(value.tolist(), where)
    return [_plain(v, where) for v in value] if isinstance(value, (list, tuple)) else value


def _name(value: Any, where: str, known: Sequence[str] | None) -> str | None:
    if value is None or value == "" or (known and value == -1):
        return None
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        if known and not 0 <= value < len(known):
            raise ValueError(f"{where}: label {value}, but the source names {len(known)} labels")
        return known[value] if known else str(value)
    raise ValueError(f"{where}: {value!r:.60} is no label; needs a string or a whole number (data.label='' reads none)")
