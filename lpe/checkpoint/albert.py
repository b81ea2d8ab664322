"""ALBERT (Lan et al. 2019, arXiv 1909.11942) as Hugging Face writes it: shared layers, factorised embeddings."""

from collections.abc import Mapping
from typing import Any

from lpe.checkpoint import bert
from lpe.checkpoint.mapping import Row

LAYER = "encoder.albert_layer_groups.{i}.albert_layers.0."
ENCODER: tuple[Row, ...] = (
    *bert.EMBEDDINGS,
    *bert.TABLE,
    ("embeddings/projection/kernel", "encoder.embedding_hidden_mapping_in.weight", "transpose"),
    ("embeddings/projection/bias", "encoder.embedding_hidden_mapping_in.bias", "same"),
    ("layers/attention/query/kernel", LAYER + "attention.query.weight", "split"),
    ("layers/attention/query/bias", LAYER + "attention.query.bias", "split_bias"),
    ("layers/attention/key/kernel", LAYER + "attention.key.weight", "split"),
    ("layers/attention/key/bias", LAYER + "attention.key.bias", "split_bias"),
    ("layers/attention/value/kernel", LAYER + "attention.value.weight", "split"),
    ("layers/attention/value/bias", LAYER + "attention.value.bias", "split_bias"),
    ("layers/attention/output/kernel", LAYER + "attention.dense.weight", "merge"),
    ("layers/attention/output/bias", LAYER + "attention.dense.bias", "same"),
    ("layers/attention_norm/scale", LAYER + "attention.LayerNorm.weight", "same"),
    ("layers/attention_norm/bias", LAYER + "attention.LayerNorm.bias", "same"),
    ("layers/intermediate/kernel", LAYER + "ffn.weight", "transpose"),
    ("layers/intermediate/bias", LAYER + "ffn.bias", "same"),
    ("layers/output/kernel", LAYER + "ffn_output.weight", "transpose"),
    ("layers/output/bias", LAYER + "ffn_output.bias", "same"),
    ("layers/output_norm/scale", LAYER + "full_layer_layer_norm.weight", "same"),
    ("layers/output_norm/bias", LAYER + "full_layer_layer_norm.bias", "same"),
)
POOLER: tuple[Row, ...] = (
    ("pooler/kernel", "pooler.weight", "transpose"),
    ("pooler/bias", "pooler.bias", "same"),
)
MLM: tuple[Row, ...] = (
    ("mlm_head/transform/kernel", "predictions.dense.weight", "transpose"),
    ("mlm_head/transform/bias", "predictions.dense.bias", "same"),
    ("mlm_head/norm/scale", "predictions.LayerNorm.weight", "same"),
    ("mlm_head/norm/bias", "predictions.LayerNorm.bias", "same"),
    ("mlm_head/decoder", "predictions.decoder.weight", "same"),
    ("mlm_head/bias", "predictions.bias", "same"),
)


def fields(raw: Mapping[str, Any]) -> dict[str, Any]:
    return {"embedding_size": raw["embedding_size"], "num_hidden_groups": raw["num_hidden_groups"]}


FAMILY = bert.FAMILY._replace(
    classes="Albert",
    encoder=ENCODER,
    pooler=POOLER,
    heads={"mlm": MLM, "classifier": bert.CLASSIFIER, "tagger": bert.TAGGER, "qa": bert.QA},
    prefix="albert.",
    decoder_bias="predictions.decoder.bias",
    dropped=("sop_classifier.",),  # sentence-order head
    defaults={
        "num_attention_heads": 64, "intermediate_size": 16384, "hidden_act": "gelu_new", "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "embedding_size": 128, "num_hidden_groups": 1,
    },
    fixed={
        "inner_group_num": 1, "gap_size": 0, "net_structure_type": 0, "num_memory_blocks": 0, "down_scale_factor": 1,
        "layers_to_keep": [],
    },
    carried=frozenset({"classifier_dropout_prob"}),
    own=frozenset({"embedding_size", "num_hidden_groups"}),
    fields=fields,
)  # fmt: skip
