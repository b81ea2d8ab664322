"""NomicBERT (Nussbaum et al. 2024, arXiv 2402.01613) as Hugging Face writes it: BERT with rotary positions and gated layers.

Tensors have the names of the original release in both formats; config.json has those of the original (n_embd, …) or today's.
"""

from collections.abc import Mapping
from typing import Any

from lpe.checkpoint import bert, rope
from lpe.checkpoint.mapping import Row, fused
from lpe.models.bert import BertConfig

LAYER = "encoder.layers.{i}."
ENCODER: tuple[Row, ...] = (
    ("embeddings/word", "embeddings.word_embeddings.weight", "same"),
    ("embeddings/token_type", "embeddings.token_type_embeddings.weight", "same"),
    ("embeddings/norm/scale", "emb_ln.weight", "same"),
    ("embeddings/norm/bias", "emb_ln.bias", "same"),
    *fused(LAYER + "attn.Wqkv"),
    ("layers/attention/output/kernel", LAYER + "attn.out_proj.weight", "merge"),
    ("layers/attention/output/bias", LAYER + "attn.out_proj.bias", "same"),
    ("layers/attention_norm/scale", LAYER + "norm1.weight", "same"),
    ("layers/attention_norm/bias", LAYER + "norm1.bias", "same"),
    ("layers/intermediate/kernel", LAYER + "mlp.fc12.weight", "transpose"),
    ("layers/intermediate/bias", LAYER + "mlp.fc12.bias", "same"),
    ("layers/gate/kernel", LAYER + "mlp.fc11.weight", "transpose"),
    ("layers/gate/bias", LAYER + "mlp.fc11.bias", "same"),
    ("layers/output/kernel", LAYER + "mlp.fc2.weight", "transpose"),
    ("layers/output/bias", LAYER + "mlp.fc2.bias", "same"),
    ("layers/output_norm/scale", LAYER + "norm2.weight", "same"),
    ("layers/output_norm/bias", LAYER + "norm2.bias", "same"),
)
MLM: tuple[Row, ...] = (
    ("mlm_head/transform/kernel", "cls.predictions.transform.dense.weight", "transpose"),
    ("mlm_head/transform/bias", "cls.predictions.transform.dense.bias", "or_zero"),  # the original format may have neither
    ("mlm_head/norm/scale", "cls.predictions.transform.layer_norm.weight", "same"),
    ("mlm_head/norm/bias", "cls.predictions.transform.layer_norm.bias", "same"),
    ("mlm_head/decoder", "cls.predictions.decoder.weight", "same"),
    ("mlm_head/bias", "cls.predictions.bias", "or_zero"),
)
# Names within transformers' class, which its own files do not have.
ALIASES = (
    (r"^embeddings\.LayerNorm\.", "emb_ln."),
    (r"^layers\.", "encoder.layers."),
    (r"self_attn\.q_proj\.(\w+)$", r"attn.Wqkv.\1[0/3]"),
    (r"self_attn\.k_proj\.(\w+)$", r"attn.Wqkv.\1[1/3]"),
    (r"self_attn\.v_proj\.(\w+)$", r"attn.Wqkv.\1[2/3]"),
    (r"self_attn\.o_proj\.", "attn.out_proj."),
    (r"mlp\.up_proj\.", "mlp.fc11."),
    (r"mlp\.gate_proj\.", "mlp.fc12."),
    (r"mlp\.down_proj\.", "mlp.fc2."),
    (r"post_attention_layernorm\.", "norm1."),
    (r"post_mlp_layernorm\.", "norm2."),
)
THETA, LENGTH = 1000.0, 2048
ACTIVATIONS = {"swiglu": "silu", "geglu": "gelu", "glu": "sigmoid"}


def fields(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Raises ValueError for an original config.json whose model is not gated, or has biases in one half of its layers."""
    found = {"gated_mlp": True, "d_kv": raw.get("head_dim"), "max_position_embeddings": length(raw)}
    original = "activation_function" in raw
    if original and raw["activation_function"] not in list(ACTIVATIONS):
        raise ValueError(f"activation_function={raw['activation_function']!r}, allowed are {', '.join(ACTIVATIONS)}")
    if original:
        found["hidden_act"] = found["head_act"] = ACTIVATIONS[raw["activation_function"]]
        wide = raw.get("n_inner") or int(8 * raw["hidden_size"] / 3)
        found["intermediate_size"] = -(-wide // 256) * 256
    # In the original format a key that is not there means biases.
    first, second = (raw.get(k, original) for k in ("mlp_fc1_bias", "mlp_fc2_bias"))
    if first != second:
        raise ValueError(f"mlp_fc1_bias={first!r} and mlp_fc2_bias={second!r}: lpe reads what has both or none")
    return found | {"attention_bias": raw.get("qkv_proj_bias", original), "mlp_bias": first}


def unlike(cfg: BertConfig) -> str:
    return "biases in its layers" if cfg.attention_bias or cfg.mlp_bias else ""


def length(raw: Mapping[str, Any]) -> int:
    """Of the texts in training."""
    return raw.get("max_position_embeddings") or raw.get("max_trained_positions") or raw.get("n_positions") or LENGTH


def position(raw: Mapping[str, Any], source: str) -> dict[str, Any]:
    """As rope_parameters says, up to max_position_embeddings; or by the keys of the original format."""
    given, factor = raw.get("rope_parameters") or {}, raw.get("rotary_scaling_factor")
    if not given and "rotary_emb_base" in raw:
        given = {"rope_theta": raw["rotary_emb_base"]}
        if factor:
            given = given | {"rope_type": "dynamic", "factor": factor, "original_max_position_embeddings": length(raw)}
    return rope.read(given, THETA, length(raw), source)


FAMILY = bert.FAMILY._replace(
    classes="NomicBert",
    encoder=ENCODER,
    heads={"mlm": MLM, "classifier": bert.CLASSIFIER, "tagger": bert.TAGGER},
    prefix="nomic_bert.",
    old_prefixes=("bert.",),
    aliases=ALIASES,
    dropped=(),
    old_names={
        "n_embd": "hidden_size", "n_head": "num_attention_heads", "n_layer": "num_hidden_layers",
        "layer_norm_epsilon": "layer_norm_eps", "resid_pdrop": "hidden_dropout_prob",
        "attn_pdrop": "attention_probs_dropout_prob",
    },
    defaults={"hidden_act": "silu", "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    fixed={
        "prenorm": False, "causal": False, "parallel_block": False, "use_rms_norm": False, "rotary_emb_fraction": 1.0,
        "rotary_emb_interleaved": False, "rotary_emb_scale_base": None, "scale_attn_by_inverse_layer_idx": False,
        "scale_attn_weights": True,
    },
    carried=frozenset({
        "embd_pdrop", "dense_seq_output", "fused_bias_fc", "fused_dropout_add_ln", "pad_vocab_size_multiple",
        "parallel_block_tied_norm", "reorder_and_upcast_attn", "summary_activation", "summary_first_dropout",
        "summary_proj_to_labels", "summary_type", "summary_use_proj", "use_flash_attn", "use_xentropy", "auto_map",
    }),
    own=frozenset({
        "rope_parameters", "head_dim", "activation_function", "n_inner", "n_positions", "max_trained_positions",
        "qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias", "rotary_emb_base", "rotary_scaling_factor",
    }),
    fields=fields,
    unlike=unlike,
    position=position,
    position_fields=rope.fields,
    position_words=rope.WORDS,
)  # fmt: skip
