"""From a folder to parameters: which family, which heads are there, and their tensors by the family's table."""

import logging
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lpe import registry
from lpe.checkpoint import config, files, native
from lpe.checkpoint.family import HEADS, Family
from lpe.checkpoint.mapping import PART, Row
from lpe.models.bert import BertConfig

log = logging.getLogger(__name__)
BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")
OLD_NAMES = {".gamma": ".weight", ".beta": ".bias"}
HEAD_PATHS = {"mlm": "mlm_head/", "pooler": "pooler/", "classifier": "classifier/", "tagger": "tagger/", "qa": "qa/"}


class Source(NamedTuple):
    """A checkpoint as read: nothing is computed yet."""

    name: str
    family: str
    config: BertConfig
    raw: dict
    heads: tuple[str, ...]
    position: Any
    attention: dict
    tensors: dict[str, np.ndarray]
    table: tuple[Row, ...]  # () for tensors of lpe's own names


def read_config(folder: Path, overrides: Mapping[str, Any] | None = None) -> tuple[str, BertConfig, dict]:
    """Family, config and the raw config.json. Cheap: what is wrong with a run should show before the weights are read.

    Args:
      overrides: attributes that replace config.json's.
    """
    raw = {**files.read_config(folder), **(overrides or {})}
    name = config.family_of(raw, str(folder))
    cfg = config.read(raw, str(folder))
    specs = position(name, raw, str(folder))
    specs = [("positions", s) for s in (specs if isinstance(specs, list) else [specs])]
    for package, spec in [("attention", attention(name, raw, (), str(folder))), *specs]:
        try:
            registry.make(package, spec, cfg)
        except ValueError as e:
            raise ValueError(f"{folder}: config.json asks for what lpe does not have: {e}") from e
    for field, value in _disagreeing(name, cfg, raw):
        raise ValueError(
            f"{folder}: config.json has {field}={raw.get(field)!r}, and its field {native.FIELD!r} was written for {value!r}; "
            f"take that field out of config.json (or load with {native.FIELD}={{}}) if the other is right"
        )
    return name, cfg, raw


def agrees(name: str, cfg: BertConfig, raw: dict) -> bool:
    """Whether the field `lpe` of a stock folder's config.json says what the family's own fields say, and more."""
    return not _disagreeing(name, cfg, raw)


def _disagreeing(name: str, cfg: BertConfig, raw: dict) -> list[tuple[str, Any]]:
    """Fields of a stock folder that its field `lpe` has other values for, with these."""
    if native.is_whole(raw):
        return []
    family, about = config.FAMILIES[name], raw.get(native.FIELD, {})
    said: dict[str, Any] = {}
    if "attention" in about:
        spec = registry.without_defaults("attention", dict(registry.freeze(about["attention"])))
        said |= family.attention_fields(spec, cfg.num_hidden_layers, ()) or {native.FIELD: None}
    if "position" in about:
        express = family.position_fields
        said |= (express and express(dict(registry.freeze(about["position"][0])), cfg)) or {native.FIELD: None}
    there = config.standard(raw, family, name)
    return [(field, value) for field, value in said.items() if registry.freeze(there.get(field)) != registry.freeze(value)]


