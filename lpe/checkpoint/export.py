"""Writes a model as an ordinary Hugging Face folder that stock transformers loads."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lpe.checkpoint import config, files, load, mapping
from lpe.models.bert import BertConfig


def save(
    folder: Path,
    params: dict,
    cfg: BertConfig,
    family: str,
    heads: tuple[str, ...],
    raw: dict,
    max_length: int | None,
    dtype: str,
    tokenizer,
    changed: Mapping[str, Any],
) -> None:
    """Writes `folder`, whole or not at all.

    Args:
      params: nested parameters of the model; a position table as it shall be written, reserved rows included.
      max_length: positions that there are, None without limit.
      dtype: float32, float16 or bfloat16, of the file.
      tokenizer: travels along when given, with model_max_length set to max_length.
      changed: fields of config.json, by our names, that differ from those of the source.
    """
    about = config.FAMILIES[family]
    table = load.family_table(family, heads, cfg)
    body = {theirs for _, theirs, _ in (*about.encoder, *about.pooler)}
    prefix = about.prefix if config.head_of(heads) else ""
    names = {theirs: prefix + theirs if theirs in body else theirs for _, theirs, _ in table}
    tensors = mapping.export_tensors([(ours, names[theirs], op) for ours, theirs, op in table], params)
    if about.decoder_bias and "decoder" in params.get("mlm_head", {}):  # an untied decoder reads its bias under its own name
        tensors[about.decoder_bias] = params["mlm_head"]["bias"]
    long = dataclasses.replace(cfg, **{k: v for k, v in changed.items() if k == "max_position_embeddings"})
    tensors |= {prefix + name: make(long) for name, make in about.computed.items()}
    written = config.write(cfg, family, heads, raw, dtype, changed)
    before = getattr(tokenizer, "model_max_length", None)  # the model's own stays without a maximum; not all can be copied
    try:
        if tokenizer is not None and max_length is not None:
            tokenizer.model_max_length = max_length
        files.write_folder(folder, written, tensors, dtype, tokenizer)
    finally:
        if tokenizer is not None:
            tokenizer.model_max_length = before
