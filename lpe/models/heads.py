"""Heads of an encoder: masked language model, classifier of texts and of tokens, answers (Devlin et al. 2018, §3.1 and §4)."""

import jax.numpy as jnp
from jax import Array

from lpe import linear
from lpe.models import layers
from lpe.models.bert import BertConfig
from lpe.params import Spec, normal, under, zeros
from lpe.tokens import Tokens


def mlm_specs(cfg: BertConfig) -> dict[str, Spec]:
    """Rows of the masked-language-model head; the decoder is a parameter of its own only when it is not tied."""
    d, e, std = cfg.hidden_size, cfg.embedding_width, cfg.initializer_range
    rows = {}
    if cfg.head_transform:
        rows |= under("transform", linear.dense_specs(d, e, ("embed", None), std, bias=cfg.head_bias))
        rows |= under("norm", layers.norm_specs(cfg, e))
    if cfg.decoder_bias:
        rows["bias"] = Spec((cfg.vocab_size,), ("vocab",), zeros)
    if not cfg.tie_word_embeddings:
        rows["decoder"] = Spec((cfg.vocab_size, e), ("vocab", "embed"), normal(std))
    return under("mlm_head", rows)


def mlm_logits(params: dict, cfg: BertConfig, x: Array) -> Array:
    """Scores of the vocabulary, f32[..., V], from hidden states [..., D]."""
    head = params.get("mlm_head", {})  # a tied decoder alone has no parameters
    if cfg.head_transform:
        x = layers.norm(head.get("norm", {}), cfg, layers.activation(cfg.head_act)(linear.dense(head["transform"], x)))
    table = params["embeddings"]["word"] if cfg.tie_word_embeddings else head["decoder"]
    scores = jnp.einsum("...d,vd->...v", x, table.astype(x.dtype), preferred_element_type=jnp.float32)
    return scores + head["bias"] if cfg.decoder_bias else scores


def transform_specs(cfg: BertConfig) -> dict[str, Spec]:
    """Rows of the map before a classifier."""
    d = cfg.hidden_size
    rows = linear.dense_specs(d, d, ("embed", None), cfg.initializer_range, bias=cfg.pooler_bias)
    return rows | (under("norm", layers.norm_specs(cfg, d)) if cfg.pooler_norm else {})


def transform(params: dict, cfg: BertConfig, x: Array) -> Array:
    """The map before a classifier, [..., D]: linear, activation, and a norm where there is one."""
    x = layers.activation(cfg.pooler_act)(linear.dense(params, x))
    return layers.norm(params.get("norm", {}), cfg, x) if cfg.pooler_norm else x


def pooler_specs(cfg: BertConfig) -> dict[str, Spec]:
    return under("pooler", transform_specs(cfg))


def classifier_specs(cfg: BertConfig) -> dict[str, Spec]:
    return under("classifier", linear.dense_specs(cfg.hidden_size, cfg.num_labels, ("embed", None), cfg.initializer_range))


def classify(params: dict, cfg: BertConfig, x_BTD: Array, tok: Tokens) -> Array:
    """Class scores f32[B, C] of rows that hold one document each, wherever the padding is."""
    real = tok.segment > 0
    chosen = real & (jnp.cumsum(real, axis=1) == 1) if cfg.classifier_pooling == "cls" else real
    share_BT = chosen / jnp.maximum(chosen.sum(axis=1, keepdims=True), 1)
    pooled_BD = jnp.einsum("bt,btd->bd", share_BT.astype(x_BTD.dtype), x_BTD)
    return linear.dense(params["classifier"], transform(params["pooler"], cfg, pooled_BD)).astype(jnp.float32)


def _token_specs(cfg: BertConfig, count: int) -> dict[str, Spec]:
    rows = linear.dense_specs(cfg.hidden_size, count, ("embed", None), cfg.initializer_range)
    return rows | (under("transform", transform_specs(cfg)) if cfg.token_transform else {})


def _scores(params: dict, cfg: BertConfig, x_BTD: Array) -> Array:
    x_BTD = transform(params["transform"], cfg, x_BTD) if cfg.token_transform else x_BTD
    return linear.dense(params, x_BTD).astype(jnp.float32)


def tagger_specs(cfg: BertConfig) -> dict[str, Spec]:
    return under("tagger", _token_specs(cfg, cfg.num_labels))


def tag(params: dict, cfg: BertConfig, x_BTD: Array) -> Array:
    """Tag scores f32[B, T, C] of every token."""
    return _scores(params["tagger"], cfg, x_BTD)


def qa_specs(cfg: BertConfig) -> dict[str, Spec]:
    return under("qa", _token_specs(cfg, 2))


def span(params: dict, cfg: BertConfig, x_BTD: Array) -> Array:
    """Scores of every token as the start and as the end of the answer, f32[B, T, 2]."""
    return _scores(params["qa"], cfg, x_BTD)
