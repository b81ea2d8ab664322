"""BERT as Hugging Face writes it: names, config fields, heads."""

from lpe.checkpoint.family import Family
from lpe.checkpoint.mapping import Row

LAYER = "encoder.layer.{i}."
EMBEDDINGS: tuple[Row, ...] = (
    ("embeddings/word", "embeddings.word_embeddings.weight", "same"),
    ("embeddings/token_type", "embeddings.token_type_embeddings.weight", "same"),
    ("embeddings/norm/scale", "embeddings.LayerNorm.weight", "same"),
    ("embeddings/norm/bias", "embeddings.LayerNorm.bias", "same"),
)
TABLE: tuple[Row, ...] = (("position/table", "embeddings.position_embeddings.weight", "same"),)
LAYERS: tuple[Row, ...] = (
    ("layers/attention/query/kernel", LAYER + "attention.self.query.weight", "split"),
    ("layers/attention/query/bias", LAYER + "attention.self.query.bias", "split_bias"),
    ("layers/attention/key/kernel", LAYER + "attention.self.key.weight", "split"),
    ("layers/attention/key/bias", LAYER + "attention.self.key.bias", "split_bias"),
    ("layers/attention/value/kernel", LAYER + "attention.self.value.weight", "split"),
    ("layers/attention/value/bias", LAYER + "attention.self.value.bias", "split_bias"),
    ("layers/attention/output/kernel", LAYER + "attention.output.dense.weight", "merge"),
    ("layers/attention/output/bias", LAYER + "attention.output.dense.bias", "same"),
    ("layers/attention_norm/scale", LAYER + "attention.output.LayerNorm.weight", "same"),
    ("layers/attention_norm/bias", LAYER + "attention.output.LayerNorm.bias", "same"),
    ("layers/intermediate/kernel", LAYER + "intermediate.dense.weight", "transpose"),
    ("layers/intermediate/bias", LAYER + "intermediate.dense.bias", "same"),
    ("layers/output/kernel", LAYER + "output.dense.weight", "transpose"),
    ("layers/output/bias", LAYER + "output.dense.bias", "same"),
    ("layers/output_norm/scale", LAYER + "output.LayerNorm.weight", "same"),
    ("layers/output_norm/bias", LAYER + "output.LayerNorm.bias", "same"),
)
POOLER: tuple[Row, ...] = (
    ("pooler/kernel", "pooler.dense.weight", "transpose"),
    ("pooler/bias", "pooler.dense.bias", "same"),
)
MLM: tuple[Row, ...] = (
    ("mlm_head/transform/kernel", "cls.predictions.transform.dense.weight", "transpose"),
    ("mlm_head/transform/bias", "cls.predictions.transform.dense.bias", "same"),
    ("mlm_head/norm/scale", "cls.predictions.transform.LayerNorm.weight", "same"),
    ("mlm_head/norm/bias", "cls.predictions.transform.LayerNorm.bias", "same"),
    ("mlm_head/decoder", "cls.predictions.decoder.weight", "same"),
    ("mlm_head/bias", "cls.predictions.bias", "same"),
)
CLASSIFIER: tuple[Row, ...] = (
    ("classifier/kernel", "classifier.weight", "transpose"),
    ("classifier/bias", "classifier.bias", "same"),
)
TAGGER: tuple[Row, ...] = (
    ("tagger/kernel", "classifier.weight", "transpose"),
    ("tagger/bias", "classifier.bias", "same"),
)
QA: tuple[Row, ...] = (
    ("qa/kernel", "qa_outputs.weight", "transpose"),
    ("qa/bias", "qa_outputs.bias", "same"),
)
# A classifier of texts with a pooler of its own, as RoBERTa's and what follows it.
POOLING_CLASSIFIER: tuple[Row, ...] = (
    ("pooler/kernel", "classifier.dense.weight", "transpose"),
    ("pooler/bias", "classifier.dense.bias", "same"),
    ("classifier/kernel", "classifier.out_proj.weight", "transpose"),
    ("classifier/bias", "classifier.out_proj.bias", "same"),
)

FAMILY = Family(
    classes="Bert",
    encoder=(*EMBEDDINGS, *TABLE, *LAYERS),
    pooler=POOLER,
    heads={"mlm": MLM, "classifier": CLASSIFIER, "tagger": TAGGER, "qa": QA},
    prefix="bert.",
    decoder_bias="cls.predictions.decoder.bias",
    dropped=("cls.seq_relationship.",),  # next-sentence head
    becomes=("longformer", "big_bird"),
)
