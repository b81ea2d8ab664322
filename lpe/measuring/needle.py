"""Needle retrieval and agreement: what a sentence encoder, which has no head, is worth at a length.

Needle. A set is CANDIDATES = 50 documents of one text, a part of the data from a random place on, as many tokens as a
windows.Layout has between [CLS] and [SEP]. In document i stands, at a random place, the key sentence "The {animal} of {city}
hides the {thing} under the {place}." Animals, cities and things differ in all documents of a set, each a permutation of 50. The
question of document i is "Where is the {thing} that the {animal} from {city} has hidden?". Both are embedded by the model that
is measured: the mean of the last hidden states over all tokens, of length one. A question is right where its own document has
the highest scalar product of the 50; chance is .02. (With a text of its own for each document, what a text is about would
decide, not the key.) The standard error is that over sets, of a single set that over its questions, which leaves out what
another text would change. All draws depend on (seed, number of tokens, number of the set) alone.

Agreement. The cosine of the embeddings of SHORT texts of a quarter of the trained length, from random places, by this model and
by the untouched one: 1 where short inputs are kept.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lpe.data import reading
from lpe.data.reading import SPECIALS
from lpe.data.windows import Layout
from lpe.measuring.text import Sequence
from lpe.model import Model
from lpe.tasks import base

CANDIDATES, SHORT = 50, 50
WIDTH = 16  # questions are padded to a multiple of it
BATCH = 4096  # tokens at a time, where several documents fit into it
ANIMALS = (
    "badger", "beaver", "camel", "cheetah", "cobra", "coyote", "crab", "crow", "dolphin", "donkey", "eagle", "falcon",
    "ferret", "frog", "giraffe", "goat", "goose", "hamster", "hedgehog", "heron", "horse", "iguana", "jaguar", "kangaroo",
    "koala", "lemur", "leopard", "lizard", "llama", "lobster", "monkey", "moose", "octopus", "otter", "owl", "panda",
    "parrot", "penguin", "pigeon", "rabbit", "raccoon", "seal", "shark", "spider", "squirrel", "swan", "tiger", "turtle",
    "wolf", "zebra",
)  # fmt: skip
CITIES = (
    "Amsterdam", "Ankara", "Athens", "Baghdad", "Bangkok", "Barcelona", "Belgrade", "Berlin", "Bogota", "Brussels",
    "Budapest", "Cairo", "Copenhagen", "Damascus", "Delhi", "Dublin", "Edinburgh", "Florence", "Geneva", "Hamburg", "Hanoi",
    "Helsinki", "Istanbul", "Jakarta", "Kabul", "Lagos", "Lima", "Lisbon", "Madrid", "Manila", "Melbourne", "Milan",
    "Montreal", "Moscow", "Munich", "Nairobi", "Naples", "Oslo", "Prague", "Quito", "Rome", "Seoul", "Shanghai",
    "Stockholm", "Sydney", "Tehran", "Tokyo", "Vienna", "Warsaw", "Zurich",
)  # fmt: skip
THINGS = (
    "accordion", "anchor", "arrow", "balloon", "banjo", "basket", "bell", "blanket", "bottle", "bracelet", "broom",
    "bucket", "camera", "candle", "carpet", "clock", "compass", "crown", "diamond", "drum", "feather", "flute", "guitar",
    "hammer", "helmet", "kettle", "kite", "ladder", "lamp", "lantern", "magnet", "mirror", "necklace", "needle", "pearl",
    "piano", "pillow", "puppet", "ring", "saddle", "scissors", "spoon", "telescope", "trumpet", "umbrella", "vase",
    "violin", "wallet", "whistle", "wheel",
)  # fmt: skip
PLACES = ("bed", "bridge", "chimney", "floor", "oak", "roof", "stairs", "table")


class Set(NamedTuple):
    """documents: i32[CANDIDATES, content], without special tokens. questions: i32[t] each, with them."""

    documents: np.ndarray
    questions: list[np.ndarray]


def make(text: Sequence, content: int, seed: int, number: int) -> Set:
    """Set `number` of a seed, of documents of `content` tokens. Raises ValueError where one has no room for its key."""
    rng = np.random.default_rng([seed, content, number])
    drawn = [rng.permutation(words) for words in (ANIMALS, CITIES, THINGS)]
    places = rng.choice(PLACES, CANDIDATES)
    keys, questions = [], []
    for animal, city, thing, place in zip(*drawn, places, strict=True):
        keys.append(f"The {animal} of {city} hides the {thing} under the {place}.")
        questions.append(f"Where is the {thing} that the {animal} from {city} has hidden?")
    found = [reading.token_ids(x, text.tokenizer) for x in (keys, questions)]
    longest = max(map(len, found[0]))
    if longest >= content:
        raise ValueError(
            f"an input of {content + SPECIALS} has no room for a key sentence of {longest} tokens; take lengths above "
            f"{longest + SPECIALS}"
        )
    rows = np.empty((CANDIDATES, content), np.int32)
    start = rng.integers(0, len(text.tokens) - content + 1)
    for i, key in enumerate(found[0]):
        piece = text.tokens[start : start + content - len(key)]
        at = rng.integers(0, len(piece) + 1)
        rows[i] = np.concatenate([piece[:at], key, piece[at:]])
    return Set(rows, [reading.frame(q, text.tokenizer) for q in found[1]])


def score(model: Model, text: Sequence, lay: Layout, *, read: str, seed: int, examples: int) -> dict:
    """Share of right questions, with its standard error and count.

    Args:
      read: whole; or as a user of the untouched model does: first, the first piece alone; pieces, each alone, and the mean over
        the tokens of all.
      examples: questions, a multiple of CANDIDATES.
    """
    right = []
    for number in range(examples // CANDIDATES):
        drawn = make(text, lay.content, seed, number)
        documents = _unit(_documents(model, text, drawn.documents, lay, read))
        questions = _unit(_questions(model, drawn.questions))
        right.append((questions @ documents.T).argmax(axis=1) == np.arange(CANDIDATES))
    sets = np.stack(right) if len(right) > 1 else right[0][:, None]
    mean, error = base.ratio(sets.sum(axis=1), np.full(len(sets), sets.shape[1]))
    return {"metric": "needle, top-1 of 50", "quality": mean, "error": error, "count": examples}


def short(trained: int) -> int:
    """The tokens of an input that agreement is measured on."""
    return max(SPECIALS + 1, trained // 4)


def agreement(model: Model, untouched: Model, text: Sequence, *, trained: int, seed: int) -> dict:
    """The mean cosine with the untouched model, and its standard error."""
    length = short(trained)
    rng = np.random.default_rng([seed, length])
    starts = rng.integers(0, len(text.tokens) - (length - SPECIALS) + 1, SHORT)
    rows = np.stack([text.input(length, int(s)) for s in starts])
    cosine = (_unit(_means(model, rows)) * _unit(_means(untouched, rows))).sum(axis=1)
    return {"agreement": float(cosine.mean()), "agreement_error": float(cosine.std(ddof=1) / SHORT**0.5), "short": length}


def _documents(model: Model, text: Sequence, rows: np.ndarray, lay: Layout, read: str) -> np.ndarray:
    if read == "pieces":  # all of one size, so that the mean over tokens is that over pieces
        parts = np.split(rows, lay.pieces, axis=1)
        return np.mean([_means(model, _framed(part, text)) for part in parts], axis=0)
    return _means(model, _framed(rows[:, : lay.piece] if read == "first" else rows, text))


def _questions(model: Model, questions: list[np.ndarray]) -> np.ndarray:
    """Padded to one width, so that one program reads them all."""
    width = -(-max(map(len, questions)) // WIDTH) * WIDTH
    pad = model.tokenizer.pad_token_id or 0
    ids = np.stack([np.pad(q, (0, width - len(q)), constant_values=pad) for q in questions])
    mask = np.arange(width) < np.asarray([len(q) for q in questions])[:, None]
    return np.asarray(_mean(model.encode({"input_ids": ids, "attention_mask": mask}), mask))


def _framed(rows: np.ndarray, text: Sequence) -> np.ndarray:
    return np.stack([reading.frame(r, text.tokenizer) for r in rows])


def _means(model: Model, rows: np.ndarray) -> np.ndarray:
    """The mean state of every row, f32[rows, D]."""
    sizes = [d for d in (1, 2, 5, 10, 25, 50) if len(rows) % d == 0 and (d == 1 or d * rows.shape[1] <= BATCH)]
    found = [_mean(model.encode({"input_ids": part})) for part in rows.reshape(-1, max(sizes), rows.shape[1])]
    return np.concatenate([np.asarray(x) for x in found])


@jax.jit
def _mean(x_BTD: Array, mask_BT: Array | None = None) -> Array:
    """Over the tokens, or those where the mask is True."""
    return jnp.mean(x_BTD, axis=1, where=None if mask_BT is None else mask_BT[..., None])


def _unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)
