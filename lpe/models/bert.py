"""The encoder of BERT (Devlin et al. 2018, arXiv 1810.04805) and its relatives as pure functions.

What families of weights do differently is a field of the config: norm, biases, gates, factorised embeddings, shared layers.
The parameters are one nested dict described by one table of Spec rows; layers are stacked on a leading axis and scanned.
"""

import dataclasses
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lpe import linear
from lpe.models import layers
from lpe.models.layers import Mixer
from lpe.params import Spec, count, normal, stacked, under
from lpe.positions import base
from lpe.positions.base import PositionMethod
from lpe.tokens import Tokens


@dataclasses.dataclass(frozen=True)
class BertConfig:
    """What belongs to the weights; names and defaults are Hugging Face's for BERT.

    max_position_embeddings counts all rows of the trained table, reserved_rows of them (RoBERTa: 2) are no positions; where
    there is no table it is the length in training.
    embedding_size: of the embeddings where a linear map to hidden_size follows them (ALBERT, ELECTRA). None: no such map.
    type_vocab_size: 0 where there are no token types.
    d_kv: size of a head where it is not hidden_size / num_attention_heads (T5).
    num_hidden_groups: layers are shared by so many groups of neighbours (ALBERT). 0: each layer has its own weights.
    pre_norm: norms stand before attention and feed-forward part, and one after the last layer (ModernBERT, T5).
    rms_norm: divided by the root of the mean square, no mean taken away (T5, RoFormer v2).
    norm_scale, norm_bias: whether norms have these parameters.
    embedding_norm, first_attention_norm: whether the embeddings, and the first layer before attention, have a norm.
    gated_mlp: the activation is multiplied by a second linear map (GLU, Shazeer 2020, arXiv 2002.05202).
    attention_bias, mlp_bias: whether linear maps of a layer have biases.
    scale_attention: whether scores are divided by √head_dim (all but T5).
    head_transform, head_act, head_bias, decoder_bias: of the MLM head; without the first it is the decoder alone.
    pooler_act, pooler_bias, pooler_norm: of the map before the classifier; its input is what classifier_pooling says, cls or
    mean. token_transform: taggers and answers have such a map too (ModernBERT).
    """

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
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
    embedding_size: int | None = None
    d_kv: int | None = None
    num_hidden_groups: int = 0
    pre_norm: bool = False
    rms_norm: bool = False
    norm_scale: bool = True
    norm_bias: bool = True
    embedding_norm: bool = True
    first_attention_norm: bool = True
    gated_mlp: bool = False
    attention_bias: bool = True
    mlp_bias: bool = True
    scale_attention: bool = True
    head_transform: bool = True
    head_act: str = "gelu"
    head_bias: bool = True
    decoder_bias: bool = True
    pooler_act: str = "tanh"
    pooler_bias: bool = True
    pooler_norm: bool = False
    classifier_pooling: str = "cls"
    token_transform: bool = False

    def __post_init__(self):
        if self.d_kv is None and self.hidden_size % self.num_attention_heads:
            raise ValueError(f"hidden_size={self.hidden_size} is no multiple of num_attention_heads={self.num_attention_heads}")
        if self.num_hidden_groups and self.num_hidden_layers % self.num_hidden_groups:
            raise ValueError(
                f"num_hidden_groups={self.num_hidden_groups} is no divisor of num_hidden_layers={self.num_hidden_layers}"
            )
        if self.classifier_pooling not in ("cls", "mean"):
            raise ValueError(f"classifier_pooling={self.classifier_pooling!r}, allowed are 'cls' and 'mean'")
        for field in ("hidden_act", "head_act", "pooler_act"):
            layers.activation(getattr(self, field))

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_attention_heads if self.d_kv is None else self.d_kv

    @property
    def attention_scale(self) -> float:
        return self.head_dim**-0.5 if self.scale_attention else 1.0

    @property
    def embedding_width(self) -> int:
        """Of the rows of embedding and position tables."""
        return self.hidden_size if self.embedding_size is None else self.embedding_size

    @property
    def stored_layers(self) -> int:
        """How many layers have weights of their own."""
        return self.num_hidden_groups or self.num_hidden_layers


