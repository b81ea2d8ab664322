"""RoBERTa (and XLM-R) as Hugging Face writes it: BERT's encoder, reserved position rows, heads of its own names."""

from lpe.checkpoint import bert
from lpe.checkpoint.mapping import Row

MLM: tuple[Row, ...] = (
    ("mlm_head/transform/kernel", "lm_head.dense.weight", "transpose"),
    ("mlm_head/transform/bias", "lm_head.dense.bias", "same"),
    ("mlm_head/norm/scale", "lm_head.layer_norm.weight", "same"),
    ("mlm_head/norm/bias", "lm_head.layer_norm.bias", "same"),
    ("mlm_head/decoder", "lm_head.decoder.weight", "same"),
    ("mlm_head/bias", "lm_head.bias", "same"),
)

FAMILY = bert.FAMILY._replace(
    classes="Roberta",
    heads={"mlm": MLM, "classifier": bert.POOLING_CLASSIFIER, "tagger": bert.TAGGER, "qa": bert.QA},
    prefix="roberta.",
    decoder_bias="lm_head.decoder.bias",
    dropped=(),
    defaults={"pad_token_id": 1},
    fields=lambda raw: {"head_act": "gelu"},  # fixed in RobertaLMHead, whatever hidden_act says
    reserved_rows=None,
    becomes=("longformer",),
)
XLM = FAMILY._replace(classes="XLMRoberta")
