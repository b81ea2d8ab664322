"""A model's weights as the tensors of a Hugging Face folder that stock transformers loads."""

import dataclasses

import numpy as np

from lpe.checkpoint import config, load, mapping
from lpe.models.bert import BertConfig


def tensors(params: dict, cfg: BertConfig, family: str, heads: tuple[str, ...], rows: int) -> dict[str, np.ndarray]:
    """The tensors by the family's names, float32.

    Args:
      params: nested parameters of the model; a position table as it shall be written, reserved rows included.
      rows: max_position_embeddings as it shall be written.
    """
    about = config.FAMILIES[family]
    table = load.family_table(family, heads, cfg)
    body = {theirs for _, theirs, _ in (*about.encoder, *about.pooler)}
    prefix = about.prefix if config.head_of(heads) else ""
    names = {theirs: prefix + theirs if theirs in body else theirs for _, theirs, _ in table}
    found = mapping.export_tensors([(ours, names[theirs], op) for ours, theirs, op in table], params)
    if about.decoder_bias and "decoder" in params.get("mlm_head", {}):  # an untied decoder reads its bias under its own name
        found[about.decoder_bias] = np.asarray(params["mlm_head"]["bias"])
    long = dataclasses.replace(cfg, max_position_embeddings=rows)
    return found | {prefix + name: make(long) for name, make in about.computed.items()}
