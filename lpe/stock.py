"""What a stock class of transformers expresses of a model, and by which fields of its config.json."""

from typing import Any, NamedTuple

from lpe import build, registry
from lpe.build import Network, Recipe
from lpe.checkpoint import config
from lpe.checkpoint.family import Family
from lpe.models.bert import BertConfig
from lpe.positions import base

KEEP = 'save it as lpe\'s own folder, format="lpe" (for lpe.convert --format=lpe, in a run --config.save.format=lpe)'
LAYOUT = {"max_position_embeddings", "reserved_rows"}  # of a table, which is written anew
ONLY_FOR = {  # fields of BertConfig that say nothing without one of these heads
    **dict.fromkeys(("head_transform", "head_act", "head_bias", "decoder_bias", "tie_word_embeddings"), {"mlm"}),
    **dict.fromkeys(("pooler_act", "pooler_bias", "pooler_norm", "classifier_pooling"), {"classifier"}),
    "token_transform": {"tagger", "qa"},
    "num_labels": {"classifier", "tagger"},
}


class Target(NamedTuple):
    """family: whose class it is. changed: fields of config.json, by our names, that say positions and attention.

    front: rows of zeros that a table needs before its first one.
    """

    family: str
    changed: dict[str, Any]
    front: int


def check(net: Network, heads: tuple[str, ...] | None = None) -> Target:
    """The stock class of a model: of its own family, else of one that computes the same with another attention.

    Args:
      heads: those it will have. Default: the recipe's.

    Raises:
      ValueError: there is none, with the reason and the way out.
    """
    recipe, family = net.recipe, config.FAMILIES[net.recipe.family]
    heads = recipe.heads if heads is None else heads
    if unlike := family.unlike(recipe.config):
        raise ValueError(f"no stock {recipe.family} class of transformers has {unlike}; {KEEP}")
    others = [name for name in family.becomes if attention_fields(recipe, heads, name) is not None]
    name = recipe.family
    if attention_fields(recipe, heads) is None:
        if not others:
            raise ValueError(_no_attention(recipe, heads))
        name = others[0]
        family = config.FAMILIES[name]
    if missing := [h for h in heads if h != "pooler" and h not in family.heads]:
        raise ValueError(
            f"stock {name} models have no {missing[0]} head; they have {', '.join(family.heads) or 'none'}. Or {KEEP}"
        )
    front = 0
    if name != recipe.family:
        as_read = _read_as(name, recipe.config, heads)
        front = as_read.reserved_rows - recipe.config.reserved_rows
        if differing := _differing(recipe.config, as_read, heads):
            raise ValueError(
                f"attention {dict(recipe.attention)} is that of {name} classes, but these compute {differing}; "
                f"extend with {config.FAMILIES[recipe.family].attention_words}, or {KEEP}"
            )
    return Target(name, _fields(net, name, heads), front)


def notes(net: Network, family: str) -> list[str]:
    """What a user of the stock class of `family` must know to have this model's outputs, in words."""
    recipe, found = net.recipe, []
    if said := config.FAMILIES[family].attention_note(dict(recipe.attention), recipe.heads):
        found.append(said)
    if "length_dependent" in net.position.claims:
        found.append(
            "transformers scales these positions by the longest input of a batch, padding included, lpe by each text: outputs "
            "are equal where all inputs of a batch have one length"
        )
    return found


def _no_attention(recipe: Recipe, heads: tuple[str, ...]) -> str:
    head, family = config.head_of(heads), config.FAMILIES[recipe.family]
    words = [family.attention_words, *(f"({name}) {config.FAMILIES[name].attention_words}" for name in family.becomes)]
    return (
        f"attention {dict(recipe.attention)} of a {recipe.family} model{f' with {head} head' if head else ''} has no "
        f"stock class that lpe writes; extend with what a class has: {'; '.join(words)}. Or {KEEP}"
    )


def _fields(net: Network, name: str, heads: tuple[str, ...]) -> dict[str, Any]:
    """Fields of attention and positions. Raises ValueError where the class has one field for both, or no such positions."""
    recipe, family = net.recipe, config.FAMILIES[name]
    written = attention_fields(recipe, heads, name) or {}, position_fields(recipe, name) or {}
    for k in sorted(written[0].keys() & written[1].keys()):
        if written[0][k] != written[1][k]:
            raise ValueError(
                f"the stock {name} class has one {k} for attention and positions, and this model needs "
                f"{written[0][k]} for attention {dict(recipe.attention)} and {written[1][k]} for its positions; extend with "
                f"two that agree. Or {KEEP}"
            )
    if family.position_fields is None:
        check_table(net)
    elif position_fields(recipe, name) is None:
        raise ValueError(
            f"position {[dict(s) for s in recipe.position]} of a {name} model has no stock class that lpe writes; "
            f"extend with what its class has: {family.position_words}. Or {KEEP}"
        )
    return {**written[0], **written[1]}


def attention_fields(recipe: Recipe, heads: tuple[str, ...], name: str = "") -> dict[str, Any] | None:
    """Fields of config.json, by our names, that say the attention pattern; None: no such model is stock.

    Args:
      name: of the family. Default: the recipe's.
    """
    spec = registry.without_defaults("attention", dict(recipe.attention))
    return _family(recipe, name).attention_fields(spec, recipe.config.num_hidden_layers, heads)


def position_fields(recipe: Recipe, name: str = "") -> dict[str, Any] | None:
    """Likewise of positions that are no table; {} where a table holds them."""
    express = _family(recipe, name).position_fields
    if express is None:
        return {}
    first, *others = recipe.position
    return None if others else express(dict(first), recipe.config)


def _family(recipe: Recipe, name: str) -> Family:
    return config.FAMILIES[name or recipe.family]


def _read_as(name: str, cfg: BertConfig, heads: tuple[str, ...]) -> BertConfig:
    """What a class of another family makes of this config."""
    return config.read(config.write(cfg, name, heads, {}, "float32", {}), name)


def _differing(cfg: BertConfig, other: BertConfig, heads: tuple[str, ...]) -> str:
    """The fields of `other` that change what a model with these heads computes, in words."""
    found = []
    for field in BertConfig.__dataclass_fields__:
        mine, theirs = getattr(cfg, field), getattr(other, field)
        matters = field not in LAYOUT and (field not in ONLY_FOR or ONLY_FOR[field] & set(heads))
        if matters and mine != theirs:
            found.append(f"{field}={theirs!r} in place of {mine!r}")
    return ", ".join(found)


def check_table(net: Network) -> None:
    """Raises ValueError where no single table holds the positions."""
    recipe, position = net.recipe, net.position
    if base.hooks(position) != {"embed"}:
        raise ValueError(
            f"position {build.names(recipe)} acts within attention, and no stock {recipe.family} class does so; extend with "
            f"a method that makes a table, as hierarchical, or {KEEP}"
        )
    if "length_dependent" in position.claims:
        raise ValueError(
            f"position {build.names(recipe)} gives a place other vectors in short inputs than in long ones, which no table "
            f'and no stock class expresses; extend with another method, as position={{"name": "interpolate"}}, or {KEEP}'
        )
    if position.max_length is None:
        raise ValueError(f"position {build.names(recipe)} has no limit; give one: model.extend(max_length=…, position=…)")
