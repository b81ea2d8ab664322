"""A model made ready for a task: the heads it needs stay, the others go, the task's own head is taken over or made anew."""

import dataclasses
import logging
from typing import NamedTuple

import jax

from lpe import params
from lpe.checkpoint.load import HEAD_PATHS
from lpe.model import Companions, Model
from lpe.tasks.base import Task

log = logging.getLogger(__name__)
SHARED = "pooler/"  # serves whatever the labels are


class Fitted(NamedTuple):
    """model: with the heads that a stock class has. extra: parameters that no stock class has. fresh: paths made anew."""

    model: Model
    extra: dict
    fresh: frozenset[str]


def labels(model: Model) -> tuple[str, ...]:
    """The checkpoint's own names of its classes, in order; () where it has none."""
    names = model.companions.raw.get("id2label") or {}
    return tuple(names[k] for k in sorted(names, key=int))


def fit(model: Model, task: Task, seed: int) -> Fitted:
    """The model with the task's head.

    A head in the checkpoint is used when its shapes and its labels, name by name, are the task's; else it starts anew.

    Raises:
      ValueError: the checkpoint lacks a head that the task cannot make.
    """
    model.require(*task.heads)
    there = params.flatten(model.params)
    same = labels(model) == task.labels
    usable = {p for p in task.specs if p in there and there[p].shape == task.specs[p].shape and (same or p.startswith(SHARED))}
    fresh = params.flatten(params.init({p: s for p, s in task.specs.items() if p not in usable}, jax.random.key(seed)))
    if fresh:
        log.info("new parameters, not from the checkpoint: %s", ", ".join(fresh))
    unused = tuple(path for head, path in HEAD_PATHS.items() if head not in task.heads)
    kept = {p: x for p, x in there.items() if p in usable or not p.startswith(unused)}
    if gone := sorted({p.split("/")[0] for p in there if p not in kept and p not in fresh}):
        log.info("not used by this task and left out of the result: %s", ", ".join(gone))
    own = {p: x for p, x in (kept | fresh).items() if p in task.specs and not task.makes}
    stock = params.nest({p: x for p, x in (kept | fresh).items() if p not in own})
    return Fitted(_with_heads(model, stock, task), params.nest(own), frozenset(fresh))


def _with_heads(model: Model, stock: dict, task: Task) -> Model:
    raw, cfg = model.companions.raw, model.config
    if task.labels:
        raw = {
            **raw,
            "id2label": {str(i): n for i, n in enumerate(task.labels)},
            "label2id": {n: i for i, n in enumerate(task.labels)},
        }
        cfg = dataclasses.replace(cfg, num_labels=len(task.labels))
    recipe = model.recipe._replace(config=cfg, heads=(*task.heads, *task.makes))
    return Model(stock, recipe, Companions(model.tokenizer, raw, model.companions.source, model.companions.folder))
