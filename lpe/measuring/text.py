"""Real text of any length: the documents of a source in sequence, as the tokens of a checkpoint."""

import numpy as np

from lpe.data import reading
from lpe.data.document import Document
from lpe.data.reading import SPECIALS
from lpe.tasks import base


class Sequence:
    """Tokens of documents one after the other, without special ones; `ends` are the places where documents end."""

    def __init__(self, docs: list[Document], tokenizer, vocab_size: int):
        """Raises ValueError without a tokenizer, where it does not fit the model, or where there is no text for it."""
        base.check_tokenizer(tokenizer, vocab_size)
        parts = reading.tokenize([d.text for d in docs], tokenizer)
        self.tokenizer, self.tokens = tokenizer, np.concatenate(parts)
        self.ends = np.cumsum([len(p) for p in parts])

    def documents(self, length: int) -> int:
        """How many documents the first input of `length` has something of."""
        return 1 + int(np.searchsorted(self.ends, length - SPECIALS))

    def check(self, length: int, what: str) -> None:
        """Raises ValueError where the text is shorter than one input of `length`; `what` names the text."""
        if length - SPECIALS > len(self.tokens):
            raise ValueError(
                f"{what} has {len(self.tokens)} tokens, and an input of {length} needs {length - SPECIALS}; take a smaller "
                "length, or more text"
            )

    def input(self, length: int, start: int = 0) -> np.ndarray:
        """[CLS], the tokens from `start` on, [SEP]: i32[length]."""
        return reading.frame(self.tokens[start : start + length - SPECIALS], self.tokenizer)
