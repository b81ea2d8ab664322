"""The model that a notebook holds: parameters as a pytree, everything else static."""

import dataclasses
import logging
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from lpe import build, inputs, params, saving, stock, tokens
from lpe.build import Recipe
from lpe.checkpoint import load, mapping, native
from lpe.checkpoint.folder import expanded, find, read_tokenizer
from lpe.models import heads

log = logging.getLogger(__name__)


class Companions:
    """What travels with a model without touching its computation; compared by value, tokenizers by identity.

    Model's own methods compile without it, so that equal models share one compilation whatever their tokenizers.
    """

    def __init__(self, tokenizer=None, raw: dict | None = None, source: str = "", folder: Path | None = None):
        self.tokenizer, self.raw, self.source, self.folder = tokenizer, raw or {}, source, folder

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Companions):
            return False
        return self.tokenizer is other.tokenizer and (self.raw, self.source) == (other.raw, other.source)

    def __hash__(self) -> int:
        return hash(self.source)


@partial(jax.tree_util.register_dataclass, data_fields=["params"], meta_fields=["recipe", "companions"])
@dataclasses.dataclass(frozen=True, repr=False)
class Model:
    """A BERT-family model with its position method and attention pattern; a pytree, usable under jit and grad.

    params: nested dict of float32 arrays. recipe: config, position, attention as plain data.
    """

    params: dict
    recipe: Recipe
    companions: Companions = dataclasses.field(default_factory=Companions)

    def __repr__(self) -> str:
        cfg, r = self.config, self.recipe
        limit = "any length" if self.max_length is None else f"{self.max_length:,} tokens"
        size = f"{cfg.num_hidden_layers} layers of {cfg.hidden_size}, {params.count(self.params):,} parameters"
        heads = ", ".join(r.heads) or "no head"
        return f"<lpe.Model {r.family}: {size}; {build.names(r)}, {limit}; attention {dict(r.attention)}; {heads}>"

    @property
    def config(self):
        return self.recipe.config

    @property
    def tokenizer(self) -> Any:
        return self.companions.tokenizer

    @property
    def max_length(self) -> int | None:
        """Positions that the model offers; None = no limit."""
        return build.network(self.recipe).position.max_length

    def encode(self, batch: Mapping[str, Any]) -> Array:
        """The last hidden state, f32[B, T, D], of a batch as transformers' tokenizers make it.

        Raises:
          ValueError: an id outside the vocabulary, or an input longer than the model's positions.
        """
        return self._outputs(batch, "encode")

    def mlm_logits(self, batch: Mapping[str, Any]) -> Array:
        """Scores of the vocabulary at every place, f32[B, T, V]. Raises ValueError without an MLM head, or as encode."""
        self.require("mlm")
        return self._outputs(batch, "mlm")

    def classify(self, batch: Mapping[str, Any]) -> Array:
        """Class scores f32[B, C]. Raises ValueError without a classification head, or as encode."""
        self.require("pooler", "classifier")
        if "segment_ids" in batch:
            raise ValueError("classify scores one document per row; a batch with segment_ids holds several, so unpack it")
        return self._outputs(batch, "classify")

    def tag(self, batch: Mapping[str, Any]) -> Array:
        """Tag scores of every token, f32[B, T, C]. Raises ValueError without a tagging head, or as encode."""
        self.require("tagger")
        return self._outputs(batch, "tag")

    def answer(self, batch: Mapping[str, Any]) -> Array:
        """Scores of every token as start and end of the answer, f32[B, T, 2]. Raises ValueError without such a head."""
        self.require("qa")
        return self._outputs(batch, "qa")

    def _outputs(self, batch: Mapping[str, Any], what: str) -> Array:
        return _run(self._bare(), inputs.checked(build.network(self.recipe), batch), what)

    def extend(
        self,
        *,
        max_length: int | None = None,
        position: build.Position | None = None,
        attention: Mapping[str, Any] | None = None,
        seed: int = 0,
    ) -> "Model":
        """The same weights with another position method or attention pattern; its claims say what short inputs keep.

        Args:
          max_length: positions wanted; shorthand for the option of that name of `position`.
          position: {"name": …, options}, or a list of such. Default: what there is; max_length makes a table hierarchical,
            or `copy` where attention is `window`, which makes it so without max_length too, as Longformer does.
          attention: {"name": …, options}. Default: unchanged.
          seed: for parameters that are drawn anew (`random`, `shaw`, `t5`, `transformer_xl`).

        Raises:
          ValueError: an unknown method or option, a length that the method does not reach, or methods that do not go together.
        """
        cfg = self.config
        if "table" in self.params.get("position", {}):
            cfg = dataclasses.replace(cfg, max_position_embeddings=self.params["position"]["table"].shape[0])
        recipe = self.recipe._replace(config=cfg)
        if attention is not None:
            recipe = recipe._replace(attention=build.attention(attention))
        if position is not None:
            recipe = recipe._replace(position=build.keep_weights(recipe.position, build.positions(position, max_length)))
        elif max_length is not None or (build.plain(recipe) and build.own_extension(recipe, beside=self.recipe)):
            recipe = recipe._replace(position=build.longer(recipe, max_length))
        there = self.params.get("position", {})
        if recipe.position == self.recipe.position:
            recipe, own = recipe._replace(config=self.config), there
        else:
            own = build.network(recipe).position.adopt(there, jax.random.key(seed))
            self._tell_of(recipe)
        new = {k: x for k, x in self.params.items() if k != "position"} | ({"position": own} if own else {})
        new = saving.with_pattern(new, recipe, seed)
        params.check(build.network(recipe).specs, new)
        return dataclasses.replace(self, params=new, recipe=recipe)

    def _tell_of(self, recipe: Recipe) -> None:
        """Logs what a user should know of the positions that `recipe` gives these weights."""
        before, after, cfg = build.position_method(self.recipe), build.position_method(recipe), recipe.config
        if build.retrains(before, after):
            lost = ", ".join(f"position/{name}" for name in sorted(before.specs.keys() - after.specs.keys()))
            also = f", and {lost} is left out" if lost else ""
            message = "position %s in place of %s: the weights were not trained with it%s; they need training to be of use"
            log.warning(message, build.names(recipe), build.names(self.recipe), also)
        elif after.max_length is not None and after.max_length <= (n := cfg.max_position_embeddings - cfg.reserved_rows):
            log.warning("max_length=%d is within the %d trained positions: nothing is extended", after.max_length, n)

    def position_table(self) -> Array:
        """The position table as stock classes hold it: reserved rows, then the vector of every position, f32[rows, D].

        Raises:
          ValueError: no single table holds the vectors; or the method has no limit, so extend with max_length first.
        """
        net = build.network(self.recipe)
        stock.check_table(net)
        r = self.config.reserved_rows
        table = self.params.get("position", {}).get(
            "table", jnp.zeros((r, self.config.embedding_width))
        )  # only padding reads them
        return jnp.concatenate([table[:r], _table(self._bare(), net.position.max_length)])

    def save_pretrained(
        self,
        folder: str | Path,
        *,
        dtype: str = "float32",
        format: str = "stock",
        weights: str = "safetensors",
        max_shard_size: str = "5GB",
        overwrite: bool = False,
    ) -> None:
        """Writes a folder, whole or not at all: config.json, weights, tokenizer, and what lay beside them in the source.

        Args:
          folder: must not exist yet, or be empty, unless `overwrite`.
          dtype: float32, float16 or bfloat16, of the file.
          format: stock, an ordinary Hugging Face checkpoint; or lpe, for lpe.from_pretrained alone, which takes every model.
          weights: safetensors, or msgpack (flax_model.msgpack).
          max_shard_size: more than that comes in several files, as "5GB" or "500MB".
          overwrite: replace what is in `folder`, once the new one is whole.

        Raises:
          ValueError: no stock class expresses the model, with the reason. FileExistsError: `folder` is not empty.
        """
        saving.save(
            self, expanded(folder), dtype=dtype, format=format, weights=weights, max_shard_size=max_shard_size,
            overwrite=overwrite,
        )  # fmt: skip

    def _bare(self) -> "Model":
        return dataclasses.replace(self, companions=Companions())

    def require(self, *heads: str) -> None:
        """Raises ValueError, with the way out, when the checkpoint brought no such head."""
        missing = [h for h in heads if h not in self.recipe.heads]
        if missing:
            raise ValueError(
                f"{self.companions.source or 'this model'} has no {' and no '.join(missing)} head; "
                f"it has {', '.join(self.recipe.heads) or 'none'}. Ways out: load a checkpoint saved by a class with it "
                f"({', '.join(build.CLASSES[h] for h in missing)}; the release that this one was made from often has it), "
                "or use what needs no head, as model.encode"
            )


