"""BERT (Devlin et al. 2018, arXiv 1810.04805) and RoBERTa (arXiv 1907.11692) encoders and heads as pure functions.

The parameters are one nested dict described by one table of Spec rows; layers are stacked on a leading axis and scanned.
"""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from lpe import linear
from lpe.models import layers
from lpe.models.layers import Mixer
from lpe.params import Spec, count, normal, stacked, under, zeros
from lpe.positions.base import PositionMethod
from lpe.tokens import Tokens


@dataclasses.dataclass(frozen=True)
class BertConfig:
    """What belongs to the weights; names and defaults are Hugging Face's.

    max_position_embeddings counts all rows of the trained table, reserved_rows of them (RoBERTa: 2) are no positions.
    """

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    head_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    reserved_rows: int = 0
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    pad_token_id: int = 0
    tie_word_embeddings: bool = True
    num_labels: int = 2

    def __post_init__(self):
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(f"hidden_size={self.hidden_size} is no multiple of num_attention_heads={self.num_attention_heads}")
        for field in ("hidden_act", "head_act"):
            layers.activation(getattr(self, field))

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_attention_heads

    @property
    def attention_scale(self) -> float:
        return self.head_dim**-0.5


REMAT: dict[str, Callable | None] = {
    "none": None,
    "full": jax.checkpoint_policies.nothing_saveable,
    "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
}


UNROLL = 4  # layers per step of the scan: 15 % faster than 1 on a CPU for narrow layers, and little to compile
NARROW = 2**20  # parameters of a layer; the weights of a wider one are copied out of the stack, better one at a time


def specs(cfg: BertConfig, position: PositionMethod, mixer: Mixer) -> dict[str, Spec]:
    """The rows of the encoder without heads."""
    d, f, std = cfg.hidden_size, cfg.intermediate_size, cfg.initializer_range
    layer = {
        **under("attention", mixer.specs),
        **under("attention_norm", layers.norm_specs(d)),
        **under("intermediate", linear.dense_specs(d, f, ("embed", "mlp"), std)),
        **under("output", linear.dense_specs(f, d, ("mlp", "embed"), std)),
        **under("output_norm", layers.norm_specs(d)),
    }
    return {
        "embeddings/word": Spec((cfg.vocab_size, d), ("vocab", "embed"), normal(std)),
        "embeddings/token_type": Spec((cfg.type_vocab_size, d), (None, "embed"), normal(std)),
        **under("embeddings/norm", layers.norm_specs(d)),
        **under("position", position.specs),
        **under("layers", stacked(cfg.num_hidden_layers, layer)),
    }


def encode(
    params: dict,
    cfg: BertConfig,
    position: PositionMethod,
    mixer: Mixer,
    batch: dict[str, Array],
    tok: Tokens,
    *,
    dtype=jnp.float32,
    remat: str = "none",
    chunk_size: int = 0,
    frozen_layers: int = 0,
    key: Array | None = None,
) -> Array:
    """The last hidden state.

    Args:
      params: the nested dict that `specs` describes.
      batch: input_ids i32[B, T], optional token_type_ids i32[B, T]. An id outside the table gives NaN.
      tok: the batch's Tokens.
      dtype: compute dtype; statistics, softmax and logits are float32 in any case.
      remat: what the backward pass recomputes: none, full, dots.
      chunk_size: tokens at a time of the feed-forward part, to save memory; 0 for all at once.
      frozen_layers: the backward pass ends above so many of the lowest layers; nothing below has a gradient.
      key: dropout key; None for evaluation.

    Returns:
      [B, T, D] in `dtype`.
    """
    emb = params["embeddings"]
    input_ids = batch["input_ids"]
    type_ids = batch.get("token_type_ids", jnp.zeros_like(input_ids))
    x_BTD = _lookup(emb["word"], input_ids).astype(dtype) + _lookup(emb["token_type"], type_ids).astype(dtype)
    x_BTD = position.embed(params.get("position", {}), x_BTD, tok)
    x_BTD = layers.layer_norm(emb["norm"], x_BTD, cfg.layer_norm_eps)
    x_BTD = linear.dropout(x_BTD, cfg.hidden_dropout_prob, _fold(key, cfg.num_hidden_layers))

    per_layer = {n for n, s in position.specs.items() if s.axes[0] == "layers"}
    shared = {n: p for n, p in params.get("position", {}).items() if n not in per_layer}
    own = {n: p for n, p in params.get("position", {}).items() if n in per_layer}

    def step(x_BTD: Array, scanned) -> tuple[Array, None]:
        layer_params, layer_position, i = scanned
        own_position = {**shared, **layer_position}
        return _layer(layer_params, cfg, mixer, own_position, x_BTD, tok, i, _fold(key, i), chunk_size), None

    if REMAT[remat] is not None:
        step = jax.checkpoint(step, policy=REMAT[remat], prevent_cse=False)
    xs = (params["layers"], own, jnp.arange(cfg.num_hidden_layers))
    if frozen_layers:
        lower, xs = (
            jax.tree.map(lambda x, part=part: x[part], xs) for part in (slice(frozen_layers), slice(frozen_layers, None))
        )
        x_BTD = jax.lax.stop_gradient(_scan(step, x_BTD, lower))
    return _scan(step, x_BTD, xs)


