"""transformers on torch as the independent implementation: tiny random models and outputs numbered as lpe numbers positions."""

import numpy as np
import torch
import transformers
from transformers import PreTrainedModel

SIZES = dict(vocab_size=47, hidden_size=24, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40, num_labels=3)
# family: prefix of the classes, config
FAMILIES = {
    "bert": ("Bert", dict(max_position_embeddings=16)),
    "roberta": ("Roberta", dict(max_position_embeddings=18, pad_token_id=1, layer_norm_eps=1e-5)),
    "xlm-roberta": ("XLMRoberta", dict(max_position_embeddings=20, pad_token_id=3, type_vocab_size=1, layer_norm_eps=1e-5)),
    "longformer": ("Longformer", dict(max_position_embeddings=18, pad_token_id=1, attention_window=4, layer_norm_eps=1e-5)),
}
HEADS = {
    "base": "Model",
    "mlm": "ForMaskedLM",
    "classifier": "ForSequenceClassification",
    "tagger": "ForTokenClassification",
    "qa": "ForQuestionAnswering",
}
METHODS = {"base": "encode", "mlm": "mlm_logits", "classifier": "classify", "tagger": "tag", "qa": "answer"}  # of lpe.Model


def tiny(family: str, head: str, seed: int = 0, **changes) -> PreTrainedModel:
    """A random model with every weight and bias perturbed, so that none is 0 or 1 and no confusion of two goes unseen."""
    prefix, own = FAMILIES[family]
    own = own | {"num_labels": 2} if head == "qa" else own  # an answer's start and end
    config = getattr(transformers, f"{prefix}Config")(**{**SIZES, **own, **changes})
    return perturb(getattr(transformers, f"{prefix}{HEADS[head]}")(config), seed)


def perturb(model: PreTrainedModel, seed: int = 0) -> PreTrainedModel:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.2 * torch.randn(p.shape, generator=generator))
    return model.eval()


def batch(config, lengths: list[int], side: str, seed: int = 0) -> dict[str, np.ndarray]:
    """Random ids above the special ones, padded to the longest on the given side."""
    rng = np.random.default_rng(seed)
    place, length = np.arange(max(lengths)), np.array(lengths)[:, None]
    mask = (place < length if side == "right" else place >= max(lengths) - length).astype(np.int64)
    ids = rng.integers(5, config.vocab_size, mask.shape)
    types = rng.integers(0, config.type_vocab_size, mask.shape)
    return {"input_ids": np.where(mask, ids, config.pad_token_id or 0), "token_type_ids": types, "attention_mask": mask}


@torch.no_grad()
def run(model: PreTrainedModel, inputs: dict[str, np.ndarray]) -> np.ndarray:
    """The last hidden state or the logits, an answer's start and end as ours: [B, T, 2].

    Positions are passed in: of real tokens from 0, as METHODS.md §4 has it.
    """
    mask = inputs["attention_mask"]
    positions = np.maximum(mask.cumsum(1) - 1, 0)
    if model.config.model_type != "bert":
        positions = np.where(mask, positions + model.config.pad_token_id + 1, model.config.pad_token_id)
    tensors = {k: torch.from_numpy(np.asarray(v)) for k, v in {**inputs, "position_ids": positions}.items()}
    out = model(**tensors)
    return (torch.stack([out.start_logits, out.end_logits], -1) if "start_logits" in out else out[0]).numpy()


def run_rows(model: PreTrainedModel, inputs: dict[str, np.ndarray]) -> np.ndarray:
    """Row by row without padding: transformers' classifiers read place 0, which is padding in a row padded on the left."""
    real = inputs["attention_mask"].astype(bool)
    return np.concatenate([run(model, {k: v[i : i + 1, real[i]] for k, v in inputs.items()}) for i in range(len(real))])


def compare(ours, theirs: PreTrainedModel, head: str, inputs: dict[str, np.ndarray]) -> float:
    """The largest difference of lpe's model and transformers' on a batch."""
    want = (run_rows if head == "classifier" else run)(theirs, inputs)
    return error(getattr(ours, METHODS[head])(inputs), want, inputs)


def error(ours, theirs: np.ndarray, inputs: dict[str, np.ndarray]) -> float:
    """The largest difference on real tokens (or classes)."""
    assert np.asarray(ours).shape == theirs.shape
    difference = np.abs(np.asarray(ours, np.float64) - theirs)
    return float((difference[inputs["attention_mask"].astype(bool)] if difference.ndim == 3 else difference).max())
