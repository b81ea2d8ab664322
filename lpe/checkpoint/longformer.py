"""Longformer as Hugging Face writes it: RoBERTa with windows, and projections of their own for global queries."""

from collections.abc import Mapping
from typing import Any

from lpe.checkpoint import roberta
from lpe.checkpoint.mapping import Row

SELF = "encoder.layer.{i}.attention.self."
GLOBAL: tuple[Row, ...] = (
    ("layers/attention/pattern/query_global/kernel", SELF + "query_global.weight", "split"),
    ("layers/attention/pattern/query_global/bias", SELF + "query_global.bias", "split_bias"),
    ("layers/attention/pattern/key_global/kernel", SELF + "key_global.weight", "split"),
    ("layers/attention/pattern/key_global/bias", SELF + "key_global.bias", "split_bias"),
    ("layers/attention/pattern/value_global/kernel", SELF + "value_global.weight", "split"),
    ("layers/attention/pattern/value_global/bias", SELF + "value_global.bias", "split_bias"),
)
WINDOW, SEPARATOR = 512, 2  # transformers' defaults


def attention(raw: Mapping[str, Any], heads: tuple[str, ...], source: str) -> dict[str, Any]:
    """Its windows, and the global tokens that transformers' classes choose where a batch names none.

    Raises:
      ValueError: attention_window is neither an even number above 0 nor one for each layer.
    """
    window, layers = raw.get("attention_window", WINDOW), raw["num_hidden_layers"]
    several = isinstance(window, (list, tuple))
    each = window if several else [window]
    if (several and len(window) != layers) or not all(type(w) is int and w > 0 and w % 2 == 0 for w in each):
        raise ValueError(
            f"{source}: attention_window={window!r}, allowed are an even whole number above 0, or a list of {layers} such, one "
            "for each layer"
        )
    spec = {"name": "window", "attention_window": each[0] if len(set(each)) == 1 else tuple(each)}
    if "qa" in heads:
        separator = raw.get("sep_token_id")
        spec["sep_token_id"] = SEPARATOR if separator is None else separator
    return spec | {"global_tokens": _chosen(heads)}


def _chosen(heads: tuple[str, ...]) -> str:
    """The global tokens that a class of transformers chooses where the batch names none: of most classes, none."""
    return "question" if "qa" in heads else "cls" if "classifier" in heads else "explicit"


def attention_fields(spec: Mapping[str, Any], layers: int, heads: tuple[str, ...]) -> dict[str, Any] | None:
    """As bert.attention_fields: even windows on both sides, no dilation.

    Where a class chooses global tokens by itself, these and no others; else all, for the caller marks them.
    """
    free = {"name", "attention_window", "global_tokens", "global_capacity", "sep_token_id"}
    window = spec.get("attention_window", WINDOW)
    each = window if isinstance(window, tuple) else (window,)
    if spec["name"] != "window" or spec.keys() - free or any(w is None or w % 2 for w in each):
        return None
    if _chosen(heads) not in ("explicit", spec.get("global_tokens")):
        return None
    fields = {"attention_window": list(each) * (layers // len(each))}
    return fields | {k: spec[k] for k in ("sep_token_id",) if k in spec}


MARKED = {"cls": "the first token of each text", "question": "the tokens before the first separator"}


def attention_note(spec: Mapping[str, Any], heads: tuple[str, ...]) -> str:
    """Where the class chooses no global tokens, those of the pattern must be marked."""
    policy = spec.get("global_tokens", "none")
    if policy not in MARKED or _chosen(heads) == policy:
        return ""
    return (
        "transformers' class chooses no global tokens by itself here; for this model's outputs give it global_attention_mask "
        f"with 1 at {MARKED[policy]}"
    )


FAMILY = roberta.FAMILY._replace(
    classes="Longformer",
    encoder=(*roberta.FAMILY.encoder, *GLOBAL),
    prefix="longformer.",
    fixed={"autoregressive": False, "attention_mode": "longformer", "ignore_attention_mask": False, "onnx_export": False},
    own=frozenset({"attention_window"}),
    attention=attention,
    attention_fields=attention_fields,
    attention_words="windows of even width on both sides without dilation, with global tokens cls beside a classifier head, "
    "question beside a qa head, any beside others",
    attention_note=attention_note,
    becomes=("roberta",),
)
