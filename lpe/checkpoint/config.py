"""config.json to BertConfig and back. An attribute that lpe neither handles nor finds at its default is an error."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from lpe.checkpoint import (
    albert,
    bert,
    big_bird,
    distilbert,
    electra,
    longformer,
    modernbert,
    native,
    nezha,
    nomic_bert,
    roberta,
    roformer,
    t5,
)
from lpe.checkpoint.family import HEADS, Family
from lpe.models.bert import BertConfig

FAMILIES: dict[str, Family] = {
    "bert": bert.FAMILY,
    "roberta": roberta.FAMILY,
    "xlm-roberta": roberta.XLM,
    "longformer": longformer.FAMILY,
    "big_bird": big_bird.FAMILY,
    "distilbert": distilbert.FAMILY,
    "electra": electra.FAMILY,
    "albert": albert.FAMILY,
    "nezha": nezha.FAMILY,
    "roformer": roformer.FAMILY,
    "nomic_bert": nomic_bert.FAMILY,
    "modernbert": modernbert.FAMILY,
    "t5": t5.FAMILY,
    "mt5": t5.MT5,
}

# Fields that are taken over as they are.
SHARED = (
    "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act",
    "hidden_dropout_prob", "attention_probs_dropout_prob", "max_position_embeddings", "type_vocab_size",
    "initializer_range", "layer_norm_eps", "pad_token_id",
)  # fmt: skip


def _size(x: Any) -> bool:
    return type(x) is int and x > 0


def _number(x: Any) -> bool:
    return type(x) in (int, float) and math.isfinite(x)


def _names(x: Any) -> bool:
    return isinstance(x, list | tuple) and all(isinstance(n, str) for n in x)


YES_NO = (lambda x: isinstance(x, bool), "true or false", True)
SIZE = (_size, "a whole number above 0, without quotes or point", False)
DROPOUT = (lambda x: _number(x) and 0 <= x < 1, "a number from 0 up to, not including, 1", False)
# What a value may be: the check, its words, and whether null stands for the default, as far as stock transformers allows it.
KINDS: dict[str, tuple[Callable[[Any], bool], str, bool]] = {
    "vocab_size": SIZE,
    "hidden_size": SIZE,
    "num_hidden_layers": SIZE,
    "num_attention_heads": SIZE,
    "intermediate_size": SIZE,
    "max_position_embeddings": SIZE,
    "type_vocab_size": SIZE,
    "embedding_size": (_size, SIZE[1], True),
    "hidden_act": (lambda x: isinstance(x, str), 'the name of an activation, such as "gelu"', False),
    "hidden_dropout_prob": DROPOUT,
    "attention_probs_dropout_prob": DROPOUT,
    "classifier_dropout": (DROPOUT[0], DROPOUT[1], True),
    "initializer_range": (lambda x: type(x) is float and _number(x) and x >= 0, "a number with a point, such as 0.02", False),
    "layer_norm_eps": (
        lambda x: type(x) is float and _number(x) and x > 0,
        "a number with a point above 0, such as 1e-12",
        False,
    ),
    "pad_token_id": (lambda x: type(x) is int, "a whole number", True),
    "tie_word_embeddings": YES_NO,
    "num_labels": (_size, SIZE[1], True),
    "id2label": (lambda x: isinstance(x, dict), "a map from numbers to names", True),
    "architectures": (lambda x: isinstance(x, str) or _names(x), "a list of names, or one name", True),
}
KINDS |= dict.fromkeys(
    (
        "norm_bias", "classifier_bias", "attention_bias", "mlp_bias", "decoder_bias", "rotary_value", "use_bias",
        "qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias",
    ),
    YES_NO,
)  # fmt: skip
KINDS |= dict.fromkeys(
    (
        "num_hidden_groups", "d_kv", "head_dim", "n_inner", "n_positions", "max_trained_positions",
        "global_attn_every_n_layers", "max_relative_position", "block_size", "num_random_blocks",
        "relative_attention_num_buckets", "relative_attention_max_distance",
    ),
    (_size, SIZE[1], True),
)  # fmt: skip
KINDS |= dict.fromkeys(
    ("rotary_emb_base", "global_rope_theta", "local_rope_theta"),
    (lambda x: _number(x) and x > 1, "a number above 1", True),
)
KINDS |= dict.fromkeys(("mlp_dropout", "embedding_dropout"), (DROPOUT[0], DROPOUT[1], True))
KINDS["classifier_activation"] = (KINDS["hidden_act"][0], KINDS["hidden_act"][1], True)
# Fields that change the computation, with the only value that lpe computes.
FIXED = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "is_encoder_decoder": False,
    "chunk_size_feed_forward": 0,
    "pruned_heads": {},
    "tie_encoder_decoder": False,
    "cross_attention_hidden_size": None,
}
# Fields that do not change what the encoder computes; all are carried over into an exported config.json.
CARRIED = {
    "model_type", "architectures", "transformers_version", "dtype", "torch_dtype", "_name_or_path", "name_or_path",
    "id2label", "label2id", "num_labels", "problem_type", "finetuning_task", "classifier_dropout", "pad_token_id",
    "bos_token_id", "eos_token_id", "sep_token_id", "cls_token_id", "mask_token_id", "unk_token_id", "use_cache",
    "gradient_checkpointing", "output_past", "output_attentions", "output_hidden_states", "return_dict", "license",
    "tie_word_embeddings", "attn_implementation", "_attn_implementation_autoset", "directionality", "pooler_fc_size",
    "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type", "language", "name",
    "tokenizer_class", "prefix", "task_specific_params", "adapters", "torchscript", "use_bfloat16", "gpu_id", native.FIELD,
}  # fmt: skip
# Options of text generation, which early transformers wrote into every config.json. An encoder generates nothing.
GENERATION = {
    "do_sample", "early_stopping", "temperature", "top_k", "top_p", "typical_p", "num_beams", "num_beam_groups",
    "diversity_penalty", "repetition_penalty", "length_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size",
    "bad_words_ids", "num_return_sequences", "output_scores", "return_dict_in_generate", "forced_bos_token_id",
    "forced_eos_token_id", "remove_invalid_values", "exponential_decay_length_penalty", "suppress_tokens",
    "begin_suppress_tokens", "decoder_start_token_id", "eos_token_ids", "max_length", "min_length", "xla_device",
}  # fmt: skip


def family_of(raw: Mapping[str, Any], source: str) -> str:
    """The family's name.

    Raises:
      ValueError: a model_type that lpe does not read, or none where it makes a difference.
    """
    name, classes = raw.get("model_type"), raw.get("architectures") or ()
    classes = (classes,) if isinstance(classes, str) else classes if _names(classes) else ()  # read lists what is wrong
    if name is None and classes:
        name = next((f for f, family in FAMILIES.items() if classes[0].startswith(family.classes)), classes[0])
    if name is None and (raw.get("type_vocab_size") == 1 or raw.get("pad_token_id") == 1):
        raise ValueError(
            f"{source}: config.json has no model_type, and its type_vocab_size or pad_token_id of 1 is RoBERTa's habit, whose "
            'positions start elsewhere; say which it is: model_type="bert" or model_type="roberta"'
        )
    name = name or "bert"
    if not isinstance(name, str) or name not in FAMILIES:
        raise ValueError(f"{source}: model_type {name!r} is not read by lpe; it reads {', '.join(FAMILIES)}")
    return name


def standard(raw: Mapping[str, Any], family: Family, source: str) -> dict[str, Any]:
    """config.json by our names, with the family's defaults.

    Raises:
      ValueError: a field by both names, with two values.
    """
    found = {**family.defaults}
    for key, value in raw.items():
        ours = {**family.old_names, **family.renamed}.get(key, key)
        if key != ours and ours in raw and raw[ours] != value:
            raise ValueError(
                f"{source}: config.json has {key}={value!r} and {ours}={raw[ours]!r}, which are one field; leave one"
            )
        found[ours] = value
    return found


def read(raw: Mapping[str, Any], source: str) -> BertConfig:
    """BertConfig of a config.json.

    Raises:
      ValueError: a field missing, unknown, of a wrong kind, or with a value that lpe does not compute.
    """
    family = FAMILIES[family_of(raw, source)]
    by_ours = standard(raw, family, source)
    theirs = {ours: key for key, ours in {**family.old_names, **family.renamed}.items() if key in raw}
    problems = _problems(raw, by_ours, theirs, family)
    about = f"{source}: config.json does not describe a model that lpe computes:\n  "
    pad, rows = by_ours.get("pad_token_id"), by_ours.get("max_position_embeddings", BertConfig.max_position_embeddings)
    pad = family.defaults.get("pad_token_id", 0) if pad is None else pad
    reserved = family.reserved_rows
    if reserved is None and type(pad) is int and type(rows) is int:
        reserved = pad + 1
        if not 0 <= reserved < rows:
            problems.append(
                f"pad_token_id={pad!r} leaves no positions of max_position_embeddings={rows!r}; allowed are 0 to {rows - 2}"
            )
    if problems:
        raise ValueError(about + "\n  ".join(problems))
    fields = {k: by_ours[k] for k in SHARED if k in by_ours and k not in family.absent} | {"pad_token_id": pad}
    fields |= {"tie_word_embeddings": by_ours.get("tie_word_embeddings") is not False, "num_labels": _num_labels(raw)}
    fields |= {"head_act": fields.get("hidden_act", BertConfig.hidden_act), "reserved_rows": reserved or 0}
    try:
        return BertConfig(**{**fields, **family.fields(by_ours)})
    except ValueError as e:  # two fields that do not go together
        raise ValueError(f"{about}{e}") from e


def _problems(raw: Mapping[str, Any], by_ours: dict[str, Any], theirs: dict[str, str], family: Family) -> list[str]:
    """What is wrong with single fields, each by the name that it has in config.json."""

    def about(k: str) -> str:
        return f"{theirs.get(k, k)}={by_ours[k]!r}"

    said = {ours: key for key, ours in family.renamed.items()}
    problems = [
        f"{said.get(k, k)} is missing" for k in ("vocab_size", "hidden_size", "num_hidden_layers") if by_ours.get(k) is None
    ]
    problems += [
        f"{about(k)}, allowed is {words}{' or null' if null else ''}"
        for k, (fits, words, null) in KINDS.items()
        if k in by_ours
        and not (null if by_ours[k] is None else fits(by_ours[k]))
        and f"{said.get(k, k)} is missing" not in problems
    ]
    fixed = {k: v for k, v in {**FIXED, **family.fixed}.items() if k not in family.own}
    problems += [
        f"{about(k)}: lpe computes only {v!r}; if the weights do not depend on it, override it: {k}={v!r}"
        for k, v in fixed.items()
        if k in by_ours and by_ours[k] not in (v, None)
    ]
    known = {*SHARED, *FIXED, *CARRIED, *GENERATION, *family.fixed, *family.own, *family.carried}
    known |= {*family.renamed, *family.old_names}
    return problems + [
        f"{k}={raw[k]!r} is not known to lpe, so it might change the result; if it does not, take it out of config.json"
        for k in sorted(raw.keys() - (known - family.absent))
    ]


def _num_labels(raw: Mapping[str, Any]) -> int:
    """Early transformers wrote num_labels and left a stale id2label beside it; later ones write id2label alone."""
    if raw.get("num_labels") is not None:
        return raw["num_labels"]
    return len(raw["id2label"]) if raw.get("id2label") else 2


def head_of(heads: tuple[str, ...]) -> str:
    """The head that names a model's class, "" where none does."""
    return next((h for h in HEADS if h in heads), "")


def write(cfg: BertConfig, family: str, heads: tuple[str, ...], raw: dict, dtype: str, changed: Mapping[str, Any]) -> dict:
    """config.json of an exported model: the source's own fields, and what changed, by our names."""
    about = FAMILIES[family]
    theirs = {ours: key for key, ours in about.renamed.items()}
    kept = {k: v for k, v in raw.items() if k not in {*GENERATION, *about.old_names, "num_labels", "torch_dtype", native.FIELD}}
    if {"classifier", "tagger"} & set(heads) and len(raw.get("id2label") or ()) != cfg.num_labels:
        names = [f"LABEL_{i}" for i in range(cfg.num_labels)]
        kept |= {"id2label": {str(i): n for i, n in enumerate(names)}, "label2id": {n: i for i, n in enumerate(names)}}
    ours = {**{k: getattr(cfg, k) for k in SHARED if k not in about.absent}, **changed}
    return {
        **kept,
        **{theirs.get(k, k): v for k, v in ours.items()},
        "model_type": family,
        "architectures": [about.classes + HEADS.get(head_of(heads), about.base_class)],
        "tie_word_embeddings": cfg.tie_word_embeddings,
        "dtype": dtype,
    }
