"""The interface of a task: what an example is, its loss, its score. The encoder is passed in."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from lpe.data.reading import SPECIALS
from lpe.params import Spec
from lpe.registry import nearest

HEAD = 1 << 20  # what a head's dropout key is folded with, beyond any layer
UNUSED = -100  # a label that counts nowhere, as in transformers


class View(NamedTuple):
    """A way to read an example: what the report calls it, and the tokens of its inputs."""

    label: str
    length: int


class Task(NamedTuple):
    """What a model is trained and judged on.

    specs: parameters of the task's own head.
    heads: heads that the checkpoint must bring.
    makes: heads of stock classes that `specs` describe; () where no stock class has this head.
    labels: names of the classes, in the order of their numbers; () where there are none.
    views: the ways to read an example, by name.
    prepare: host: (documents, tokenizer) -> examples, whatever the task makes of documents, with where(i) -> str for messages.
      It lives here because what an example is belongs to the task.
    dataset: host: (examples, tokenizer, view, batch_size, *, seed, limit, multiple_of) -> grain.MapDataset of batches; endless
      and shuffled without `limit`, else that many examples once, the same for every view. Where a batch's rows are not
      batch_size by itself, they are a multiple of `multiple_of`. A batch has "attention_mask"
      and "example", the numbers of its examples (-1: none).
    loss: (params, batch, key) -> (f32, {name: (sum, count)}); jitted. The loss is metrics["loss"]'s sum by its count.
    predict: (params, batch) -> {name: array}; jitted.
    score: host: iterable[(batch, outputs)] -> {name: float | list}: each of `metrics`, where known its standard error as
      name + "_se", "count" (what was judged), and by_unit [[unit, right, count], …] for paired differences.
    check: host: (tokenizer) -> None; raises ValueError where the tokenizer cannot serve.
    metrics: names of what the report shows, shares of 1, the first one counts most.
    counted, unit: what `count` counts, and the unit of sampling, for the report.
    about: sentences for the report: what is measured, and how its standard error is found.
    """

    specs: dict[str, Spec]
    heads: tuple[str, ...]
    makes: tuple[str, ...]
    labels: tuple[str, ...]
    views: dict[str, View]
    prepare: Callable
    dataset: Callable
    loss: Callable
    predict: Callable
    score: Callable
    check: Callable
    metrics: tuple[str, ...]
    counted: str
    unit: str
    about: str


def head_key(key: Array | None) -> Array | None:
    """The dropout key of a head, apart from those of the layers."""
    return None if key is None else jax.random.fold_in(key, HEAD)


def cross_entropy(scores: Array, labels: Array) -> tuple[Array, dict]:
    """Mean cross entropy over the labels that count, and the sums and counts of loss and accuracy.

    Args:
      scores: f32[..., C].
      labels: i32[...], UNUSED where nothing counts.
    """
    return mean(*by_place(scores, labels), labels)


def by_place(scores: Array, labels: Array) -> tuple[Array, Array]:
    """Loss f32[...], and whether the highest score is the label's, bool[...]."""
    each = optax.softmax_cross_entropy_with_integer_labels(scores, jnp.maximum(labels, 0))
    return each, scores.argmax(-1) == labels


def mean(each: Array, right: Array, labels: Array) -> tuple[Array, dict]:
    """As cross_entropy, from by_place."""
    used = labels != UNUSED
    count, total = used.sum(), jnp.where(used, each, 0.0).sum()
    return total / jnp.maximum(count, 1), {"loss": (total, count), "accuracy": ((used & right).sum(), count)}


def ratio(right: np.ndarray, count: np.ndarray) -> tuple[float, float | None]:
    """Σ right / Σ count and its standard error with whole units, not single places, as the unit of sampling.

    The standard error is the linearised one of a ratio; None with fewer than two units.
    """
    right, count = np.asarray(right, float), np.asarray(count, float)
    mean, n = right.sum() / count.sum(), len(count)
    residual = right - mean * count
    return float(mean), float(np.sqrt((residual**2).sum() * n / (n - 1)) / count.sum()) if n > 1 else None


def check_length(length: int) -> None:
    """Raises ValueError unless an input of `length` holds a token between [CLS] and [SEP]."""
    if isinstance(length, bool) or not isinstance(length, int) or length <= SPECIALS:
        raise ValueError(f"task.length={length!r}, allowed are whole numbers above {SPECIALS}")


def check_choice(option: str, value: str, known: Sequence[str]) -> None:
    """Raises ValueError unless a task's option has one of the known values."""
    if value not in known:
        raise ValueError(f"task.{option}={value!r} is not known{nearest(str(value), list(known))}")


def check_finite(losses: Iterable[float], examples: Iterable[int]) -> None:
    """Raises FloatingPointError naming the examples whose loss is not finite."""
    bad = [e for e, x in zip(examples, losses, strict=True) if not np.isfinite(x)]
    if bad:
        raise FloatingPointError(
            f"the loss of held-out examples {[int(i) for i in bad[:8]]} is not finite; the checkpoint or the run is damaged"
        )


def check_tokenizer(tokenizer, vocab_size: int, needs: Sequence[str] = ("cls_token", "sep_token")) -> None:
    """Raises ValueError when the tokenizer cannot frame an input, or makes ids that the model has no row for."""
    if tokenizer is None:
        raise ValueError("the checkpoint brings no tokenizer; put its tokenizer files into the folder")
    missing = [t for t in needs if getattr(tokenizer, t) is None]
    if missing:
        raise ValueError(f"the tokenizer has no {', '.join(missing)}; this task needs {', '.join(needs)}")
    if (top := max(tokenizer.get_vocab().values())) >= vocab_size:
        raise ValueError(
            f"the tokenizer makes ids up to {top}, but the model has vocab_size={vocab_size}; use the model's own tokenizer, "
            "or resize the model's embeddings first"
        )
