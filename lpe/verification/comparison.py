"""Drawn inputs run by one model and by another: a text alone, padded, among others; and what this machine can run."""

import dataclasses
import os
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lpe import costs, model
from lpe.model import Companions, Model

OUTPUTS = {  # head → the method of Model that gives its scores, and what it needs
    "hidden states": (Model.encode, ()),
    "mlm": (Model.mlm_logits, ("mlm",)),
    "classifier": (Model.classify, ("pooler", "classifier")),
    "tagger": (Model.tag, ("tagger",)),
    "qa": (Model.answer, ("qa",)),
}
# Relative to the largest value. bfloat16 keeps 8 bits, so that sums in another order differ by 2⁻⁸ in every layer.
TOLERANCE = {"float32": 1e-5, "bfloat16": 2.0**-5}
WORK = 3e12  # floating-point operations of the longest input: about a minute on two cores
SHARE = 0.5  # of the free memory


def has(m: Model, head: str) -> bool:
    return set(OUTPUTS[head][1]) <= set(m.recipe.heads)


def largest(a: np.ndarray, b: np.ndarray) -> float:
    """The largest difference; NaN where there is one on either side."""
    return float(np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64)).max(initial=0.0))


def relative(a: np.ndarray, b: np.ndarray) -> float:
    """The largest difference, as a part of the largest value of b."""
    return largest(a, b) / max(float(np.abs(np.asarray(b, np.float64)).max(initial=0.0)), 1e-30)


def number(x: float) -> str:
    """A difference for a report."""
    return "0.0" if x == 0.0 else f"{x:.1e}"


class Row(NamedTuple):
    """A text of `length` tokens in a row of an array, after `before` places of padding."""

    length: int
    before: int = 0
    seed: int = 0


def batch(m: Model, rows: Sequence[Row], total: int, seed: int) -> dict[str, np.ndarray]:
    """Ids from the vocabulary, equal for equal (length, seed); neither padding, nor a separator but at the second place.

    A pattern whose global tokens are those before a separator has room for few, hence the place.
    """
    cfg = m.config
    separator = dict(m.recipe.attention).get("sep_token_id")
    drawn = [i for i in range(cfg.vocab_size) if i not in (cfg.pad_token_id, separator)] or [0]
    pad = cfg.pad_token_id if 0 <= cfg.pad_token_id < cfg.vocab_size else 0
    ids, mask = np.full((len(rows), total), pad), np.zeros((len(rows), total), np.int32)
    for i, row in enumerate(rows):
        text = np.random.default_rng([seed, row.seed, row.length]).choice(drawn, row.length)
        if separator is not None:
            text[min(1, row.length - 1)] = separator
        ids[i, row.before : row.before + row.length], mask[i, row.before : row.before + row.length] = text, 1
    return {"input_ids": ids, "attention_mask": mask}


class Outputs(NamedTuple):
    """Hidden states of texts in any surroundings, by the model's own encode: f32[length, D] each."""

    model: Model

    def rows(self, rows: Sequence[Row], total: int, seed: int) -> list[np.ndarray]:
        """Of several texts in one array of `total` places."""
        x = np.asarray(self.model.encode(batch(self.model, rows, total, seed)))
        return [x[i, r.before : r.before + r.length] for i, r in enumerate(rows)]

    def alone(self, length: int, seed: int) -> np.ndarray:
        """Of a text without padding."""
        return self.rows([Row(length)], length, seed)[0]


def differences(
    before: Model, after: Model, heads: Sequence[str], longest: int, seed: int
) -> tuple[dict[str, float], list[int]]:
    """The largest difference of each head on real tokens, and the lengths of the inputs.

    Every head reads texts of 1, a quarter of and all of `longest` tokens, padded on the right; hidden states are compared on
    a text without padding too.
    """
    lengths = [1, max(1, longest // 4), longest]
    x = batch(after, [Row(k) for k in lengths], longest, seed)
    worst = {}
    for head in heads:
        a, b = (np.asarray(OUTPUTS[head][0](m, x)) for m in (before, after))
        real = x["attention_mask"].astype(bool)
        worst[head] = largest(a[real], b[real]) if a.shape[:2] == real.shape else largest(a, b)
    a, b = (Outputs(m).alone(unpadded(longest), seed) for m in (before, after))
    worst["hidden states"] = float(np.maximum(worst["hidden states"], largest(a, b)))
    return worst, sorted({*lengths, unpadded(longest)})


def padding(m: Model, total: int, side: str, seed: int) -> float:
    """The largest relative change of a text's hidden states by padding up to `total` places."""
    length = unpadded(total)
    alone = Outputs(m).alone(length, seed)
    return relative(Outputs(m).rows([Row(length, total - length if side == "left" else 0)], total, seed)[0], alone)


def unpadded(total: int) -> int:
    """The text that `padding` pads to so many places."""
    return max(1, total - max(1, total // 5))


def among_others(m: Model, total: int, seed: int) -> float:
    """The largest relative change of rows by the other rows of their batch, all in arrays of `total` places."""
    part = unpadded(total)
    rows = [Row(part), Row(total, 0, 1), Row(part, total - part)]
    together = Outputs(m).rows(rows, total, seed)
    return float(np.max([relative(x, Outputs(m).rows([r], total, seed)[0]) for x, r in zip(together, rows, strict=True)]))


def lengths(after: Model, n: int, checked: int) -> list[int]:
    """The places at which padding and batches are looked at: as many as were trained, and twice as many."""
    short = affordable([after], min(n, checked), rows=3)
    long = affordable([after], min(2 * n, checked), rows=3)
    return sorted({max(2, short), max(2, long)} if checked > 1 else {short})


def affordable(of: Sequence[Model], length: int, rows: int) -> int:
    """`length`, halved until what `rows` texts of it take of time and memory fits this machine for every model."""
    while length > 1 and not all(_fits(m, length, rows) for m in of):
        length //= 2
    return length


def _fits(m: Model, length: int, rows: int) -> bool:
    bare = dataclasses.replace(m, companions=Companions())
    shaped = jax.ShapeDtypeStruct((rows, length), jnp.int32)
    x = {"input_ids": shaped, "attention_mask": shaped}
    run = partial(model._run, what="encode")
    program = jax.make_jaxpr(run)(bare, x).jaxpr
    if costs.flops(program) > WORK * rows:
        return False
    room = SHARE * free_memory()
    if costs.arrays(program) <= room:
        return True  # with every array kept to the end; the compiler need not be asked
    used = jax.jit(run).lower(bare, x).compile().memory_analysis()
    return used is None or used.temp_size_in_bytes + used.output_size_in_bytes <= room


def free_memory() -> int:
    """Bytes that this machine has left."""
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
