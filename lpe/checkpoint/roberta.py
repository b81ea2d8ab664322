"""RoBERTa (and XLM-R) as Hugging Face writes it: BERT's encoder, two reserved position rows, heads of its own names."""

from lpe.checkpoint import bert
from lpe.checkpoint.mapping import Row

PREFIX = "roberta."
RESERVED_ROWS = None  # padding_idx + 1 rows, from pad_token_id
PAD = 1
HEAD_ACT = "gelu"  # fixed in RobertaLMHead, whatever hidden_act says
ENCODER = bert.ENCODER
POOLER = bert.POOLER
HEADS: tuple[Row, ...] = (
    ("mlm_head/transform/kernel", "lm_head.dense.weight", "transpose"),
    ("mlm_head/transform/bias", "lm_head.dense.bias", "same"),
    ("mlm_head/norm/scale", "lm_head.layer_norm.weight", "same"),
    ("mlm_head/norm/bias", "lm_head.layer_norm.bias", "same"),
    ("mlm_head/decoder", "lm_head.decoder.weight", "same"),
    ("mlm_head/bias", "lm_head.bias", "same"),
    ("pooler/kernel", "classifier.dense.weight", "transpose"),
    ("pooler/bias", "classifier.dense.bias", "same"),
    ("classifier/kernel", "classifier.out_proj.weight", "transpose"),
    ("classifier/bias", "classifier.out_proj.bias", "same"),
    ("tagger/kernel", "classifier.weight", "transpose"),
    ("tagger/bias", "classifier.bias", "same"),
    ("qa/kernel", "qa_outputs.weight", "transpose"),
    ("qa/bias", "qa_outputs.bias", "same"),
)
DECODER_BIAS = "lm_head.decoder.bias"
DROPPED: tuple[str, ...] = ()
CLASSES = bert.CLASSES
FIXED = bert.FIXED
ATTENTION = bert.ATTENTION
OWN = bert.OWN
attention = bert.attention
attention_fields = bert.attention_fields
