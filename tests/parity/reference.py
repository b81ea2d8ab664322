"""transformers on torch as the independent implementation: tiny random models and outputs numbered as lpe numbers positions."""

import inspect

import numpy as np
import torch
import transformers
from transformers import PreTrainedModel

SIZES = dict(vocab_size=47, hidden_size=24, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40, num_labels=3)
T5 = dict(vocab_size=47, d_model=24, d_kv=5, d_ff=40, num_layers=3, num_heads=4, num_labels=3)
# family: prefix of the classes, config
FAMILIES = {
    "bert": ("Bert", dict(SIZES, max_position_embeddings=16)),
    "roberta": ("Roberta", dict(SIZES, max_position_embeddings=18, pad_token_id=1, layer_norm_eps=1e-5)),
    "xlm-roberta": (
        "XLMRoberta",
        dict(SIZES, max_position_embeddings=20, pad_token_id=3, type_vocab_size=1, layer_norm_eps=1e-5),
    ),
    "longformer": (
        "Longformer",
        dict(SIZES, max_position_embeddings=18, pad_token_id=1, attention_window=4, layer_norm_eps=1e-5),
    ),
    "big_bird": (
        "BigBird",
        dict(SIZES, block_size=2, num_random_blocks=3, max_position_embeddings=64, sep_token_id=2),
    ),
    "distilbert": (
        "DistilBert",
        dict(vocab_size=47, dim=24, n_layers=2, n_heads=4, hidden_dim=40, num_labels=3, max_position_embeddings=16),
    ),
    "electra": ("Electra", dict(SIZES, embedding_size=12, max_position_embeddings=16)),
    "albert": (
        "Albert",
        dict(SIZES, embedding_size=12, num_hidden_layers=4, num_hidden_groups=2, max_position_embeddings=16),
    ),
    "roformer": ("RoFormer", dict(SIZES, embedding_size=12, rotary_value=True, max_position_embeddings=16)),
    "nomic_bert": ("NomicBert", dict(SIZES, max_position_embeddings=16)),
    "modernbert": (
        "ModernBert",
        dict(
            SIZES, num_hidden_layers=5, local_attention=4, max_position_embeddings=16, classifier_pooling="mean",
            pad_token_id=0, bos_token_id=1, cls_token_id=1, eos_token_id=2, sep_token_id=2,
        ),
    ),
    "t5": ("T5", T5),
    "mt5": ("MT5", dict(T5, feed_forward_proj="gated-gelu")),
}  # fmt: skip
HEADS = {
    "base": "Model",
    "mlm": "ForMaskedLM",
    "classifier": "ForSequenceClassification",
    "tagger": "ForTokenClassification",
    "qa": "ForQuestionAnswering",
}
METHODS = {"base": "encode", "mlm": "mlm_logits", "classifier": "classify", "tagger": "tag", "qa": "answer"}  # of lpe.Model


def class_of(family: str, head: str) -> type[PreTrainedModel] | None:
    """None where transformers has no encoder with this head."""
    prefix, _ = FAMILIES[family]
    if prefix.endswith("T5"):  # the other classes need the decoder
        name = {"base": "EncoderModel", "tagger": "ForTokenClassification"}.get(head, "")
        return getattr(transformers, prefix + name) if name else None
    return getattr(transformers, prefix + HEADS[head], None)


def tiny(family: str, head: str, seed: int = 0, **changes) -> PreTrainedModel:
    """A random model with every weight and bias perturbed, so that none is 0 or 1 and no confusion of two goes unseen."""
    prefix, own = FAMILIES[family]
    own = own | {"num_labels": 2} if head == "qa" else own  # an answer's start and end
    cls = class_of(family, head)
    assert cls is not None, (family, head)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = cls(getattr(transformers, f"{prefix}Config")(**{**own, **changes}))
    return perturb(model, seed)


def perturb(model: PreTrainedModel, seed: int = 0) -> PreTrainedModel:
    """Not what is constant: RoFormer keeps its table of sines among the parameters."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            if p.requires_grad:
                p.add_(0.2 * torch.randn(p.shape, generator=generator))
    return model.eval()


def batch(config, lengths: list[int], side: str, seed: int = 0) -> dict[str, np.ndarray]:
    """Random ids above the special ones, padded to the longest on the given side."""
    rng = np.random.default_rng(seed)
    place, length = np.arange(max(lengths)), np.array(lengths)[:, None]
    mask = (place < length if side == "right" else place >= max(lengths) - length).astype(np.int64)
    ids = rng.integers(5, config.vocab_size, mask.shape)
    found = {"input_ids": np.where(mask, ids, config.pad_token_id or 0)}
    if types := getattr(config, "type_vocab_size", 0):
        found["token_type_ids"] = rng.integers(0, types, mask.shape)
    return {**found, "attention_mask": mask}


@torch.no_grad()
def run(model: PreTrainedModel, inputs: dict[str, np.ndarray]) -> np.ndarray:
    """The last hidden state or the logits, an answer's start and end as ours: [B, T, 2].

    Positions are passed in where the class takes any: of real tokens from 0, as METHODS.md §4 has it.
    """
    mask = inputs["attention_mask"]
    if "position_ids" in inspect.signature(model.forward).parameters:
        positions = np.maximum(mask.cumsum(1) - 1, 0)
        if model.config.model_type in ("roberta", "xlm-roberta", "longformer"):
            positions = np.where(mask, positions + model.config.pad_token_id + 1, model.config.pad_token_id)
        inputs = {**inputs, "position_ids": positions}
    out = model(**{k: torch.from_numpy(np.asarray(v)) for k, v in inputs.items()})
    return (torch.stack([out.start_logits, out.end_logits], -1) if "start_logits" in out else out[0]).numpy()


def run_rows(model: PreTrainedModel, inputs: dict[str, np.ndarray]) -> np.ndarray:
    """Row by row without padding, with 0 at padding.

    transformers' classifiers read place 0, which is padding in a row padded on the left.
    """
    real = inputs["attention_mask"].astype(bool)
    rows = [run(model, {k: v[i : i + 1, real[i]] for k, v in inputs.items()}) for i in range(len(real))]
    if rows[0].ndim == 2:
        return np.concatenate(rows)
    out = np.zeros((*real.shape, rows[0].shape[-1]), np.float32)
    out[real] = np.concatenate([row[0] for row in rows])
    return out


def compare(ours, theirs: PreTrainedModel, head: str, inputs: dict[str, np.ndarray]) -> float:
    """The largest difference of lpe's model and transformers' on a batch."""
    places = getattr(theirs.config, "rotary_value", False)  # its values turn by place, not by position
    want = (run_rows if head == "classifier" or places else run)(theirs, inputs)
    return error(getattr(ours, METHODS[head])(inputs), want, inputs)


def error(ours, theirs: np.ndarray, inputs: dict[str, np.ndarray]) -> float:
    """The largest difference on real tokens (or classes)."""
    assert np.asarray(ours).shape == theirs.shape
    difference = np.abs(np.asarray(ours, np.float64) - theirs)
    return float((difference[inputs["attention_mask"].astype(bool)] if difference.ndim == 3 else difference).max())
