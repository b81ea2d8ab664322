"""ELECTRA (Clark et al. 2020, arXiv 2003.10555) as Hugging Face writes it: generators with an MLM head, and discriminators."""

from collections.abc import Mapping
from typing import Any

from lpe.checkpoint import bert
from lpe.checkpoint.mapping import Row

PROJECTION: tuple[Row, ...] = (
    ("embeddings/projection/kernel", "embeddings_project.weight", "transpose"),
    ("embeddings/projection/bias", "embeddings_project.bias", "same"),
)
MLM: tuple[Row, ...] = (
    ("mlm_head/transform/kernel", "generator_predictions.dense.weight", "transpose"),
    ("mlm_head/transform/bias", "generator_predictions.dense.bias", "same"),
    ("mlm_head/norm/scale", "generator_predictions.LayerNorm.weight", "same"),
    ("mlm_head/norm/bias", "generator_predictions.LayerNorm.bias", "same"),
    ("mlm_head/decoder", "generator_lm_head.weight", "same"),
    ("mlm_head/bias", "generator_lm_head.bias", "same"),
)


def embedding_size(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A linear map follows the embeddings where they are not of the hidden size."""
    size = raw.get("embedding_size")
    return {"embedding_size": None if size in (None, raw["hidden_size"]) else size}


def fields(raw: Mapping[str, Any]) -> dict[str, Any]:
    return {"head_act": "gelu", "pooler_act": "gelu"} | embedding_size(raw)  # both fixed, whatever hidden_act says


FAMILY = bert.FAMILY._replace(
    classes="Electra",
    encoder=(*bert.FAMILY.encoder, *PROJECTION),
    pooler=(),
    heads={"mlm": MLM, "classifier": bert.POOLING_CLASSIFIER, "tagger": bert.TAGGER, "qa": bert.QA},
    prefix="electra.",
    decoder_bias="",
    dropped=("discriminator_predictions.",),
    defaults={"num_attention_heads": 4, "intermediate_size": 1024, "embedding_size": 128},
    carried=frozenset({"summary_type", "summary_use_proj", "summary_activation", "summary_last_dropout"}),
    own=frozenset({"embedding_size"}),
    fields=fields,
)
