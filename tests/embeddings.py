"""What the tests with sentence-transformers share: a long text, and a sentence embedding by lpe and numpy alone."""

import numpy as np

import lpe
from lpe.data import sources


def text(words: int) -> str:
    """The first words of a held-out speech."""
    found = sources.documents({"source": "sotu", "documents": 1})["heldout"][0].text.split()
    assert len(found) > words
    return " ".join(found[:words])


def embed(model: lpe.Model, texts: list[str]) -> np.ndarray:
    """The mean over real tokens of the last hidden state, of length one: f32[texts, D], as MiniLM's folder says."""
    batch = dict(model.tokenizer(texts, return_tensors="np", padding=True))
    mask = batch["attention_mask"][..., None]
    mean = (np.asarray(model.encode(batch)) * mask).sum(1) / mask.sum(1)
    return mean / np.linalg.norm(mean, axis=1, keepdims=True)
