"""A model as a folder: an ordinary Hugging Face checkpoint where a stock class expresses it, or lpe's own."""

import contextlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lpe import build, params, registry, stock
from lpe.build import Recipe
from lpe.checkpoint import beside, config, export, load, native, writing
from lpe.checkpoint.folder import tokenizer_class

log = logging.getLogger(__name__)


class Parts(NamedTuple):
    """config.json, tensors by the names of the file, and the recipe that reading them gives."""

    config: dict[str, Any]
    tensors: dict[str, np.ndarray]
    recipe: Recipe


def stock_parts(model, dtype: str) -> Parts:
    """A model in a stock class's form. Raises ValueError where there is none, as stock.check."""
    recipe, raw = model.recipe, model.companions.raw
    family, changed, front = stock.check(build.network(recipe))
    if family != recipe.family:
        before = config.FAMILIES[recipe.family]
        raw = {k: v for k, v in raw.items() if k not in {*before.own, *before.fixed, *before.carried}}
    about, weights = config.FAMILIES[family], model.params
    rows = changed.get("max_position_embeddings", model.config.max_position_embeddings)
    if about.position_fields is None:
        table = model.position_table()
        table = jnp.concatenate([jnp.zeros((front, table.shape[1])), table])
        weights, rows = {**weights, "position": {"table": table}}, len(table)
        changed = {**changed, "max_position_embeddings": rows}
    written = config.write(model.config, family, recipe.heads, raw, dtype, changed)
    cfg = config.read(written, family)
    position = load.position(family, written, family), load.attention(family, written, recipe.heads, family)
    as_read = Recipe(family, cfg, recipe.heads, build.positions(position[0]), build.attention(position[1]))
    weights = with_pattern(weights, as_read)
    params.check(build.network(as_read).specs, weights)
    if said := _unsaid(recipe, as_read, written):
        written[native.FIELD] = said
        as_read = as_read._replace(**{k: registry.freeze(v) for k, v in said.items()})
    for note in stock.notes(build.network(recipe), family):
        log.warning("%s: %s", written["architectures"][0], note)
    return Parts(written, export.tensors(weights, cfg, family, recipe.heads, rows), as_read)


def _unsaid(recipe: Recipe, as_read: Recipe, written: dict) -> dict[str, Any]:
    """What config.json has no name for, as plain data: options of the same method that reading would lose."""
    said = {}
    if recipe.position != as_read.position and _table_free(as_read):
        position = [native.plain(s) for s in recipe.position]
        if load.agrees(as_read.family, as_read.config, {**written, native.FIELD: {"position": position}}):
            said["position"] = position
    mine, theirs = (registry.without_defaults("attention", dict(r.attention)) for r in (recipe, as_read))
    same = build.network(recipe).pattern.specs.keys() == build.network(as_read).pattern.specs.keys()
    if mine != theirs and mine["name"] == theirs["name"] and same:
        said["attention"] = native.plain(recipe.attention)
    return said


def _table_free(recipe: Recipe) -> bool:
    return config.FAMILIES[recipe.family].position_fields is not None


def with_pattern(weights: dict, recipe: Recipe, seed: int = 0) -> dict:
    """`weights` with the parameters of the recipe's attention pattern; those there are stay where it has some."""
    pattern, layers = build.network(recipe).pattern, dict(weights["layers"])
    new = pattern.adopt(layers["attention"], jax.random.key(seed))
    if "pattern" in layers["attention"] and not new:
        log.warning("attention %s has no global projections, and those there were are left out", dict(recipe.attention))
    kept = {k: x for k, x in layers["attention"].items() if k != "pattern"}
    return {**weights, "layers": {**layers, "attention": kept | ({"pattern": new} if new else {})}}


def own_parts(model, dtype: str) -> Parts:
    """A model in lpe's own form, which every model has."""
    recipe = model.recipe
    written = config.write(model.config, recipe.family, recipe.heads, model.companions.raw, dtype, {})
    if (cfg := config.read(written, recipe.family)) != model.config:
        raise ValueError(f"config.json of {recipe.family} would be read as {cfg}, and this model has {model.config}")
    packed = native.pack(written, recipe.heads, recipe.position, recipe.attention)
    return Parts(packed, native.tensors(build.network(recipe).specs, model.params), recipe._replace(dtype="float32"))