REMAT: dict[str, Callable | None] = {
    "none": None,
    "full": jax.checkpoint_policies.nothing_saveable,
    "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
}


UNROLL = 4  # layers per step of the scan: 15 % faster than 1 on a CPU for narrow layers, and little to compile
NARROW = 2**20  # parameters of a layer; the weights of a wider one are copied out of the stack, better one at a time


def specs(cfg: BertConfig, position: PositionMethod, mixer: Mixer) -> dict[str, Spec]:
    """The rows of the encoder without heads."""
    d, e, f, std = cfg.hidden_size, cfg.embedding_width, cfg.intermediate_size, cfg.initializer_range
    inner = linear.dense_specs(d, f, ("embed", "mlp"), std, bias=cfg.mlp_bias)
    layer = {
        **under("attention", mixer.specs),
        **under("attention_norm", layers.norm_specs(cfg, d)),
        **under("intermediate", inner),
        **(under("gate", inner) if cfg.gated_mlp else {}),
        **under("output", linear.dense_specs(f, d, ("mlp", "embed"), std, bias=cfg.mlp_bias)),
        **under("output_norm", layers.norm_specs(cfg, d)),
    }
    found = {"embeddings/word": Spec((cfg.vocab_size, e), ("vocab", "embed"), normal(std))}
    if cfg.type_vocab_size:
        found["embeddings/token_type"] = Spec((cfg.type_vocab_size, e), (None, "embed"), normal(std))
    if cfg.embedding_norm:
        found |= under("embeddings/norm", layers.norm_specs(cfg, e))
    if cfg.embedding_size is not None:
        found |= under("embeddings/projection", linear.dense_specs(e, d, (None, "embed"), std))
    found |= {**under("position", position.specs), **under("layers", stacked(cfg.stored_layers, layer))}
    return found | (under("final_norm", layers.norm_specs(cfg, d)) if cfg.pre_norm else {})


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
    x_BTD = begin(params, cfg, position, batch, tok, dtype=dtype, key=key)
    step, xs, group = _stack(params, cfg, position, mixer, tok, key, chunk_size)
    again = REMAT[remat] is not None
    if again:
        step = jax.checkpoint(step, policy=REMAT[remat], prevent_cse=False)
    # Side by side in one program, XLA finds what is recomputed to be what it has, and keeps it: no memory would be saved.
    unroll = UNROLL if count(params["layers"]) < NARROW * cfg.stored_layers and not again else 1
    if frozen_layers:
        frozen = int((group < frozen_layers).sum())
        lower, xs = (jax.tree.map(lambda x, part=part: x[part], xs) for part in (slice(frozen), slice(frozen, None)))
        x_BTD = jax.lax.stop_gradient(_scan(step, x_BTD, lower, unroll))
    return end(params, cfg, _scan(step, x_BTD, xs, unroll))


def begin(params: dict, cfg: BertConfig, position: PositionMethod, batch, tok: Tokens, *, dtype, key: Array | None) -> Array:
    """What the first layer reads, [B, T, D]."""
    x_BTD = _embed(params, cfg, position, batch, tok, dtype)
    x_BTD = linear.dropout(x_BTD, cfg.hidden_dropout_prob, _fold(key, cfg.num_hidden_layers))
    return x_BTD if cfg.embedding_size is None else linear.dense(params["embeddings"]["projection"], x_BTD)


def layer(params: dict, cfg: BertConfig, position: PositionMethod, mixer: Mixer, x_BTD, tok: Tokens, i, chunk_size) -> Array:
    """Layer `i` alone, without dropout; `i` may be traced, so that one program serves all layers."""
    step, xs, _ = _stack(params, cfg, position, mixer, tok, None, chunk_size)
    return step(x_BTD, jax.tree.map(lambda x: x[i], xs))[0]


def end(params: dict, cfg: BertConfig, x_BTD: Array) -> Array:
    """The last hidden state, of what the last layer gives."""
    return layers.norm(params.get("final_norm", {}), cfg, x_BTD) if cfg.pre_norm else x_BTD


