"""Which position methods and attention patterns go together on a checkpoint and reach a length, from config.json alone."""

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

from lpe import build, registry
from lpe.build import Recipe
from lpe.checkpoint import load
from lpe.checkpoint.folder import find
from lpe.planning import known
from lpe.positions import table

DEFAULT = ("full", "window", "chunked", "bigbird")
log = logging.getLogger(__name__)


class Combination(NamedTuple):
    """One way to read a length.

    position, attention: as a user writes them. recipe: with what belongs to the weights. trains: whether it needs training to
    be of use. keeps: short inputs have the same outputs as before.
    """

    position: dict[str, Any]
    attention: dict[str, Any]
    recipe: Recipe
    trains: bool
    keeps: bool


class Feasible(NamedTuple):
    """What there is. refused: (which, why) in words. left: methods left out because they need training."""

    own: Recipe
    trained: int
    found: list[Combination]
    refused: list[tuple[str, str]]
    left: list[str]


def own_recipe(source: str, **options: Any) -> Recipe:
    """The encoder of a checkpoint as it is. Raises FileNotFoundError, ValueError as load.read_config.

    Args:
      options: dtype, remat, chunk_size.
    """
    folder = find(source)
    family, cfg, raw = load.read_config(folder)
    position = build.positions(load.position(family, raw, str(folder)))
    return Recipe(family, cfg, (), position, build.attention(load.attention(family, raw, (), str(folder))), **options)


def trained_length(recipe: Recipe) -> int:
    """How many positions the weights were trained with, as far as config.json says it."""
    first = dict(recipe.position[0])
    return first.get("original_max_position_embeddings") or table.count(recipe.config, first["name"])


def combinations(
    own: Recipe, length: int, positions: Sequence[str] | None = None, attentions: Sequence[str] | None = None
) -> Feasible:
    """As `tried`. Raises ValueError as it does, or where there is no combination at all, with the reasons."""
    out = tried(own, length, positions, attentions)
    if not out.found:
        why = "\n".join(f"  {which}: {reason}" for which, reason in out.refused)
        raise ValueError(
            f"no position method of this checkpoint reaches --length={length}:\n{why}\nTake another length or method"
        )
    return out


def tried(
    own: Recipe, length: int, positions: Sequence[str] | None = None, attentions: Sequence[str] | None = None
) -> Feasible:
    """Every combination that can be built and reaches `length`, maybe none, and why others do not.

    Args:
      own: of own_recipe.
      length: tokens.
      positions: names. Default: all that need no training.
      attentions: names. Default: full, window, chunked, bigbird and the checkpoint's own.

    Raises:
      ValueError: an unknown name.
    """
    n, out = trained_length(own), Feasible(own, trained_length(own), [], [], [])
    patterns = [_pattern(own, name, n) for name in attentions or dict.fromkeys((*DEFAULT, dict(own.attention)["name"]))]
    for name in positions or registry.names("positions"):
        registry.load("positions", name)  # an unknown name is no refusal, and ends the plan
        spec = {k: v for k, v in own_spec(own, name).items() if k != "max_length"}
        try:
            trains = build.retrains(build.position_method(own), build.position_method(_with(own, spec)))
            if trains and not positions:
                out.left.append(name)
                continue
            if registry.takes("positions", spec, "max_length"):
                spec["max_length"] = length
            recipe = _with(own, spec)
            method = build.position_method(recipe)
            _check_reach(own, spec, method, length)
        except ValueError as e:
            out.refused.append((name, str(e)))
            continue
        _beside(out, spec, recipe, trains, "identity_on_trained" in method.claims, patterns)
    return out


def _beside(out: Feasible, spec: dict, recipe: Recipe, trains: bool, keeps: bool, patterns: list[tuple[dict, bool]]) -> None:
    """Adds a position method beside every pattern, or why they do not go together."""
    refusals: dict[str, str] = {}
    for attention, pattern_trains in patterns:
        whole = recipe._replace(attention=build.attention(attention))
        try:
            build.network(whole)
        except ValueError as e:
            refusals[attention["name"]] = str(e)
            continue
        same = keeps and whole.attention == out.own.attention
        out.found.append(Combination(spec, attention, whole, trains or pattern_trains, same))
    if refusals:
        out.refused.append((f"{spec['name']} with {', '.join(refusals)}", next(iter(refusals.values()))))


def own_spec(own: Recipe, name: str) -> dict[str, Any]:
    """The position method of this name, the checkpoint's own with its options."""
    return next((dict(s) for s in own.position if dict(s)["name"] == name), {"name": name})


def _with(own: Recipe, spec: dict[str, Any]) -> Recipe:
    return own._replace(position=build.keep_weights(own.position, build.positions(spec)))


def _pattern(own: Recipe, name: str, n: int) -> tuple[dict[str, Any], bool]:
    """The pattern, the checkpoint's own with its own options, and whether it needs training."""
    module = registry.load("attention", name)
    if dict(own.attention)["name"] == name:
        return dict(own.attention), False
    return known.sized(name, n), getattr(module, "NEEDS_TRAINING", False)


def _check_reach(own: Recipe, spec: dict[str, Any], method, length: int) -> None:
    name = spec["name"]
    if "query_scale" in method.claims:
        raise ValueError(f"{name} tells no places apart; it stands beside another method, in a list")
    if registry.takes("positions", spec, "methods") and "methods" not in spec:
        raise ValueError(f"{name} is made of other methods, and of which for these weights only their config.json could say")
    if method.max_length is not None and method.max_length < length:
        raise ValueError(f"it offers {method.max_length} positions, fewer than {length}")
