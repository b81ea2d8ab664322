"""Writes a model as an ordinary Hugging Face folder that stock transformers loads."""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lpe.checkpoint import config, files, load, mapping
from lpe.models.bert import BertConfig


def save(
    folder: Path,
    params: dict,
    cfg: BertConfig,
    family: str,
    heads: tuple[str, ...],
    raw: dict,
    table_mD: np.ndarray,
    dtype: str,
    tokenizer,
    attention: Mapping[str, Any],
) -> None:
    """Writes `folder`, whole or not at all.

    Args:
      params: nested parameters of the model.
      table_mD: the position table to write, reserved rows included.
      dtype: float32, float16 or bfloat16, of the file.
      tokenizer: travels along when given, with model_max_length set to the positions there are.
      attention: the pattern, one that the family expresses, less its options at their defaults.
    """
    params = {**params, "position": {"table": table_mD}}
    module = config.FAMILIES[family]
    table = load.family_table(family, "classifier" in heads, "tagger" in heads)
    body = {theirs for _, theirs, _ in (*module.ENCODER, *module.POOLER)}
    prefix = module.PREFIX if set(config.HEAD_CLASSES) & set(heads) else ""
    names = {theirs: prefix + theirs if theirs in body else theirs for _, theirs, _ in table}
    tensors = mapping.export_tensors([(ours, names[theirs], op) for ours, theirs, op in table], params)
    if "decoder" in params.get("mlm_head", {}):  # an untied decoder reads its bias under its own name
        tensors[module.DECODER_BIAS] = params["mlm_head"]["bias"]
    if tokenizer is not None:
        tokenizer = copy.deepcopy(tokenizer)  # the model's own stays without a maximum
        tokenizer.model_max_length = table_mD.shape[0] - cfg.reserved_rows
    fields = module.attention_fields(attention, cfg.num_hidden_layers, heads) or {}
    written = config.write(cfg, family, heads, raw, table_mD.shape[0], dtype, fields)
    files.write_folder(folder, written, tensors, dtype, tokenizer)
