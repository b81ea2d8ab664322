"""T5 encoders (Raffel et al. 2019, arXiv 1910.10683) as Hugging Face writes them: RMS norms in front, biases by distance.

Of a whole T5 the encoder is read, and the decoder left out with a notice.
"""

from collections.abc import Mapping
from typing import Any

from lpe.checkpoint import bert
from lpe.checkpoint.family import Family
from lpe.checkpoint.mapping import Row
from lpe.models import layers

LAYER = "encoder.block.{i}.layer."
ENCODER: tuple[Row, ...] = (
    ("embeddings/word", "shared.weight", "same"),
    (
        "position/relative_attention_bias",
        "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
        "same",
    ),
    ("layers/attention/query/kernel", LAYER + "0.SelfAttention.q.weight", "split"),
    ("layers/attention/key/kernel", LAYER + "0.SelfAttention.k.weight", "split"),
    ("layers/attention/value/kernel", LAYER + "0.SelfAttention.v.weight", "split"),
    ("layers/attention/output/kernel", LAYER + "0.SelfAttention.o.weight", "merge"),
    ("layers/attention_norm/scale", LAYER + "0.layer_norm.weight", "same"),
    ("layers/intermediate/kernel", LAYER + "1.DenseReluDense.wi.weight", "transpose"),
    ("layers/output/kernel", LAYER + "1.DenseReluDense.wo.weight", "transpose"),
    ("layers/output_norm/scale", LAYER + "1.layer_norm.weight", "same"),
    ("final_norm/scale", "encoder.final_layer_norm.weight", "same"),
)
BUCKETS, DISTANCE, LENGTH = 32, 128, 512  # transformers' defaults
GATED: tuple[Row, ...] = (
    ("layers/intermediate/kernel", LAYER + "1.DenseReluDense.wi_0.weight", "transpose"),
    ("layers/gate/kernel", LAYER + "1.DenseReluDense.wi_1.weight", "transpose"),
)


def fields(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Raises ValueError for a feed_forward_proj that is neither ACTIVATION nor gated-ACTIVATION."""
    words = str(raw["feed_forward_proj"]).split("-")
    if len(words) > 2 or (len(words) == 2 and words[0] != "gated") or words[-1] not in layers.ACTIVATIONS:
        raise ValueError(
            f"feed_forward_proj={raw['feed_forward_proj']!r}, allowed are an activation, or 'gated-' before it; activations "
            f"are {', '.join(layers.ACTIVATIONS)}"
        )
    act = "gelu_new" if words == ["gated", "gelu"] else words[-1]
    return {
        "hidden_act": act,
        "attention_probs_dropout_prob": raw.get("hidden_dropout_prob", 0.1),
        "type_vocab_size": 0,
        "tie_word_embeddings": True,  # 1.1 unties the decoder's output, which is left out
        "pre_norm": True,
        "rms_norm": True,
        "norm_bias": False,
        "embedding_norm": False,
        "gated_mlp": len(words) == 2,
        "attention_bias": False,
        "mlp_bias": False,
        "scale_attention": False,
        "d_kv": raw["d_kv"],
    }


def position(raw: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Biases by bucket of distances, one table for all layers; texts of any length."""
    count, far = (raw.get(f"relative_attention_{k}", v) for k, v in (("num_buckets", BUCKETS), ("max_distance", DISTANCE)))
    return {"name": "t5", "num_buckets": count, "max_distance": far}


def position_fields(spec: Mapping[str, Any], cfg) -> dict[str, Any] | None:
    if spec["name"] != "t5":
        return None
    return {
        "relative_attention_num_buckets": spec.get("num_buckets", BUCKETS),
        "relative_attention_max_distance": spec.get("max_distance", DISTANCE),
        "is_encoder_decoder": False,
    }


FAMILY = Family(
    classes="T5",
    encoder=ENCODER,
    gated=GATED,
    heads={"tagger": bert.TAGGER},
    base_class="EncoderModel",
    prefix="transformer.",
    dropped=("decoder.", "lm_head."),
    refused={"classification_head.": "it reads the decoder", "qa_outputs.": "it reads the decoder"},
    copies={"encoder.embed_tokens.weight": "shared.weight"},
    renamed={
        "d_model": "hidden_size", "num_layers": "num_hidden_layers", "num_heads": "num_attention_heads",
        "d_ff": "intermediate_size", "dropout_rate": "hidden_dropout_prob", "layer_norm_epsilon": "layer_norm_eps",
    },
    old_names={"n_positions": "max_position_embeddings"},
    absent=frozenset({
        "type_vocab_size", "hidden_act", "attention_probs_dropout_prob", "initializer_range", "max_position_embeddings",
    }),
    defaults={
        "num_attention_heads": 8, "intermediate_size": 2048, "layer_norm_eps": 1e-6, "max_position_embeddings": LENGTH,
        "d_kv": 64, "feed_forward_proj": "relu",
    },
    carried=frozenset({
        "initializer_factor", "num_decoder_layers", "dense_act_fn", "is_gated_act", "scale_decoder_outputs",
        "max_position_embeddings",
    }),
    own=frozenset({
        "d_kv", "feed_forward_proj", "relative_attention_num_buckets", "relative_attention_max_distance",
        "is_encoder_decoder",
    }),
    fields=fields,
    position=position,
    position_fields=position_fields,
    position_words="t5",
)  # fmt: skip
MT5 = FAMILY._replace(
    classes="MT5",
    defaults={**FAMILY.defaults, "num_attention_heads": 6, "feed_forward_proj": "gated-gelu", "intermediate_size": 1024},
)