@partial(jax.jit, static_argnames="what")
def _run(model: Model, batch: dict[str, Array], what: str) -> Array:
    x, tok = build.network(model.recipe).encode(model.params, batch)
    if what == "mlm":
        return heads.mlm_logits(model.params, model.config, x)
    if what == "classify":
        return heads.classify(model.params, model.config, x, tok)
    if what == "tag":
        return heads.tag(model.params, model.config, x)
    if what == "qa":
        return heads.span(model.params, model.config, x)
    return x.astype(jnp.float32)


@partial(jax.jit, static_argnames="length")
def _table(model: Model, length: int) -> Array:
    net = build.network(model.recipe)
    ids = jnp.zeros((1, length), jnp.int32)
    zeros = jnp.zeros((1, length, model.config.embedding_width), jnp.float32)
    return net.position.embed(model.params.get("position", {}), zeros, tokens.from_batch({"input_ids": ids}))[0]


def from_pretrained(
    source: str | Path,
    *,
    position: build.Position | None = None,
    attention: Mapping[str, Any] | None = None,
    dtype: str = "float32",
    remat: str = "none",
    chunk_size: int = 0,
    seed: int = 0,
    ignore: Iterable[str] = (),
    **overrides: Any,
) -> Model:
    """Loads a checkpoint of BERT's family (checkpoint.config.FAMILIES; the README's page of families).

    From safetensors, Flax msgpack or PyTorch files, whole or sharded.

    Args:
      source: a folder in Hugging Face's form, a hub id, or an embedded name ("bert-mini").
      position: {"name": …, options}, or a list of such. Default: the checkpoint's own, or as in extend.
      attention: {"name": …, options}. Default: the checkpoint's own.
      dtype: compute dtype, float32 or bfloat16; parameters are float32.
      remat: what the backward pass recomputes: none, full, dots.
      chunk_size: tokens at a time of the feed-forward part, to save memory; 0 for all at once.
      seed: for parameters that are drawn anew.
      ignore: beginnings of the names of tensors to leave out; else a tensor that lpe has no use for is an error.
      overrides: attributes that replace config.json's, as num_labels=3 or model_type="roberta".

    Raises:
      FileNotFoundError: nothing there. ValueError: something in it that lpe does not read, by name.
    """
    folder = find(source)
    family, cfg, raw = load.read_config(folder, overrides)
    own = build.positions(load.position(family, raw, str(folder)))
    wanted = Recipe(family, cfg, (), own, dtype=dtype, remat=remat, chunk_size=chunk_size)
    if position is not None:
        wanted = wanted._replace(position=build.keep_weights(own, build.positions(position)))
    wanted = wanted._replace(attention=build.attention(attention)) if attention is not None else wanted
    build.network(wanted)  # a bad option shows before the weights are read
    src = load.read(folder, overrides, ignore)
    recipe = Recipe(
        src.family,
        src.config,
        src.heads,
        build.positions(src.position),
        build.attention(src.attention),
        dtype,
        remat,
        chunk_size,
    )
    specs = build.network(recipe).specs
    weights = mapping.import_params(src.table or native.table(specs), specs, src.tensors, src.name)
    model = Model(weights, recipe, Companions(read_tokenizer(folder), src.raw, str(source), folder.resolve()))
    return model.extend(position=position, attention=attention, seed=seed)


def initialise(cfg, heads: tuple[str, ...], *, family: str = "bert", seed: int = 0, tokenizer=None) -> Model:
    """A model with fresh weights."""
    recipe = Recipe(family, cfg, heads)
    return Model(params.init(build.network(recipe).specs, jax.random.key(seed)), recipe, Companions(tokenizer))