def _stack(params: dict, cfg: BertConfig, position: PositionMethod, mixer: Mixer, tok: Tokens, key, chunk_size: int):
    """The step of a scan over the layers, what it is given for each of them, and the group of weights that each belongs to."""
    per_layer = {n for n, s in position.specs.items() if s.axes[0] == "layers"}
    shared = {n: p for n, p in params.get("position", {}).items() if n not in per_layer}
    own = {n: p for n, p in params.get("position", {}).items() if n in per_layer} | position.by_layer
    group = np.arange(cfg.num_hidden_layers) // (cfg.num_hidden_layers // cfg.stored_layers)

    def step(x_BTD: Array, scanned) -> tuple[Array, None]:
        layer_params, layer_position, i = scanned
        if cfg.num_hidden_groups:
            layer_params = jax.tree.map(lambda p: p[jnp.asarray(group)[i]], params["layers"])
        own_position = {**shared, **layer_position}
        return _layer(layer_params, cfg, mixer, own_position, x_BTD, tok, i, _fold(key, i), chunk_size), None

    xs = ({} if cfg.num_hidden_groups else params["layers"], own, jnp.arange(cfg.num_hidden_layers))
    return step, xs, group


def _scan(step: Callable, x_BTD: Array, xs, unroll: int) -> Array:
    return jax.lax.scan(step, x_BTD, xs, unroll=max(1, min(unroll, len(xs[-1]))))[0]


def _embed(params: dict, cfg: BertConfig, position: PositionMethod, batch: dict[str, Array], tok: Tokens, dtype) -> Array:
    emb, input_ids = params["embeddings"], batch["input_ids"]
    x_BTE = _lookup(emb["word"], input_ids).astype(dtype)
    if cfg.type_vocab_size:
        x_BTE += _lookup(emb["token_type"], batch.get("token_type_ids", jnp.zeros_like(input_ids))).astype(dtype)
    if "embed" in base.hooks(position):
        # A branch, always taken: XLA fuses nothing across its edge, so that what stands before and after is compiled alike
        # whatever the method. Else a method's rule is fused with the sums of the norm, whose order then changes: an extension
        # that repeats every vector bit for bit moved outputs by 4e-7. (optimization_barrier is no such edge on a CPU.)
        own = params.get("position", {})
        x_BTE = jax.lax.cond(tok.length[0, 0] >= 0, lambda x: position.embed(own, x, tok), lambda x: x, x_BTE)
    return layers.norm(emb.get("norm", {}), cfg, x_BTE) if cfg.embedding_norm else x_BTE


def _layer(params, cfg, mixer, position_params, x_BTD, tok, i, key, chunk_size) -> Array:
    def attended(x: Array) -> Array:
        y = mixer.apply(params["attention"], position_params, x, tok, layer=i, key=_fold(key, 0))
        return linear.dropout(y, cfg.hidden_dropout_prob, _fold(key, 1))

    def fed(x: Array) -> Array:
        y = layers.in_chunks(partial(_feed_forward, params, cfg), (x,), chunk_size)
        return linear.dropout(y, cfg.hidden_dropout_prob, _fold(key, 2))

    before, after = (partial(layers.norm, params.get(name, {}), cfg) for name in ("attention_norm", "output_norm"))
    if not cfg.pre_norm:
        x_BTD = before(x_BTD + attended(x_BTD))
        return after(x_BTD + fed(x_BTD))
    normed = before(x_BTD)
    x_BTD = x_BTD + attended(normed if cfg.first_attention_norm else jnp.where(i == 0, x_BTD, normed))
    return x_BTD + fed(after(x_BTD))


def _feed_forward(params: dict, cfg: BertConfig, x: Array) -> Array:
    y = layers.activation(cfg.hidden_act)(linear.dense(params["intermediate"], x))
    return linear.dense(params["output"], y * linear.dense(params["gate"], x) if cfg.gated_mlp else y)


def _lookup(table: Array, ids: Array) -> Array:
    return table.at[ids].get(mode="fill", fill_value=jnp.nan, wrap_negative_indices=False)


def _fold(key: Array | None, i) -> Array | None:
    return None if key is None else jax.random.fold_in(key, i)
