"""Documents as windows of tokens that can be read whole or piece by piece, so that lengths are compared on equal tokens."""

import logging
from typing import NamedTuple

import numpy as np

from lpe.data import packing, reading
from lpe.data.document import Document
from lpe.data.reading import SPECIALS

log = logging.getLogger(__name__)


class Layout(NamedTuple):
    """A window is `pieces` pieces of `piece` tokens each; read whole it is one input of content + 2 tokens."""

    pieces: int
    piece: int

    @property
    def content(self) -> int:
        return self.pieces * self.piece


def layout(length: int, trained: int) -> Layout:
    """How an input of `length` tokens divides into inputs of at most `trained` tokens, special tokens included.

    384 over 128 is 3 × 126 tokens: the same 378 tokens are read as one input of 380 or as three of 128.

    Raises:
      ValueError: no room for special tokens and a token.
    """
    if length <= SPECIALS or trained <= SPECIALS:
        raise ValueError(f"length={length}, allowed is more than {SPECIALS}: [CLS] and [SEP] need their places")
    if length <= trained:
        return Layout(1, length - SPECIALS)
    pieces = max(2, (length - SPECIALS) // (trained - SPECIALS))
    return Layout(pieces, min(trained - SPECIALS, (length - SPECIALS) // pieces))


class Windows(NamedTuple):
    """tokens i32[W, content], padded with 0 behind `real` i32[W] tokens; `document` i32[W]."""

    tokens: np.ndarray
    real: np.ndarray
    document: np.ndarray
    places: tuple[str, ...] = ()  # of the documents

    def where(self, i: int) -> str:
        return self.places[self.document[i]]

    @property
    def examples(self) -> int:
        return len(self.real)

    def take(self, count: int) -> "Windows":
        """`count` windows spread evenly over the source; all of them if there are fewer."""
        at = reading.spread(self.examples, count)
        return self._replace(tokens=self.tokens[at], real=self.real[at], document=self.document[at])


class Packed(NamedTuple):
    """Windows, and rows that hold several of them: `rows` lists the windows of each."""

    windows: Windows
    rows: list[list[int]]

    def where(self, i: int) -> str:
        return self.windows.where(self.rows[i][0])

    @property
    def examples(self) -> int:
        return len(self.rows)

    def take(self, count: int) -> "Packed":
        """`count` rows spread evenly over the source; all of them if there are fewer."""
        return Packed(self.windows, [self.rows[i] for i in reading.spread(self.examples, count)])


def packed(cut: Windows, content: int) -> Packed:
    """The windows, several short ones in a row of `content` + 2 places; each has its own [CLS] and [SEP]."""
    framed, places = cut.real + SPECIALS, content + SPECIALS
    rows = packing.pack(framed, places)
    log.info(
        "%d windows packed into %d rows of %d: %.1f %% padding, against %.1f %% with one window per row",
        len(framed), len(rows), places, 100 * packing.padding(framed, rows, places),
        100 * (1 - framed.sum() / (len(framed) * places)),
    )  # fmt: skip
    return Packed(cut, rows)


def cut(docs: list[Document], tokenizer, content: int, unknown: float = 0.2, *, first: bool = False) -> Windows:
    """Consecutive windows of `content` tokens; none crosses a document's end, the last one of a document may be shorter.

    Args:
      first: only the first window of each document; how many tokens that leaves out is logged.

    Raises:
      ValueError: no tokens at all, or more than `unknown` of them unknown to the tokenizer.
    """
    rows, real, owner = [], [], []
    texts = reading.tokenize([d.text for d in docs], tokenizer, unknown)
    for number, ids in enumerate(texts):
        for start in range(0, len(ids) if not first else min(len(ids), 1), content):
            part = ids[start : start + content]
            rows.append(np.pad(part, (0, content - len(part))))
            real.append(len(part))
            owner.append(number)
    total = sum(map(len, texts))
    log.info("%d windows of %d, %.1f %% of them padding", len(rows), content, 100 * (1 - sum(real) / (len(rows) * content)))
    if first:
        left = total - sum(real)
        log.info("documents are truncated: %d of %d tokens (%.1f %%) were left out", left, total, 100 * left / total)
    return Windows(np.stack(rows), np.asarray(real, np.int32), np.asarray(owner, np.int32), tuple(d.where for d in docs))
