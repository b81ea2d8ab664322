"""The interface of a task: what an example is, its loss, its score. The encoder is passed in."""

from collections.abc import Callable
from typing import NamedTuple

from lpe.params import Spec


class View(NamedTuple):
    """A way to read an example: what the report calls it, and the tokens of its inputs."""

    label: str
    length: int


class Task(NamedTuple):
    """What a model is trained and judged on.

    specs: parameters of the task's own.
    heads: heads that the checkpoint must bring.
    views: the ways to read an example, by name.
    prepare: host: (documents, tokenizer) -> examples, whatever the task makes of documents. It lives here because what an
      example is belongs to the task.
    dataset: host: (examples, tokenizer, view, batch_size, *, seed, limit) -> grain.MapDataset of batches; endless and
      shuffled without `limit`, else that many examples once, in order, the same for every view.
    loss: (params, batch, key) -> (f32, {name: (sum, count)}); jitted.
    predict: (params, batch) -> {name: array}; jitted.
    score: host: iterable[(batch, outputs)] -> {name: float | list}.
    check: host: (tokenizer) -> None; raises ValueError where the tokenizer cannot serve.
    """

    specs: dict[str, Spec]
    heads: tuple[str, ...]
    views: dict[str, View]
    prepare: Callable
    dataset: Callable
    loss: Callable
    predict: Callable
    score: Callable
    check: Callable
