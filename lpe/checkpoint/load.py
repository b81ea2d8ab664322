"""From a folder to parameters: which family, which heads are there, and their tensors by the family's table."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lpe.checkpoint import config, files
from lpe.checkpoint.mapping import Row
from lpe.models.bert import BertConfig

log = logging.getLogger(__name__)
BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")
OLD_NAMES = {".gamma": ".weight", ".beta": ".bias"}
HEAD_PATHS = {"mlm": "mlm_head/", "pooler": "pooler/", "classifier": "classifier/"}


class Source(NamedTuple):
    """A checkpoint as read: nothing is computed yet."""

    name: str
    family: str
    config: BertConfig
    raw: dict
    heads: tuple[str, ...]
    tensors: dict[str, np.ndarray]
    table: tuple[Row, ...]


def read_config(folder: Path) -> tuple[str, BertConfig, dict]:
    """Family, config and the raw config.json. Cheap: what is wrong with a run should show before the weights are read."""
    raw = files.read_json(folder / "config.json")
    return config.family_of(raw, str(folder))[0], config.read(raw, str(folder)), raw


def read(folder: Path) -> Source:
    """Reads weights and finds out which heads they hold.

    Raises:
      FileNotFoundError, ValueError: as files and mapping say.
    """
    name, cfg, raw = read_config(folder)
    family = config.FAMILIES[name]
    tensors = {_modern(k).removeprefix(family.PREFIX): x for k, x in files.read_tensors(folder).items()}
    for buffer in BUFFERS:
        tensors.pop(buffer, None)
    for key in family.DROPPED:
        if tensors.pop(key, None) is not None:
            log.warning("%s: %s is not used by lpe and was left out", folder, key)
    cfg = _untie(tensors, cfg, family)
    table = family_table(name, "pooler.dense.weight" not in tensors)
    present = {ours for ours, theirs, _ in table if theirs in tensors}
    heads = tuple(h for h, path in HEAD_PATHS.items() if any(p.startswith(path) for p in present))
    return Source(str(folder), name, cfg, raw, heads, tensors, table)


def family_table(name: str, classifier_pools: bool) -> tuple[Row, ...]:
    """All rows of a family; where its classifier brings a pooler of its own, one of the two names is taken."""
    family = config.FAMILIES[name]
    own = any(ours.startswith("pooler/") for ours, _, _ in family.HEADS)
    if own and classifier_pools:
        return (*family.ENCODER, *family.HEADS)
    return (*family.ENCODER, *family.POOLER, *(r for r in family.HEADS if not r[0].startswith("pooler/")))


def _modern(key: str) -> str:
    for old, new in OLD_NAMES.items():
        if key.endswith(old):
            return key.removesuffix(old) + new
    return key


def _untie(tensors: dict, cfg: BertConfig, family) -> BertConfig:
    """Settles the decoder's two names: tied to the word embeddings unless the file holds another matrix."""
    names = {ours: theirs for ours, theirs, _ in family.HEADS}
    decoder, bias = names["mlm_head/decoder"], names["mlm_head/bias"]
    second = tensors.pop(family.DECODER_BIAS, None)
    if second is not None:
        tensors.setdefault(bias, second)
    word = tensors.get("embeddings.word_embeddings.weight")
    has_head = names["mlm_head/transform/kernel"] in tensors
    if decoder not in tensors:
        return replace(cfg, tie_word_embeddings=True) if has_head else cfg
    if word is not None and np.array_equal(tensors[decoder], word):
        tensors.pop(decoder)
        return replace(cfg, tie_word_embeddings=True)
    if cfg.tie_word_embeddings:
        log.warning("%s differs from the word embeddings although config.json ties them; the file's matrix is used", decoder)
    return replace(cfg, tie_word_embeddings=False)
