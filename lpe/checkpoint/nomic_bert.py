"""NomicBERT (Nussbaum et al. 2024, arXiv 2402.01613) as Hugging Face writes it: BERT with rotary positions and gated layers."""

from collections.abc import Mapping
from typing import Any

from lpe.checkpoint import bert, rope
from lpe.checkpoint.mapping import Row

LAYER = "encoder.layers.{i}."
ENCODER: tuple[Row, ...] = (
    ("embeddings/word", "embeddings.word_embeddings.weight", "same"),
    ("embeddings/token_type", "embeddings.token_type_embeddings.weight", "same"),
    ("embeddings/norm/scale", "emb_ln.weight", "same"),
    ("embeddings/norm/bias", "emb_ln.bias", "same"),
    ("layers/attention/query/kernel", LAYER + "attn.Wqkv.weight[0/3]", "split"),
    ("layers/attention/key/kernel", LAYER + "attn.Wqkv.weight[1/3]", "split"),
    ("layers/attention/value/kernel", LAYER + "attn.Wqkv.weight[2/3]", "split"),
    ("layers/attention/output/kernel", LAYER + "attn.out_proj.weight", "merge"),
    ("layers/attention_norm/scale", LAYER + "norm1.weight", "same"),
    ("layers/attention_norm/bias", LAYER + "norm1.bias", "same"),
    ("layers/intermediate/kernel", LAYER + "mlp.fc12.weight", "transpose"),
    ("layers/gate/kernel", LAYER + "mlp.fc11.weight", "transpose"),
    ("layers/output/kernel", LAYER + "mlp.fc2.weight", "transpose"),
    ("layers/output_norm/scale", LAYER + "norm2.weight", "same"),
    ("layers/output_norm/bias", LAYER + "norm2.bias", "same"),
)
MLM: tuple[Row, ...] = tuple((ours, theirs.replace("LayerNorm", "layer_norm"), op) for ours, theirs, op in bert.MLM)
THETA = 1000.0


def fields(raw: Mapping[str, Any]) -> dict[str, Any]:
    return {"gated_mlp": True, "attention_bias": False, "mlp_bias": False, "d_kv": raw.get("head_dim")}


def position(raw: Mapping[str, Any], source: str) -> dict[str, Any]:
    """As rope_parameters says, up to max_position_embeddings."""
    return rope.read(raw.get("rope_parameters") or {}, THETA, raw["max_position_embeddings"], source)


def position_fields(spec: Mapping[str, Any], cfg) -> dict[str, Any] | None:
    return rope.fields(spec, cfg)


FAMILY = bert.FAMILY._replace(
    classes="NomicBert",
    encoder=ENCODER,
    heads={"mlm": MLM, "classifier": bert.CLASSIFIER, "tagger": bert.TAGGER},
    prefix="nomic_bert.",
    dropped=(),
    defaults={
        "vocab_size": 30528, "hidden_act": "silu", "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
        "max_position_embeddings": 2048,
    },
    own=frozenset({"rope_parameters", "head_dim"}),
    fields=fields,
    position=position,
    position_fields=position_fields,
    position_words=rope.WORDS,
)  # fmt: skip
