"""From plain data to live objects: a recipe becomes an encoder with its heads, a config a task. Names are read only here."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from lpe import registry, tokens
from lpe.attention.base import AttentionPattern
from lpe.models import bert, heads, layers
from lpe.models.bert import BertConfig
from lpe.params import Spec
from lpe.positions import base, rotary
from lpe.positions.base import PositionMethod
from lpe.registry import freeze
from lpe.tokens import Tokens

Position = Mapping[str, Any] | Sequence[Mapping[str, Any]]  # one method, or several to compose
DTYPES = {"float32": jnp.float32, "bfloat16": jnp.bfloat16}
HEADS: dict[str, tuple[Callable[[BertConfig], dict[str, Spec]], ...]] = {
    "mlm": (heads.mlm_specs,),
    "pooler": (heads.pooler_specs,),
    "classifier": (heads.classifier_specs,),
    "tagger": (heads.tagger_specs,),
    "qa": (heads.qa_specs,),
}
CLASSES = {  # who saves which head
    "mlm": "…ForMaskedLM",
    "pooler": "…Model",
    "classifier": "…ForSequenceClassification",
    "tagger": "…ForTokenClassification",
    "qa": "…ForQuestionAnswering",
}


class Recipe(NamedTuple):
    """What a model is, as plain hashable data; equal recipes share one compilation."""

    family: str
    config: BertConfig
    heads: tuple[str, ...]
    position: tuple = ((("name", "learned"),),)  # of `positions`
    attention: tuple = (("name", "full"),)
    dtype: str = "float32"
    remat: str = "none"
    chunk_size: int = 0


class Network(NamedTuple):
    """The live objects of a recipe. encode: (params, batch, *, key=None) -> ([B, T, D], Tokens).

    stages: the same in parts, without dropout, for who calls them one by one (lpe.stepwise).
    """

    recipe: Recipe
    position: PositionMethod
    pattern: AttentionPattern
    specs: dict[str, Spec]
    encode: Callable[..., tuple[Array, Tokens]]
    stages: "Stages"


class Stages(NamedTuple):
    """begin: (params, batch) -> ([B, T, D], Tokens); layer: (params, x_BTD, tok, i) -> x_BTD; end: (params, x_BTD) -> x_BTD."""

    begin: Callable[..., tuple[Array, Tokens]]
    layer: Callable[..., Array]
    end: Callable[..., Array]


def positions(spec: Position, max_length: int | None = None) -> tuple:
    """Recipe.position of what a user writes: {"name": …, options}, or a list of such, which are composed.

    Args:
      max_length: for every method that has an option of this name.

    Raises:
      ValueError: neither of the two; no method at all; or a max_length that no method takes, or that one has already.
    """
    listed = [spec] if isinstance(spec, Mapping) else spec
    if not isinstance(listed, (list, tuple)) or not all(isinstance(s, Mapping) for s in listed):
        raise ValueError(f"position={spec!r}, allowed are {{'name': …, options}} or a list of such")
    if not listed:
        raise ValueError('position=[] names no method; give at least one, as {"name": "learned"}')
    if max_length is not None:
        takes = [registry.takes("positions", s, "max_length") for s in listed]
        if not any(takes):
            raise ValueError(f"max_length={max_length}: position {list(listed)} has no limit, so leave max_length out")
        for s in listed:
            if s.get("max_length", max_length) != max_length:
                raise ValueError(f"max_length={max_length} and position {dict(s)} say two lengths; leave one out")
        listed = [{**s, "max_length": max_length} if t else s for s, t in zip(listed, takes, strict=True)]
    return tuple(freeze(s) for s in listed)


def names(recipe: Recipe) -> str:
    """For messages: 'hierarchical', or 'learned' + 'alibi'."""
    return " + ".join(repr(dict(s)["name"]) for s in recipe.position)


def position_method(recipe: Recipe) -> PositionMethod:
    """The recipe's position methods as one. Raises ValueError for a wrong option, or two that do not go together."""
    made = [(dict(s).get("name", ""), registry.make("positions", dict(s), recipe.config)) for s in recipe.position]
    return base.compose(made)


