"""BERT as Hugging Face writes it: names, config fields, heads. Read forwards it imports, read backwards it exports."""

from collections.abc import Mapping
from typing import Any

from lpe.checkpoint.mapping import Row

PREFIX = "bert."
RESERVED_ROWS = 0
PAD = 0
HEAD_ACT = None  # the MLM head uses hidden_act

ENCODER: tuple[Row, ...] = (
    ("embeddings/word", "embeddings.word_embeddings.weight", "same"),
    ("embeddings/token_type", "embeddings.token_type_embeddings.weight", "same"),
    ("embeddings/norm/scale", "embeddings.LayerNorm.weight", "same"),
    ("embeddings/norm/bias", "embeddings.LayerNorm.bias", "same"),
    ("position/table", "embeddings.position_embeddings.weight", "same"),
    ("layers/attention/query/kernel", "encoder.layer.{i}.attention.self.query.weight", "split"),
    ("layers/attention/query/bias", "encoder.layer.{i}.attention.self.query.bias", "split_bias"),
    ("layers/attention/key/kernel", "encoder.layer.{i}.attention.self.key.weight", "split"),
    ("layers/attention/key/bias", "encoder.layer.{i}.attention.self.key.bias", "split_bias"),
    ("layers/attention/value/kernel", "encoder.layer.{i}.attention.self.value.weight", "split"),
    ("layers/attention/value/bias", "encoder.layer.{i}.attention.self.value.bias", "split_bias"),
    ("layers/attention/output/kernel", "encoder.layer.{i}.attention.output.dense.weight", "merge"),
    ("layers/attention/output/bias", "encoder.layer.{i}.attention.output.dense.bias", "same"),
    ("layers/attention_norm/scale", "encoder.layer.{i}.attention.output.LayerNorm.weight", "same"),
    ("layers/attention_norm/bias", "encoder.layer.{i}.attention.output.LayerNorm.bias", "same"),
    ("layers/intermediate/kernel", "encoder.layer.{i}.intermediate.dense.weight", "transpose"),
    ("layers/intermediate/bias", "encoder.layer.{i}.intermediate.dense.bias", "same"),
    ("layers/output/kernel", "encoder.layer.{i}.output.dense.weight", "transpose"),
    ("layers/output/bias", "encoder.layer.{i}.output.dense.bias", "same"),
    ("layers/output_norm/scale", "encoder.layer.{i}.output.LayerNorm.weight", "same"),
    ("layers/output_norm/bias", "encoder.layer.{i}.output.LayerNorm.bias", "same"),
)
POOLER: tuple[Row, ...] = (
    ("pooler/kernel", "pooler.dense.weight", "transpose"),
    ("pooler/bias", "pooler.dense.bias", "same"),
)
HEADS: tuple[Row, ...] = (
    ("mlm_head/transform/kernel", "cls.predictions.transform.dense.weight", "transpose"),
    ("mlm_head/transform/bias", "cls.predictions.transform.dense.bias", "same"),
    ("mlm_head/norm/scale", "cls.predictions.transform.LayerNorm.weight", "same"),
    ("mlm_head/norm/bias", "cls.predictions.transform.LayerNorm.bias", "same"),
    ("mlm_head/decoder", "cls.predictions.decoder.weight", "same"),
    ("mlm_head/bias", "cls.predictions.bias", "same"),
    ("classifier/kernel", "classifier.weight", "transpose"),
    ("classifier/bias", "classifier.bias", "same"),
    ("tagger/kernel", "classifier.weight", "transpose"),
    ("tagger/bias", "classifier.bias", "same"),
    ("qa/kernel", "qa_outputs.weight", "transpose"),
    ("qa/bias", "qa_outputs.bias", "same"),
)
DECODER_BIAS = "cls.predictions.decoder.bias"  # a second name of mlm_head/bias, and the one that counts where both are there
DROPPED = ("cls.seq_relationship.weight", "cls.seq_relationship.bias")  # next-sentence head: lpe has no use for it
CLASSES = {  # behind Bert, Roberta, …
    "mlm": "ForMaskedLM",
    "classifier": "ForSequenceClassification",
    "tagger": "ForTokenClassification",
    "qa": "ForQuestionAnswering",
    "": "Model",
}
FIXED: dict[str, Any] = {}  # fields of this family alone that change the computation, with the only value that lpe computes
ATTENTION = "full attention"  # what stock classes have, in words
OWN: frozenset[str] = frozenset()  # fields of this family alone that `attention` reads


def attention(raw: Mapping[str, Any], heads: tuple[str, ...], source: str) -> dict[str, Any]:
    """The attention pattern that the weights were trained with, as in Recipe.attention."""
    return {"name": "full"}


def attention_fields(spec: Mapping[str, Any], layers: int, heads: tuple[str, ...]) -> dict[str, Any] | None:
    """Fields of config.json that say an attention pattern, less its options at their defaults; None: no such model is stock."""
    return {} if spec == {"name": "full"} else None
