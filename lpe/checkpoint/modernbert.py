"""ModernBERT (Warner et al. 2024, arXiv 2412.13663) as Hugging Face writes it: windows in most layers, two rotary bases."""

from collections.abc import Mapping
from typing import Any

from lpe.checkpoint import rope
from lpe.checkpoint.family import Family
from lpe.checkpoint.mapping import Row, fused

LAYER = "layers.{i}."
ENCODER: tuple[Row, ...] = (
    ("embeddings/word", "embeddings.tok_embeddings.weight", "same"),
    ("embeddings/norm/scale", "embeddings.norm.weight", "same"),
    ("embeddings/norm/bias", "embeddings.norm.bias", "same"),
    *fused(LAYER + "attn.Wqkv"),
    ("layers/attention/output/kernel", LAYER + "attn.Wo.weight", "merge"),
    ("layers/attention/output/bias", LAYER + "attn.Wo.bias", "same"),
    ("layers/attention_norm/scale", LAYER + "attn_norm.weight", "after_1st"),
    ("layers/attention_norm/bias", LAYER + "attn_norm.bias", "after_1st"),
    ("layers/intermediate/kernel", LAYER + "mlp.Wi.weight[0/2]", "transpose"),
    ("layers/intermediate/bias", LAYER + "mlp.Wi.bias[0/2]", "same"),
    ("layers/gate/kernel", LAYER + "mlp.Wi.weight[1/2]", "transpose"),
    ("layers/gate/bias", LAYER + "mlp.Wi.bias[1/2]", "same"),
    ("layers/output/kernel", LAYER + "mlp.Wo.weight", "transpose"),
    ("layers/output/bias", LAYER + "mlp.Wo.bias", "same"),
    ("layers/output_norm/scale", LAYER + "mlp_norm.weight", "same"),
    ("layers/output_norm/bias", LAYER + "mlp_norm.bias", "same"),
    ("final_norm/scale", "final_norm.weight", "same"),
    ("final_norm/bias", "final_norm.bias", "same"),
)
FULL, LOCAL = "full_attention", "sliding_attention"
THETA = {FULL: 160000.0, LOCAL: 10000.0}


def _transform(path: str) -> tuple[Row, ...]:
    return (
        (f"{path}/kernel", "head.dense.weight", "transpose"),
        (f"{path}/bias", "head.dense.bias", "same"),
        (f"{path}/norm/scale", "head.norm.weight", "same"),
        (f"{path}/norm/bias", "head.norm.bias", "same"),
    )


def _scores(path: str) -> tuple[Row, ...]:
    return (f"{path}/kernel", "classifier.weight", "transpose"), (f"{path}/bias", "classifier.bias", "same")


MLM: tuple[Row, ...] = (
    *((ours.replace("transform/norm", "norm"), theirs, op) for ours, theirs, op in _transform("mlm_head/transform")),
    ("mlm_head/decoder", "decoder.weight", "same"),
    ("mlm_head/bias", "decoder.bias", "same"),
)


