"""From plain data to live objects: a recipe becomes an encoder with its heads, a config a task. Names are read only here."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from lpe import registry, tokens
from lpe.attention.base import AttentionPattern
from lpe.models import bert, layers
from lpe.models.bert import BertConfig
from lpe.params import Spec
from lpe.positions.base import PositionMethod
from lpe.tokens import Tokens

DTYPES = {"float32": jnp.float32, "bfloat16": jnp.bfloat16}
HEADS: dict[str, tuple[Callable[[BertConfig], dict[str, Spec]], ...]] = {
    "mlm": (bert.mlm_specs,),
    "pooler": (bert.pooler_specs,),
    "classifier": (bert.classifier_specs,),
    "tagger": (bert.tagger_specs,),
}
CLASSES = {  # who saves which head
    "mlm": "…ForMaskedLM",
    "pooler": "…Model",
    "classifier": "…ForSequenceClassification",
    "tagger": "…ForTokenClassification",
}


class Recipe(NamedTuple):
    """What a model is, as plain hashable data; equal recipes share one compilation."""

    family: str
    config: BertConfig
    heads: tuple[str, ...]
    position: tuple = (("name", "learned"),)
    attention: tuple = (("name", "full"),)
    dtype: str = "float32"
    remat: str = "none"


class Network(NamedTuple):
    """The live objects of a recipe. encode: (params, batch, *, key=None) -> ([B, T, D], Tokens)."""

    recipe: Recipe
    position: PositionMethod
    pattern: AttentionPattern
    specs: dict[str, Spec]
    encode: Callable[..., tuple[Array, Tokens]]


def freeze(value: Any) -> Any:
    """Nested tuples of a config value, hashable and compared by value."""
    if isinstance(value, Mapping):
        return tuple(sorted((k, freeze(v)) for k, v in value.items()))
    return tuple(freeze(v) for v in value) if isinstance(value, (list, tuple)) else value


def network(recipe: Recipe, frozen_layers: int = 0) -> Network:
    """Makes the methods that the recipe names and binds them to the encoder.

    Args:
      frozen_layers: of training; see bert.encode.

    Raises:
      ValueError: an unknown method or option, or a value outside its range.
    """
    if recipe.dtype not in DTYPES:
        raise ValueError(f"dtype={recipe.dtype!r} is not known{registry.nearest(recipe.dtype, sorted(DTYPES))}")
    if recipe.remat not in bert.REMAT:
        raise ValueError(f"remat={recipe.remat!r} is not known{registry.nearest(recipe.remat, sorted(bert.REMAT))}")
    cfg = recipe.config
    position: PositionMethod = registry.make("positions", dict(recipe.position), cfg)
    pattern: AttentionPattern = registry.make("attention", dict(recipe.attention), cfg)
    mixer = layers.attention_mixer(cfg, position, pattern)
    specs = bert.specs(cfg, position, mixer)
    for head in recipe.heads:
        for rows in HEADS[head]:
            specs |= rows(cfg)

    def encode(params: dict, batch: dict[str, Array], *, key: Array | None = None) -> tuple[Array, Tokens]:
        limit, length = position.max_length, batch["input_ids"].shape[1]
        if limit is not None and length > limit and "position_ids" not in batch:
            raise ValueError(too_long(length, recipe, limit))
        tok = tokens.from_batch(batch)
        x = bert.encode(
            params, cfg, position, mixer, batch, tok,
            dtype=DTYPES[recipe.dtype], remat=recipe.remat, frozen_layers=frozen_layers, key=key,
        )  # fmt: skip
        return x, tok

    return Network(recipe, position, pattern, specs, encode)


def too_long(length: int, recipe: Recipe, limit: int) -> str:
    """The message for an input that the positions do not reach; nothing is ever clamped or cut."""
    return (
        f"an input of {length} tokens is longer than the {limit} positions of {dict(recipe.position)['name']!r}; either cut or "
        f"chunk the text to {limit} tokens, or extend the model: "
        f'model.extend(max_length={length}, position={{"name": "hierarchical"}})'
    )


def task(spec: Mapping[str, Any], net: Network):
    """The Task that spec["name"] names, for this network."""
    return registry.make("tasks", dict(spec), net.recipe.config, net.encode)


def with_labels(spec: Mapping[str, Any], docs: dict[str, list], known: Sequence[str]) -> dict[str, Any]:
    """The spec of a task with its labels, where it has some: those given, else those of the documents.

    Args:
      known: labels of the checkpoint's head; the same ones in this order let that head be used.
    """
    labels_of = getattr(registry.load("tasks", spec["name"]), "labels_of", None)
    if labels_of is None:
        return dict(spec)
    if given := spec.get("labels"):
        if isinstance(given, str) or not all(isinstance(x, str) for x in given) or len(set(given)) < max(2, len(given)):
            raise ValueError(f"task.labels={given!r}, allowed is a list of at least two different names")
        return dict(spec)
    found = labels_of(docs)
    return {**spec, "labels": tuple(known) if sorted(known) == sorted(found) else found}