def read(folder: Path, overrides: Mapping[str, Any] | None = None, ignore: Iterable[str] = ()) -> Source:
    """Reads weights and finds out which heads they hold.

    Args:
      overrides: attributes that replace config.json's.
      ignore: beginnings of the names of tensors to leave out, with or without the family's prefix.

    Raises:
      FileNotFoundError, ValueError: as files and mapping say, and for an `ignore` that meets nothing.
    """
    name, cfg, raw = read_config(folder, overrides)
    family, source = config.FAMILIES[name], str(folder)
    whole = native.is_whole(raw)
    tensors = files.read_tensors(folder) if whole else _named(files.read_tensors(folder), name, source)
    for start in (ignore,) if isinstance(ignore, str) else ignore:
        if not start:
            raise ValueError(f"{source}: ignore has an empty name, which every tensor begins with; give beginnings of names")
        met = [k for k in tensors if k.startswith(start) or (family.prefix + k).startswith(start)]
        if not met:
            raise ValueError(
                f"{source}: ignore={start!r} meets no tensor; names there begin {', '.join(sorted(tensors)[:3])}, …"
            )
        for key in met:
            del tensors[key]
    if whole:
        heads = tuple(raw[native.FIELD]["heads"])
        return Source(
            source, name, cfg, raw, heads, position(name, raw, source), attention(name, raw, heads, source), tensors, ()
        )
    for buffer in BUFFERS:
        tensors.pop(buffer, None)
    for start, why in family.refused.items():
        if met := [k for k in tensors if k.startswith(start)]:
            raise ValueError(
                f"{source}: {met[0]} is of a head of {name} that lpe does not have, for {why}; to use the encoder alone, "
                f"leave it out: from_pretrained(…, ignore={start!r})"
            )
    _leave_out(tensors, family, cfg, source)
    classes = raw.get("architectures") or [""]
    found = _heads(tensors, family, cfg, classes if isinstance(classes, str) else classes[0])
    cfg = _untie(tensors, cfg, family, source)
    table = family_table(name, found, cfg)
    if family.pooler and not {r[1] for r in family.pooler} & {r[1] for r in table}:
        _drop(tensors, tuple(r[1] for r in family.pooler), source)
    pools = any(ours.startswith(HEAD_PATHS["pooler"]) and theirs in tensors for ours, theirs, _ in table)
    heads = tuple(h for h in HEAD_PATHS if h in found or (h == "pooler" and pools))
    specs = position(name, raw, source), attention(name, raw, heads, source)
    return Source(source, name, cfg, raw, heads, *specs, tensors, table)


def attention(name: str, raw: dict, heads: tuple[str, ...], source: str) -> dict:
    """The attention pattern of a family's weights, as in Recipe.attention. Raises ValueError where config.json says none."""
    if said := raw.get(native.FIELD, {}).get("attention"):
        return said
    family = config.FAMILIES[name]
    return family.attention(config.standard(raw, family, source), heads, source)


def position(name: str, raw: dict, source: str) -> Any:
    """The position method of a family's weights, or a list of such, as in Recipe.position.

    Raises:
      ValueError: config.json says none.
    """
    if said := raw.get(native.FIELD, {}).get("position"):
        return said
    family = config.FAMILIES[name]
    return family.position(config.standard(raw, family, source), source)


def family_table(name: str, heads: Iterable[str], cfg: BertConfig) -> tuple[Row, ...]:
    """The rows of a family for models with these heads; a classifier with a pooler of its own stands in for the common one."""
    family = config.FAMILIES[name]
    rows = [row for head in heads if head in family.heads for row in family.heads[head]]
    pools = any(ours.startswith("pooler/") for ours, _, _ in rows)
    gated = family.gated if cfg.gated_mlp else ()
    encoder = [row for row in family.encoder if row[0] not in {ours for ours, _, _ in gated}]
    return (*encoder, *gated, *(() if pools else family.pooler), *rows)


def _heads(tensors: Mapping[str, np.ndarray], family: Family, cfg: BertConfig, architecture: str) -> list[str]:
    """The heads whose tensors are there; of two that share a name in files the one of the architecture, else the first.

    An MLM head that is a tied decoder alone may have no tensor, and is there if the architecture says so.
    """
    owners = Counter(theirs for rows in family.heads.values() for theirs in {r[1] for r in rows})
    order = sorted(family.heads, key=lambda h: not architecture.endswith(HEADS[h]))
    found, taken = [], set()
    for head in order:
        names = {theirs for _, theirs, _ in family.heads[head] if theirs in tensors}
        own = {theirs for _, theirs, _ in family.heads[head] if owners[theirs] == 1}
        if names and (names & own or not own or architecture.endswith(HEADS[head])) and not names & taken:
            found.append(head)
            taken |= names
    alone = not cfg.head_transform and architecture.endswith(HEADS["mlm"])
    return ["mlm", *found] if alone and "mlm" not in found else found