FORMATS: dict[str, Callable[[Any, str], Parts]] = {"stock": stock_parts, "lpe": own_parts}


def check(
    folder: Path, source: Path | None, *, dtype: str, format: str, weights: str, max_shard_size: str, overwrite: bool
) -> None:
    """Raises what `save` would raise of its options, before there is anything to save.

    Args:
      source: the checkpoint's folder.
    """
    writing.check(dtype, weights, max_shard_size)
    if format not in FORMATS:
        raise ValueError(f"format={format!r}, allowed are {', '.join(FORMATS)}")
    if format == "lpe" and weights != "safetensors":
        raise ValueError(f"weights={weights!r} with format='lpe', which is safetensors alone; leave it out")
    if source is not None:
        at = beside.layout(source)
        _check_apart(folder, at)
        if at.modules and weights == "msgpack":
            raise ValueError(
                f"weights='msgpack': {at.root} is a sentence-transformers folder, which reads safetensors; leave it out"
            )
    writing.check_free(folder, overwrite)


def save(
    model,
    folder: Path,
    *,
    dtype: str = "float32",
    format: str = "stock",
    weights: str = "safetensors",
    max_shard_size: str = "5GB",
    overwrite: bool = False,
    inspect: Callable[[Path], None] = lambda folder: None,
) -> None:
    """Writes `folder`, whole or not at all.

    Args:
      model: a Model; the others are of Model.save_pretrained.
      inspect: called with the finished folder before it gets its name; an error there leaves nothing behind.
    """
    folder, source = folder.resolve(), _source(model)
    check(folder, source, dtype=dtype, format=format, weights=weights, max_shard_size=max_shard_size, overwrite=overwrite)
    parts = FORMATS[format](model, dtype)
    with writing.whole(folder, overwrite) as work:
        inner = work / (beside.layout(source).inner if source else "")
        inner.mkdir(exist_ok=True, parents=True)
        with _limited(model.tokenizer, model.max_length) as tokenizer:
            if tokenizer is not None:
                tokenizer.save_pretrained(inner)
        writing.write_json(inner / "config.json", parts.config)
        writing.write_weights(inner, parts.tensors, dtype, weights, max_shard_size)
        if source is not None:
            beside.copy(source, work, model.max_length)
            if model.tokenizer is None:
                name = None if parts.recipe.family == model.recipe.family else tokenizer_class(model.recipe.family)
                beside.describe_vocabulary(inner, name, model.max_length)
        inspect(work)


def _source(model) -> Path | None:
    """The folder that the model was loaded from, None where there was none or it is gone, with a warning then."""
    folder = model.companions.folder
    if folder is not None and not folder.is_dir():
        log.warning("%s is not there any more, so that no licence or model card travels from it", folder)
        return None
    return folder


def _check_apart(folder: Path, source: beside.Layout) -> None:
    """Raises ValueError where writing would touch the checkpoint that is read, or copy the folder into itself."""
    a, b = folder.resolve(), source.root.resolve()
    if a == b or a in b.parents:
        raise ValueError(f"{folder} is, or holds, the checkpoint that is read, which is never touched; choose another folder")
    if source.modules and b in a.parents:
        raise ValueError(f"{folder} lies in {source.root}, all of whose files travel; choose a folder outside of it")


@contextlib.contextmanager
def _limited(tokenizer, max_length: int | None) -> Iterator[Any]:
    """The tokenizer with model_max_length; afterwards the model's own is without a maximum again, for not all can be copied."""
    before = getattr(tokenizer, "model_max_length", None)
    try:
        if tokenizer is not None and max_length is not None:
            tokenizer.model_max_length = max_length
        yield tokenizer
    finally:
        if tokenizer is not None:
            tokenizer.model_max_length = before
