"""config.json to BertConfig and back. An attribute that lpe neither handles nor finds at its default is an error."""

from types import ModuleType

from lpe.checkpoint import bert, roberta
from lpe.models.bert import BertConfig

FAMILIES: dict[str, ModuleType] = {"bert": bert, "roberta": roberta, "xlm-roberta": roberta}

# Fields that are taken over as they are.
SHARED = (
    "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act",
    "hidden_dropout_prob", "attention_probs_dropout_prob", "max_position_embeddings", "type_vocab_size",
    "initializer_range", "layer_norm_eps",
)  # fmt: skip
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
    "tokenizer_class", "prefix", "task_specific_params", "adapters", "torchscript", "use_bfloat16", "gpu_id",
}  # fmt: skip


def family_of(raw: dict, source: str) -> tuple[str, ModuleType]:
    """The family's name and module.

    Raises:
      ValueError: a model_type that lpe does not read.
    """
    name = raw.get("model_type")
    if name is None:
        text = " ".join(raw.get("architectures") or ()).lower()
        name = next((f for f in ("xlm-roberta", "roberta", "bert") if f.replace("-", "") in text), "bert")
    if name not in FAMILIES:
        raise ValueError(f"{source}: model_type={name!r} is not read by lpe; it reads {', '.join(FAMILIES)}")
    return name, FAMILIES[name]


def read(raw: dict, source: str) -> BertConfig:
    """BertConfig of a config.json.

    Raises:
      ValueError: a field missing, unknown, or with a value that lpe does not compute.
    """
    _, family = family_of(raw, source)
    problems = [f"{k} is missing" for k in ("vocab_size", "hidden_size", "num_hidden_layers") if k not in raw]
    problems += [f"{k}={raw[k]!r}: lpe computes only {v!r}" for k, v in FIXED.items() if k in raw and raw[k] not in (v, None)]
    known = {*SHARED, *FIXED, *CARRIED}
    problems += [f"{k}={raw[k]!r} is not known to lpe, so it might change the result" for k in sorted(set(raw) - known)]
    if problems:
        raise ValueError(f"{source}/config.json:\n  " + "\n  ".join(problems))
    pad = raw.get("pad_token_id")
    pad = (0 if family is bert else 1) if pad is None else pad
    reserved = family.RESERVED_ROWS if family.RESERVED_ROWS is not None else pad + 1
    fields = {k: raw[k] for k in SHARED if k in raw}
    labels = raw.get("id2label")
    return BertConfig(
        **fields,
        head_act=family.HEAD_ACT or fields.get("hidden_act", "gelu"),
        reserved_rows=reserved,
        pad_token_id=pad,
        tie_word_embeddings=raw.get("tie_word_embeddings", True),
        num_labels=len(labels) if labels else raw.get("num_labels", 2),
    )


def write(cfg: BertConfig, family: str, heads: tuple[str, ...], raw: dict, rows: int, dtype: str) -> dict:
    """config.json of an exported model: the source's own fields, with what changed."""
    head = next((h for h in ("mlm", "classifier") if h in heads), "")
    return {
        **raw,
        **{k: getattr(cfg, k) for k in SHARED},
        "model_type": family,
        "architectures": [
            FAMILIES[family].ARCHITECTURES[head].replace("Roberta", "XLMRoberta" if "xlm" in family else "Roberta")
        ],
        "max_position_embeddings": rows,
        "pad_token_id": cfg.pad_token_id,
        "tie_word_embeddings": cfg.tie_word_embeddings,
        "dtype": dtype,
    }
