"""RoFormer (Su et al. 2021, arXiv 2104.09864) as Hugging Face writes it: BERT with rotary positions and no table.

Version 2, as published for torch, has `norm_type: rms_norm` and `use_bias: false` in config.json: no biases, norms that have no
parameters, and an MLM head that is the tied decoder alone.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from lpe import registry
from lpe.checkpoint import bert, electra
from lpe.models.bert import BertConfig

LENGTH = 1536  # transformers' default


def fields(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Raises ValueError for a norm_type that is neither layer_norm nor rms_norm."""
    kind, bias = raw.get("norm_type", "layer_norm"), raw.get("use_bias", True)
    if kind not in ("layer_norm", "rms_norm"):
        raise ValueError(f"norm_type={kind!r}, allowed are 'layer_norm' and 'rms_norm'")
    first = kind == "layer_norm"
    return {
        "pooler_act": raw.get("hidden_act", "gelu"),
        "rms_norm": not first,
        "norm_scale": first,
        "norm_bias": first,
        "attention_bias": bias,
        "mlp_bias": bias,
        "head_transform": first,
        "decoder_bias": first,
    } | electra.embedding_size(raw)


def unlike(cfg: BertConfig) -> str:
    return "norms without parameters (RoFormer v2)" if cfg.rms_norm else "" if cfg.attention_bias else "layers without biases"


def position(raw: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Pairs of neighbours turn; the positions offered are those of its table of sinusoids."""
    spec = {"name": "rope", "layout": "interleaved", "max_length": raw["max_position_embeddings"]}
    return spec | ({"rotary_value": True} if raw.get("rotary_value") else {})


def position_fields(spec: Mapping[str, Any], cfg) -> dict[str, Any] | None:
    given = registry.without_defaults("positions", spec)
    if spec["name"] != "rope" or given.get("layout") != "interleaved" or "max_length" not in given:
        return None
    if given.keys() - {"name", "layout", "max_length", "rotary_value"}:
        return None
    return {"rotary_value": spec.get("rotary_value", False), "max_position_embeddings": spec["max_length"]}


def sinusoids(cfg: BertConfig) -> np.ndarray:
    """The table that transformers keeps among the weights: sines, then cosines, f64[max_position_embeddings, head_dim]."""
    d = cfg.head_dim
    angle = np.arange(cfg.max_position_embeddings)[:, None] * 10000.0 ** -(np.arange(0, d, 2) / d)
    return np.concatenate([np.sin(angle), np.cos(angle)], axis=1)


FAMILY = bert.FAMILY._replace(
    classes="RoFormer",
    encoder=(*bert.EMBEDDINGS, *electra.PROJECTION, *bert.LAYERS),
    pooler=(),
    heads={"mlm": bert.MLM, "classifier": bert.POOLING_CLASSIFIER, "tagger": bert.TAGGER, "qa": bert.QA},
    prefix="roformer.",
    words=True,
    dropped=(),
    computed={"encoder.embed_positions.weight": sinusoids},
    defaults={"max_position_embeddings": LENGTH},
    carried=frozenset({"pooler_activation"}),
    own=frozenset({"embedding_size", "rotary_value", "norm_type", "use_bias"}),
    fields=fields,
    unlike=unlike,
    position=position,
    position_fields=position_fields,
    position_words='rope with layout="interleaved" and a max_length',
)
