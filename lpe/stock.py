"""What a stock class of transformers expresses of a model, and by which fields of its config.json."""

from typing import Any

from lpe import build, registry
from lpe.build import Network, Recipe
from lpe.checkpoint import config
from lpe.positions import base

KEEP = "keep the model in lpe (in a run: --config.save.dtype=no)"


def check(net: Network, heads: tuple[str, ...] | None = None) -> None:
    """Raises ValueError, with the reason and the way out, where no stock class expresses the model.

    Args:
      heads: those it will have. Default: the recipe's.
    """
    recipe, family = net.recipe, config.FAMILIES[net.recipe.family]
    heads = recipe.heads if heads is None else heads
    if unlike := family.unlike(recipe.config):
        raise ValueError(f"no stock {recipe.family} class of transformers has {unlike}; {KEEP}")
    if missing := [h for h in heads if h != "pooler" and h not in family.heads]:
        raise ValueError(
            f"stock {recipe.family} models have no {missing[0]} head; they have {', '.join(family.heads) or 'none'}. Or {KEEP}"
        )
    if attention_fields(recipe, heads) is None:
        head = config.head_of(heads)
        raise ValueError(
            f"attention {dict(recipe.attention)} of a {recipe.family} model{f' with {head} head' if head else ''} has no "
            f"stock class that lpe writes; extend with what its class has: {family.attention_words}. Or {KEEP}"
        )
    written = attention_fields(recipe, heads) or {}, position_fields(recipe) or {}
    for k in sorted(written[0].keys() & written[1].keys()):
        if written[0][k] != written[1][k]:
            raise ValueError(
                f"the stock {recipe.family} class has one {k} for attention and positions, and this model needs "
                f"{written[0][k]} for attention {dict(recipe.attention)} and {written[1][k]} for its positions; extend with "
                f"two that agree. Or {KEEP}"
            )
    if family.position_fields is None:
        check_table(net)
    elif position_fields(recipe) is None:
        raise ValueError(
            f"position {[dict(s) for s in recipe.position]} of a {recipe.family} model has no stock class that lpe writes; "
            f"extend with what its class has: {family.position_words}. Or {KEEP}"
        )


def attention_fields(recipe: Recipe, heads: tuple[str, ...]) -> dict[str, Any] | None:
    """Fields of config.json, by our names, that say the attention pattern; None: no such model is stock."""
    spec = registry.without_defaults("attention", dict(recipe.attention))
    return config.FAMILIES[recipe.family].attention_fields(spec, recipe.config.num_hidden_layers, heads)


def position_fields(recipe: Recipe) -> dict[str, Any] | None:
    """Likewise of positions that are no table; {} where a table holds them."""
    express = config.FAMILIES[recipe.family].position_fields
    if express is None:
        return {}
    first, *others = recipe.position
    return None if others else express(dict(first), recipe.config)


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