def _leave_out(tensors: dict[str, np.ndarray], family: Family, cfg: BertConfig, source: str) -> None:
    """Takes out what is not a parameter of ours.

    Raises:
      ValueError: a constant or a copy that is not what it should be.
    """
    _drop(tensors, family.dropped, source)
    for key, make in family.computed.items():
        x, want = tensors.pop(key, None), make(cfg)
        if x is not None and (x.shape != want.shape or not np.allclose(x, want, rtol=0, atol=2**-8)):
            raise ValueError(
                f"{source}: {key} is not the constant of shape {want.shape} that it should be; lpe computes it and cannot use "
                f"another. If it is of no importance, leave it out: from_pretrained(…, ignore={key!r})"
            )
    for key, other in family.copies.items():
        if key in tensors and other in tensors and not np.array_equal(tensors[key], tensors[other]):
            raise ValueError(f"{source}: {key} and {other} should be equal and are not; lpe has room for one of them")
        if key in tensors:
            tensors[other] = tensors.pop(key)


def _drop(tensors: dict[str, np.ndarray], starts: tuple[str, ...], source: str) -> None:
    if starts and (gone := [key for key in tensors if key.startswith(starts)]):
        shown = ", ".join(gone[:3]) + (f" and {len(gone) - 3} more" if len(gone) > 3 else "")
        log.warning("%s: not used by lpe and left out: %s", source, shown)
        for key in gone:
            del tensors[key]


def _named(tensors: dict[str, np.ndarray], name: str, source: str) -> dict[str, np.ndarray]:
    """The tensors without the family's prefix and by today's names.

    Raises:
      ValueError: the names are another family's, or two of them become one.
    """
    out, family = {}, config.FAMILIES[name]
    known = {_unnumbered(PART.sub(r"\1", theirs)) for _, theirs, _ in family.rows}
    for key, x in tensors.items():
        mine = next((p for p in (family.prefix, *family.old_prefixes) if key.startswith(p)), "")
        new = _modern(key).removeprefix(mine)
        for pattern, replacement in family.aliases:
            new = re.sub(pattern, replacement, new)
        if not mine and _unnumbered(PART.sub(r"\1", new)) not in known:
            for other, about in config.FAMILIES.items():
                if key.startswith(about.prefix) and not key.startswith(family.dropped or "\n"):
                    raise ValueError(
                        f"{source}: {key} is a name of model_type={other!r}, but config.json says or leaves {name!r}; "
                        f'override it if the weights are right: model_type="{other}"'
                    )
        if new in out:
            raise ValueError(f"{source}: two tensors come to {new}, the second is {key}; keep the right one in the file")
        out[new] = x
    return out


def _unnumbered(key: str) -> str:
    return re.sub(r"\d+|\{i\}", "#", key)


def _modern(key: str) -> str:
    for old, new in OLD_NAMES.items():
        if key.endswith(old):
            return key.removesuffix(old) + new
    return key


def _untie(tensors: dict, cfg: BertConfig, family: Family, source: str) -> BertConfig:
    """Settles the decoder's names: tied to the word embeddings unless the file holds another matrix.

    Raises:
      ValueError: config.json unties the decoder, and the file has none.
    """
    names = {ours: theirs for ours, theirs, _ in (*family.encoder, *family.heads.get("mlm", ()))}
    if "mlm" not in family.heads:
        return cfg
    decoder, bias = names["mlm_head/decoder"], names["mlm_head/bias"]
    if family.decoder_bias in tensors:
        tensors[bias] = tensors.pop(family.decoder_bias)
    word = tensors.get(names["embeddings/word"])
    if decoder not in tensors:
        if not cfg.tie_word_embeddings and bias in tensors:
            raise ValueError(
                f"{source}: missing {decoder}, and config.json says tie_word_embeddings=False; "
                "if it is the word embeddings, override it: tie_word_embeddings=True"
            )
        return cfg
    if word is not None and np.array_equal(tensors[decoder], word):
        tensors.pop(decoder)
        return replace(cfg, tie_word_embeddings=True)
    if cfg.tie_word_embeddings:
        log.warning("%s differs from the word embeddings although config.json ties them; the file's matrix is used", decoder)
    return replace(cfg, tie_word_embeddings=False)
