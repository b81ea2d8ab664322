"""DistilBERT (Sanh et al. 2019, arXiv 1910.01108) as Hugging Face writes it: BERT without token types, by other names."""

from collections.abc import Mapping
from typing import Any

from lpe.checkpoint import bert
from lpe.checkpoint.mapping import Row

LAYER = "transformer.layer.{i}."
ENCODER: tuple[Row, ...] = (
    *(row for row in bert.EMBEDDINGS if row[0] != "embeddings/token_type"),
    *bert.TABLE,
    ("layers/attention/query/kernel", LAYER + "attention.q_lin.weight", "split"),
    ("layers/attention/query/bias", LAYER + "attention.q_lin.bias", "split_bias"),
    ("layers/attention/key/kernel", LAYER + "attention.k_lin.weight", "split"),
    ("layers/attention/key/bias", LAYER + "attention.k_lin.bias", "split_bias"),
    ("layers/attention/value/kernel", LAYER + "attention.v_lin.weight", "split"),
    ("layers/attention/value/bias", LAYER + "attention.v_lin.bias", "split_bias"),
    ("layers/attention/output/kernel", LAYER + "attention.out_lin.weight", "merge"),
    ("layers/attention/output/bias", LAYER + "attention.out_lin.bias", "same"),
    ("layers/attention_norm/scale", LAYER + "sa_layer_norm.weight", "same"),
    ("layers/attention_norm/bias", LAYER + "sa_layer_norm.bias", "same"),
    ("layers/intermediate/kernel", LAYER + "ffn.lin1.weight", "transpose"),
    ("layers/intermediate/bias", LAYER + "ffn.lin1.bias", "same"),
    ("layers/output/kernel", LAYER + "ffn.lin2.weight", "transpose"),
    ("layers/output/bias", LAYER + "ffn.lin2.bias", "same"),
    ("layers/output_norm/scale", LAYER + "output_layer_norm.weight", "same"),
    ("layers/output_norm/bias", LAYER + "output_layer_norm.bias", "same"),
)
MLM: tuple[Row, ...] = (
    ("mlm_head/transform/kernel", "vocab_transform.weight", "transpose"),
    ("mlm_head/transform/bias", "vocab_transform.bias", "same"),
    ("mlm_head/norm/scale", "vocab_layer_norm.weight", "same"),
    ("mlm_head/norm/bias", "vocab_layer_norm.bias", "same"),
    ("mlm_head/decoder", "vocab_projector.weight", "same"),
    ("mlm_head/bias", "vocab_projector.bias", "same"),
)
CLASSIFIER: tuple[Row, ...] = (
    ("pooler/kernel", "pre_classifier.weight", "transpose"),
    ("pooler/bias", "pre_classifier.bias", "same"),
    *bert.CLASSIFIER,
)


def fields(raw: Mapping[str, Any]) -> dict[str, Any]:
    return {"type_vocab_size": 0, "pooler_act": "relu"}


FAMILY = bert.FAMILY._replace(
    classes="DistilBert",
    encoder=ENCODER,
    pooler=(),
    heads={"mlm": MLM, "classifier": CLASSIFIER, "tagger": bert.TAGGER, "qa": bert.QA},
    prefix="distilbert.",
    decoder_bias="",
    dropped=(),
    renamed={
        "dim": "hidden_size", "n_layers": "num_hidden_layers", "n_heads": "num_attention_heads",
        "hidden_dim": "intermediate_size", "activation": "hidden_act", "dropout": "hidden_dropout_prob",
        "attention_dropout": "attention_probs_dropout_prob",
    },
    absent=frozenset({"type_vocab_size", "layer_norm_eps"}),
    carried=frozenset({"qa_dropout", "seq_classif_dropout", "tie_weights_", "sinusoidal_pos_embds"}),
    fields=fields,
)  # fmt: skip