def fields(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Raises ValueError where two dropout rates differ that lpe has as one."""
    rates = [raw.get(k, 0.0) for k in ("mlp_dropout", "embedding_dropout")]
    if rates[0] != rates[1]:
        raise ValueError(
            f"mlp_dropout={rates[0]!r} and embedding_dropout={rates[1]!r}: lpe has one rate for both; override one of them"
        )
    norm_bias, head_bias, act = raw.get("norm_bias", False), raw.get("classifier_bias", False), raw.get("classifier_activation")
    return {
        "hidden_dropout_prob": rates[0],
        "type_vocab_size": 0,
        "pre_norm": True,
        "norm_bias": norm_bias,
        "first_attention_norm": False,
        "gated_mlp": True,
        "attention_bias": raw.get("attention_bias", False),
        "mlp_bias": raw.get("mlp_bias", False),
        "head_act": act or "gelu",
        "head_bias": head_bias,
        "decoder_bias": raw.get("decoder_bias", True),
        "pooler_act": act or "gelu",
        "pooler_bias": head_bias,
        "pooler_norm": True,
        "classifier_pooling": raw.get("classifier_pooling") or "cls",
        "token_transform": True,
    }


def layer_types(raw: Mapping[str, Any], source: str) -> list[str]:
    """What each layer sees. Raises ValueError for a list of another length, or with another word."""
    count, every = raw["num_hidden_layers"], raw.get("global_attn_every_n_layers") or 3
    types = raw.get("layer_types") or [LOCAL if i % every else FULL for i in range(count)]
    if not isinstance(types, list | tuple) or len(types) != count or any(t not in (FULL, LOCAL) for t in types):
        raise ValueError(f"{source}: layer_types={types!r}, allowed is a list of {count} of {FULL!r} and {LOCAL!r}")
    return list(types)


def attention(raw: Mapping[str, Any], heads: tuple[str, ...], source: str) -> dict[str, Any]:
    """Windows of local_attention tokens, and no window (None) in the global layers."""
    width = raw.get("local_attention", 128)
    if type(width) is not int or width < 2 or width % 2:
        raise ValueError(f"{source}: local_attention={width!r}, allowed are even whole numbers above 0")
    windows = tuple(None if t == FULL else width for t in layer_types(raw, source))
    return {"name": "window", "attention_window": windows if len(set(windows)) > 1 else windows[0]}


def attention_fields(spec: Mapping[str, Any], layers: int, heads: tuple[str, ...]) -> dict[str, Any] | None:
    if spec["name"] == "full" and len(spec) == 1:
        return {"layer_types": [FULL] * layers}
    if spec["name"] != "window" or spec.keys() - {"name", "attention_window"}:
        return None
    window = spec.get("attention_window", 512)
    each = window if isinstance(window, tuple) else (window,)
    widths = {w for w in each if w is not None}
    if len(widths) > 1 or any(w % 2 for w in widths):
        return None
    types = [FULL if w is None else LOCAL for w in each] * (layers // len(each))
    return {"layer_types": types} | ({"local_attention": widths.pop()} if widths else {})


def position(raw: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Rotary positions with a base for each kind of layer; the first is that of the global ones."""
    types, given, length = layer_types(raw, source), raw.get("rope_parameters") or {}, raw["max_position_embeddings"]
    if not isinstance(given, Mapping) or given.keys() - THETA.keys():
        raise ValueError(
            f"{source}: rope_parameters={given!r}, allowed is a map with {FULL!r} and {LOCAL!r}, each a map or null"
        )
    old = {FULL: raw.get("global_rope_theta"), LOCAL: raw.get("local_rope_theta") or raw.get("global_rope_theta")}
    methods = [rope.read(given.get(kind) or {}, old[kind] or THETA[kind], length, source) for kind in (FULL, LOCAL)]
    for method in methods:
        method.pop("max_length", None)  # said once, below
    spec = {"name": "by_layer", "methods": methods, "layers": [int(t == LOCAL) for t in types]}
    return spec | ({"max_length": length} if methods[0]["name"] == "rope" else {})


def position_fields(spec: Mapping[str, Any], cfg) -> dict[str, Any] | None:
    if spec["name"] != "by_layer" or len(spec.get("methods", ())) != 2:
        return None
    longest = {"max_length": spec["max_length"]} if spec.get("max_length") else {}
    methods = [rope.unscaled({**dict(method), **longest}, cfg) for method in spec["methods"]]
    first, second = (rope.parameters(method, cfg) for method in methods)
    if first is None or second is None:
        return None
    longer = first["rope_type"] == "default" and methods[0].get("max_length")
    found = {"max_position_embeddings": longer} if longer else {}
    layers = spec.get("layers", (0, 1, 1))
    types = [(FULL, LOCAL)[layers[i % len(layers)]] for i in range(cfg.num_hidden_layers)]
    return found | {"rope_parameters": {FULL: first, LOCAL: second}, "layer_types": types}


FAMILY = Family(
    classes="ModernBert",
    encoder=ENCODER,
    heads={
        "mlm": MLM,
        "classifier": (*_transform("pooler"), *_scores("classifier")),
        "tagger": (*_transform("tagger/transform"), *_scores("tagger")),
        "qa": (*_transform("qa/transform"), *_scores("qa")),
    },
    prefix="model.",
    renamed={
        "norm_eps": "layer_norm_eps", "hidden_activation": "hidden_act", "attention_dropout": "attention_probs_dropout_prob",
    },
    absent=frozenset({"type_vocab_size", "hidden_dropout_prob"}),
    defaults={
        "intermediate_size": 1152, "attention_probs_dropout_prob": 0.0, "max_position_embeddings": 8192, "layer_norm_eps": 1e-5,
        "pad_token_id": 50283,
    },
    fixed={"causal_mask": False},
    carried=frozenset({
        "initializer_cutoff_factor", "deterministic_flash_attn", "sparse_prediction", "sparse_pred_ignore_index",
        "reference_compile", "repad_logits_with_grad",
    }),
    own=frozenset({
        "mlp_dropout", "embedding_dropout", "norm_bias", "classifier_bias", "classifier_activation", "attention_bias",
        "mlp_bias", "decoder_bias", "classifier_pooling", "layer_types", "global_attn_every_n_layers", "local_attention",
        "rope_parameters", "global_rope_theta", "local_rope_theta",
    }),
    fields=fields,
    attention=attention,
    attention_fields=attention_fields,
    attention_words="full attention, or windows of one even width, None in some layers",
    position=position,
    position_fields=position_fields,
    position_words=f"by_layer with two methods, of the global and of the local layers: {rope.WORDS}",
)  # fmt: skip