def _check_together(recipe: Recipe, position: PositionMethod, pattern: AttentionPattern) -> None:
    """Raises ValueError where the attention pattern cannot do what the position method needs."""
    name = dict(recipe.attention)["name"]
    if unheard := sorted(base.hooks(position) - {"embed"} - pattern.hooks):
        raise ValueError(
            f"position {names(recipe)} needs the hook {unheard[0]!r}, which attention {name!r} does not have; it has "
            f"{', '.join(sorted(pattern.hooks)) or 'none'}. Take another of the two"
        )
    if "causal_only" in position.claims and "causal" not in pattern.claims:
        raise ValueError(
            f"position {names(recipe)} is for causal attention only, and attention {name!r} as given lets a query see "
            'later keys; use attention={"name": "full", "causal": True}, or another position method'
        )


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
    if type(recipe.chunk_size) is not int or recipe.chunk_size < 0:
        raise ValueError(f"chunk_size={recipe.chunk_size!r}, allowed are whole numbers from 0 (no chunks)")
    cfg = recipe.config
    position = position_method(recipe)
    pattern: AttentionPattern = registry.make("attention", dict(recipe.attention), cfg)
    _check_together(recipe, position, pattern)
    mixer = layers.attention_mixer(cfg, position, pattern)
    specs = bert.specs(cfg, position, mixer)
    for head in recipe.heads:
        for rows in HEADS[head]:
            specs |= rows(cfg)

    def encode(params: dict, batch: dict[str, Array], *, key: Array | None = None) -> tuple[Array, Tokens]:
        tok = _placed(recipe, position, pattern, batch)
        x = bert.encode(
            params, cfg, position, mixer, batch, tok,
            dtype=DTYPES[recipe.dtype], remat=recipe.remat, chunk_size=recipe.chunk_size, frozen_layers=frozen_layers, key=key,
        )  # fmt: skip
        return x, tok

    def begin(params: dict, batch: dict[str, Array]) -> tuple[Array, Tokens]:
        tok = _placed(recipe, position, pattern, batch)
        return bert.begin(params, cfg, position, batch, tok, dtype=DTYPES[recipe.dtype], key=None), tok

    def layer(params: dict, x_BTD: Array, tok: Tokens, i: Array) -> Array:
        return bert.layer(params, cfg, position, mixer, x_BTD, tok, i, recipe.chunk_size)

    stages = Stages(begin, layer, lambda params, x_BTD: bert.end(params, cfg, x_BTD))
    return Network(recipe, position, pattern, specs, encode, stages)


def _placed(recipe: Recipe, position: PositionMethod, pattern: AttentionPattern, batch: dict[str, Array]) -> Tokens:
    """The Tokens of a batch. Raises ValueError for an input that the positions do not reach."""
    limit, length = position.max_length, batch["input_ids"].shape[1]
    if limit is not None and length > limit and "position_ids" not in batch:
        raise ValueError(too_long(length, recipe, limit))
    return pattern.mark(batch, tokens.from_batch(batch))


def too_long(length: int, recipe: Recipe, limit: int) -> str:
    """The message for an input that the positions do not reach; nothing is ever clamped or cut."""
    way = ', position={"name": "hierarchical"}' if recipe.position == positions({"name": "learned"}) else ""
    return (
        f"an input of {length} tokens is longer than the {limit} positions of {names(recipe)}; either cut or chunk the text to "
        f"{limit} tokens, or extend the model: model.extend(max_length={length}{way})"
    )


def longer(recipe: Recipe, max_length: int | None) -> tuple:
    """Recipe.position with another max_length: of the method there is.

    The plain table becomes hierarchical, or what the attention pattern names as its own way (window: copy).
    """
    if plain(recipe):
        return positions({"name": own_extension(recipe) or "hierarchical"}, max_length)
    return positions([{k: v for k, v in s if k != "max_length"} for s in recipe.position], max_length)


def keep_weights(before: tuple, wanted: tuple) -> tuple:
    """`wanted`, a Recipe.position, with what belongs to the weights where it does not say it, from the rotary method there is.

    Where positions differ by layer, a single rotary method stands in for the first of `methods`, the one of the layers that
    see the most.
    """
    layered = next((dict(s) for s in before if registry.takes("positions", dict(s), "methods")), None)
    layered = layered and {**registry.defaults("positions", layered), **layered}
    there = [dict(s) for s in (layered["methods"][:1] if layered else before)]
    old = next((s for s in there if registry.takes("positions", s, "rope_theta")), None)
    if old is None or any(registry.takes("positions", dict(s), "methods") for s in wanted):
        return wanted
    found = []
    for spec in map(dict, wanted):
        if registry.takes("positions", spec, "rope_theta"):
            if old.get("rotary_value") and not registry.takes("positions", spec, "rotary_value"):
                raise ValueError(
                    f"position {spec['name']!r} turns queries and keys alone, and these weights were trained with values that "
                    "turn too (rotary_value); take a method that has this option, as rope_linear or rope_yarn"
                )
            own = {k: v for k, v in old.items() if k in rotary.OF_WEIGHTS and registry.takes("positions", spec, k)}
            spec = {**own, **spec}
            if layered:
                rest = {k: v for k, v in layered.items() if k != "max_length"}
                spec = {**rest, "methods": (spec, *layered["methods"][1:])}
        found.append(freeze(spec))
    return tuple(found)


def plain(recipe: Recipe) -> bool:
    """Whether positions are the rows of the table as they are."""
    return recipe.position == positions({"name": "learned"})


def own_extension(recipe: Recipe, beside: Recipe | None = None) -> str | None:
    """The position method by which the paper of the recipe's attention pattern extends a table, where it names one.

    None too where the pattern of `beside` has the same.
    """
    found = getattr(registry.load("attention", dict(recipe.attention)["name"]), "EXTENDS_BY", None)
    return None if beside is not None and own_extension(beside) == found else found


def retrains(before: PositionMethod, after: PositionMethod) -> bool:
    """Whether weights trained with the positions `before` need training to be of use with `after`."""
    plain = not before.specs and not after.specs
    return base.hooks(before) != base.hooks(after) or not (plain or before.specs.keys() & after.specs.keys())


def attention(spec: Mapping[str, Any]) -> tuple:
    """Recipe.attention of what a user writes. Raises ValueError unless it is {"name": …, options}."""
    if not isinstance(spec, Mapping) or not isinstance(spec.get("name"), str):
        raise ValueError(f"attention={spec!r}, allowed is {{'name': …, options}}; leave it out to keep what there is")
    return freeze(spec)


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
