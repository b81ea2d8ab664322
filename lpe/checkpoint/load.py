"""From a folder to parameters: which family, which heads are there, and their tensors by the family's table."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from lpe.checkpoint import config, files
from lpe.checkpoint.mapping import Row
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
    attention: dict
    tensors: dict[str, np.ndarray]
    table: tuple[Row, ...]


def read_config(folder: Path, overrides: Mapping[str, Any] | None = None) -> tuple[str, BertConfig, dict]:
    """Family, config and the raw config.json. Cheap: what is wrong with a run should show before the weights are read.

    Args:
      overrides: attributes that replace config.json's.
    """
    raw = {**files.read_config(folder), **(overrides or {})}
    name, _ = config.family_of(raw, str(folder))
    cfg = config.read(raw, str(folder))
    attention(name, raw, (), str(folder))
    return name, cfg, raw


def read(folder: Path, overrides: Mapping[str, Any] | None = None, ignore: Iterable[str] = ()) -> Source:
    """Reads weights and finds out which heads they hold.

    Args:
      overrides: attributes that replace config.json's.
      ignore: beginnings of the names of tensors to leave out, with or without the family's prefix.

    Raises:
      FileNotFoundError, ValueError: as files and mapping say, and for an `ignore` that meets nothing.
    """
    name, cfg, raw = read_config(folder, overrides)
    family = config.FAMILIES[name]
    tensors = _named(files.read_tensors(folder), name, str(folder))
    for start in (ignore,) if isinstance(ignore, str) else ignore:
        met = [k for k in tensors if k.startswith(start) or (family.PREFIX + k).startswith(start)]
        if not met:
            raise ValueError(
                f"{folder}: ignore={start!r} meets no tensor; names there begin {', '.join(sorted(tensors)[:3])}, …"
            )
        for key in met:
            del tensors[key]
    for buffer in BUFFERS:
        tensors.pop(buffer, None)
    for key in family.DROPPED:
        if tensors.pop(key, None) is not None:
            log.warning("%s: %s is not used by lpe and was left out", folder, key)
    cfg = _untie(tensors, cfg, family, str(folder))
    tagger = (raw.get("architectures") or [""])[0].endswith(family.CLASSES["tagger"])
    table = family_table(name, "pooler.dense.weight" not in tensors, tagger)
    present = {ours for ours, theirs, _ in table if theirs in tensors}
    heads = tuple(h for h, path in HEAD_PATHS.items() if any(p.startswith(path) for p in present))
    return Source(str(folder), name, cfg, raw, heads, attention(name, raw, heads, str(folder)), tensors, table)


def attention(name: str, raw: dict, heads: tuple[str, ...], source: str) -> dict:
    """The attention pattern of a family's weights, as in Recipe.attention. Raises ValueError where config.json says none."""
    return config.FAMILIES[name].attention(raw, heads, source)


def family_table(name: str, classifier_pools: bool, tagger: bool) -> tuple[Row, ...]:
    """All rows of a family; where two heads have one name in files, one of them is taken.

    Args:
      classifier_pools: the classifier brings a pooler of its own, as RoBERTa's does.
      tagger: "classifier" is that of tokens, not of texts.
    """
    family = config.FAMILIES[name]
    other = "classifier/" if tagger else "tagger/"
    heads = tuple(r for r in family.HEADS if not r[0].startswith(other))
    if classifier_pools and any(ours.startswith("pooler/") for ours, _, _ in heads):
        return (*family.ENCODER, *heads)
    return (*family.ENCODER, *family.POOLER, *(r for r in heads if not r[0].startswith("pooler/")))


def _named(tensors: dict[str, np.ndarray], name: str, source: str) -> dict[str, np.ndarray]:
    """The tensors without the family's prefix and by today's names.

    Raises:
      ValueError: the names are another family's, or two of them become one.
    """
    out: dict[str, np.ndarray] = {}
    for key, x in tensors.items():
        for other, module in config.FAMILIES.items():
            if module is not config.FAMILIES[name] and key.startswith(module.PREFIX):
                raise ValueError(
                    f"{source}: {key} is a name of model_type={other!r}, but config.json says or leaves {name!r}; "
                    f'override it if the weights are right: model_type="{other}"'
                )
        new = _modern(key).removeprefix(config.FAMILIES[name].PREFIX)
        if new in out:
            raise ValueError(f"{source}: two tensors come to {new}, the second is {key}; keep the right one in the file")
        out[new] = x
    return out


def _modern(key: str) -> str:
    for old, new in OLD_NAMES.items():
        if key.endswith(old):
            return key.removesuffix(old) + new
    return key


def _untie(tensors: dict, cfg: BertConfig, family: ModuleType, source: str) -> BertConfig:
    """Settles the decoder's names: tied to the word embeddings unless the file holds another matrix.

    Raises:
      ValueError: config.json unties the decoder, and the file has none.
    """
    names = {ours: theirs for ours, theirs, _ in family.HEADS}
    decoder, bias = names["mlm_head/decoder"], names["mlm_head/bias"]
    if family.DECODER_BIAS in tensors:
        tensors[bias] = tensors.pop(family.DECODER_BIAS)
    word = tensors.get("embeddings.word_embeddings.weight")
    if decoder not in tensors:
        if not cfg.tie_word_embeddings and names["mlm_head/transform/kernel"] in tensors:
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
