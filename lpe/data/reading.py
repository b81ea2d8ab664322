"""A document's tokens as the input of a model: its beginning, its beginning and end, all of it in chunks."""

import logging
from collections.abc import Sequence

import numpy as np

log = logging.getLogger(__name__)
SPECIALS = 2  # [CLS] … [SEP]
HEAD = 0.25  # of the places go to the beginning: 128 of 512 (Sun et al., arXiv 1905.05583, §5.3.1)


def token_ids(texts: Sequence[str], tokenizer) -> list[np.ndarray]:
    """Without special tokens, i32[t] a text; nothing is cut."""
    return [np.asarray(x, np.int32) for x in tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]]


def tokenize(texts: Sequence[str], tokenizer, unknown: float = 0.2) -> list[np.ndarray]:
    """The `token_ids` of documents, with a line about them.

    Raises:
      ValueError: no tokens at all, or more than `unknown` of them unknown to the tokenizer.
    """
    out = token_ids(texts, tokenizer)
    total = sum(map(len, out))
    unk = sum(int((x == tokenizer.unk_token_id).sum()) for x in out)
    if total == 0:
        raise ValueError(f"the tokenizer made no tokens of {len(out)} documents")
    if unk > unknown * total:
        raise ValueError(f"{unk / total:.0%} of the tokens are {tokenizer.unk_token}: this tokenizer does not fit this text")
    log.info("%d documents, %d tokens (%.1f %% unknown)", len(out), total, 100 * unk / total)
    return out


def frame(part: np.ndarray, tokenizer) -> np.ndarray:
    """[CLS] part [SEP], i32[len(part) + 2]."""
    return np.concatenate([[tokenizer.cls_token_id], part, [tokenizer.sep_token_id]]).astype(np.int32)


def spread(size: int, count: int) -> np.ndarray:
    """`count` of `size` places, evenly spread; all of them if there are fewer."""
    return np.unique(np.linspace(0, size - 1, min(count, size)).round().astype(int))


def truncate(ids: np.ndarray, length: int) -> np.ndarray:
    """The first tokens, as many as an input of `length` holds."""
    return ids[: length - SPECIALS]


def head_tail(ids: np.ndarray, length: int) -> np.ndarray:
    """A first quarter and a last part that fill an input of `length` (Sun et al., arXiv 1905.05583, §5.3.1)."""
    room = length - SPECIALS
    head = round(HEAD * room)
    return ids if len(ids) <= room else np.concatenate([ids[:head], ids[len(ids) - (room - head) :]])


def chunks(ids: np.ndarray, length: int, count: int, tokenizer) -> dict[str, np.ndarray]:
    """The first count × (length − 2) tokens as `count` framed inputs: input_ids and attention_mask, i32[count, length].

    A chunk that no token is left for is all padding.
    """
    room = length - SPECIALS
    out = np.full((count, length), tokenizer.pad_token_id or 0, np.int32)
    mask = np.zeros((count, length), np.int32)
    for c in range(min(count, -(-len(ids) // room))):
        part = frame(ids[c * room : (c + 1) * room], tokenizer)
        out[c, : len(part)], mask[c, : len(part)] = part, 1
    return {"input_ids": out, "attention_mask": mask}


READINGS = {"full": truncate, "truncate": truncate, "head_tail": head_tail}