def _scan(step: Callable, x_BTD: Array, xs) -> Array:
    layers = len(xs[-1])
    narrow = count(xs[0]) < NARROW * layers
    return jax.lax.scan(step, x_BTD, xs, unroll=min(UNROLL, layers) if narrow else 1)[0]


def _layer(params, cfg, mixer, position_params, x_BTD, tok, i, key, chunk_size) -> Array:
    y_BTD = mixer.apply(params["attention"], position_params, x_BTD, tok, layer=i, key=_fold(key, 0))
    y_BTD = linear.dropout(y_BTD, cfg.hidden_dropout_prob, _fold(key, 1))
    x_BTD = layers.layer_norm(params["attention_norm"], x_BTD + y_BTD, cfg.layer_norm_eps)

    def feed_forward(x: Array) -> Array:
        return linear.dense(params["output"], layers.activation(cfg.hidden_act)(linear.dense(params["intermediate"], x)))

    y_BTD = linear.dropout(layers.in_chunks(feed_forward, (x_BTD,), chunk_size), cfg.hidden_dropout_prob, _fold(key, 2))
    return layers.layer_norm(params["output_norm"], x_BTD + y_BTD, cfg.layer_norm_eps)


def _lookup(table: Array, ids: Array) -> Array:
    return table.at[ids].get(mode="fill", fill_value=jnp.nan, wrap_negative_indices=False)


def _fold(key: Array | None, i) -> Array | None:
    return None if key is None else jax.random.fold_in(key, i)


def mlm_specs(cfg: BertConfig) -> dict[str, Spec]:
    """Rows of the masked-language-model head; the decoder is a parameter of its own only when it is not tied."""
    d, std = cfg.hidden_size, cfg.initializer_range
    rows = {
        **under("transform", linear.dense_specs(d, d, ("embed", None), std)),
        **under("norm", layers.norm_specs(d)),
        "bias": Spec((cfg.vocab_size,), ("vocab",), zeros),
    }
    if not cfg.tie_word_embeddings:
        rows["decoder"] = Spec((cfg.vocab_size, d), ("vocab", "embed"), normal(std))
    return under("mlm_head", rows)


def mlm_logits(params: dict, cfg: BertConfig, x: Array) -> Array:
    """Scores of the vocabulary, f32[..., V], from hidden states [..., D]."""
    head = params["mlm_head"]
    x = layers.layer_norm(head["norm"], layers.activation(cfg.head_act)(linear.dense(head["transform"], x)), cfg.layer_norm_eps)
    table = params["embeddings"]["word"] if cfg.tie_word_embeddings else head["decoder"]
    return jnp.einsum("...d,vd->...v", x, table.astype(x.dtype), preferred_element_type=jnp.float32) + head["bias"]


def pooler_specs(cfg: BertConfig) -> dict[str, Spec]:
    return under("pooler", linear.dense_specs(cfg.hidden_size, cfg.hidden_size, ("embed", None), cfg.initializer_range))


def pool(params: dict, x_BTD: Array, tok: Tokens) -> Array:
    """tanh of a linear map of the first real token, wherever the padding is: [B, D]."""
    first = jnp.argmax(tok.segment > 0, axis=1)
    return jnp.tanh(linear.dense(params["pooler"], jnp.take_along_axis(x_BTD, first[:, None, None], axis=1)[:, 0]))


def classifier_specs(cfg: BertConfig) -> dict[str, Spec]:
    return under("classifier", linear.dense_specs(cfg.hidden_size, cfg.num_labels, ("embed", None), cfg.initializer_range))


def classify(params: dict, x_BTD: Array, tok: Tokens) -> Array:
    """Class scores f32[B, C] from the pooled first token."""
    return linear.dense(params["classifier"], pool(params, x_BTD, tok)).astype(jnp.float32)


def tagger_specs(cfg: BertConfig) -> dict[str, Spec]:
    return under("tagger", linear.dense_specs(cfg.hidden_size, cfg.num_labels, ("embed", None), cfg.initializer_range))


def tag(params: dict, x_BTD: Array) -> Array:
    """Tag scores f32[B, T, C] of every token."""
    return linear.dense(params["tagger"], x_BTD).astype(jnp.float32)


def qa_specs(cfg: BertConfig) -> dict[str, Spec]:
    return under("qa", linear.dense_specs(cfg.hidden_size, 2, ("embed", None), cfg.initializer_range))


def span(params: dict, x_BTD: Array) -> Array:
    """Scores of every token as the start and as the end of the answer, f32[B, T, 2]."""
    return linear.dense(params["qa"], x_BTD).astype(jnp.float32)
