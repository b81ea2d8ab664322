"""Writes tiny RoFormer checkpoints with inputs and outputs into tests/golden/roformer_v2/, by the PyPI package `roformer`.

The package is JunnYu's, who publishes RoFormer v2 for torch (junnyu/roformer_v2_chinese_char_{small,base,large});
transformers has v1 only. The data are of roformer 0.4.3 on transformers 4.57.6 and torch 2.13.0 (venv-tf4: make_nezha.py):

    pip install --no-deps --target FOLDER roformer==0.4.3
    PYTHONPATH=FOLDER ~/.cache/lpe/venv-tf4/bin/python -m tests.golden.make_roformer_v2

Every weight and bias is perturbed, so that none is 0 or 1 and no confusion of two of them goes unseen. Each folder holds a
checkpoint under the package's names and golden.npz (see tiny.py). base, mlm, classifier, tagger and qa are v2; v1_mlm and
v1_classifier are v1 with rotary_value and embedding_size 16, and equal transformers' own classes on the same weights.

A v2 config has model_type "roformer", as v1, and besides v1's keys (vocab_size, embedding_size, hidden_size,
num_hidden_layers, num_attention_heads, intermediate_size, hidden_act, max_position_embeddings, type_vocab_size,
layer_norm_eps, rotary_value, pad_token_id …) norm_type "rms_norm" (v1 "layer_norm", the default), use_bias false (v1 true,
the default) and pooler_activation (of a pooler that no class here has). The published ones have hidden_act "relu",
rotary_value false, type_vocab_size 2, max_position_embeddings 512, vocab_size 12000, embedding_size = hidden_size.

A v2 MLM has these tensors and no other: `roformer.embeddings.word_embeddings.weight`,
`roformer.embeddings.token_type_embeddings.weight`, `roformer.encoder.layer.N.attention.self.{query,key,value}.weight`,
`….attention.output.dense.weight`, `….intermediate.dense.weight`, `….output.dense.weight` and `cls.predictions.decoder.weight`,
which is the word embeddings once more (published with it; a writer may leave it out). Tasks: `classifier.dense`,
`classifier.out_proj` (classifier: place 0, dense, hidden_act, out_proj), `classifier` (tagger), `qa_outputs` on top of
`roformer.`, with biases. `roformer.encoder.embed_positions.weight` (sines, then cosines) is left out of a task's file; a base
model's file has it, as `encoder.embed_positions.weight`.

v2 against v1: query, key, value, attention output and both layers of the MLP have no bias (use_bias); every norm, that of the
embeddings too, is x / sqrt(mean(x²) + layer_norm_eps) without a weight or a bias, hence without tensors (norm_type); the MLM
head is the tied word embeddings alone, without dense layer, norm and biases (norm_type); relu instead of gelu (hidden_act).
The same: post-norm, token types, interleaved rotary on query and key with base 10000, scores / sqrt(head size), the heads of
the other tasks. With use_bias false and norm_type "layer_norm", or the other way round, the two act each by themselves; only
norm_type picks the MLM head. The package's `embeddings_project` (embedding_size != hidden_size) has a bias in v2 as well.
"""

import shutil
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import modeling_utils, pytorch_utils

from tests.golden.tiny import golden, no_trivial_weight, write
from tests.parity.reference import SIZES, perturb

# Moved or removed since the package was written.
for moved in "apply_chunking_to_forward", "find_pruneable_heads_and_indices", "prune_linear_layer":
    setattr(modeling_utils, moved, getattr(pytorch_utils, moved))
modeling_utils.SequenceSummary = None  # of the multiple choice class alone

from roformer import RoFormerConfig  # noqa: E402
from roformer import modeling_roformer as roformer  # noqa: E402

FOLDER = Path(__file__).parent / "roformer_v2"
V2 = dict(norm_type="rms_norm", use_bias=False, hidden_act="relu")
V1 = dict(norm_type="layer_norm", use_bias=True, hidden_act="gelu", rotary_value=True, embedding_size=16)
# name: class, changes of the config
CHECKPOINTS = {
    "base": ("RoFormerModel", V2),
    "mlm": ("RoFormerForMaskedLM", V2),
    "classifier": ("RoFormerForSequenceClassification", V2),
    "tagger": ("RoFormerForTokenClassification", V2),
    "qa": ("RoFormerForQuestionAnswering", V2 | {"num_labels": 2}),
    "v1_mlm": ("RoFormerForMaskedLM", V1),
    "v1_classifier": ("RoFormerForSequenceClassification", V1),
}


def make(name: str, seed: int) -> None:
    cls, changes = CHECKPOINTS[name]
    torch.manual_seed(seed)
    config = RoFormerConfig(**{**SIZES, "max_position_embeddings": 160, "architectures": [cls], **changes})
    model = getattr(roformer, cls)(config)
    frozen = {k: p.clone() for k, p in model.named_parameters() if not p.requires_grad}  # the sinusoids
    perturb(model, seed).load_state_dict(frozen, strict=False)
    no_trivial_weight(model)
    left_by_rows = name.endswith("classifier") or config.rotary_value  # a rotated value depends on its place
    arrays = golden(model, left_by_rows)

    shutil.rmtree(FOLDER / name, ignore_errors=True)
    config.save_pretrained(FOLDER / name)
    weights = {k: v.clone() for k, v in model.state_dict().items() if k not in model._keys_to_ignore_on_save}
    save_file(weights, FOLDER / name / "model.safetensors", metadata={"format": "pt"})
    write(FOLDER / name, arrays)

    again = getattr(roformer, cls)(config).eval()
    again.load_state_dict(load_file(FOLDER / name / "model.safetensors"), strict=False)
    compare(arrays, golden(again, left_by_rows), 0)
    if name.startswith("v1"):
        other = getattr(transformers, cls)(transformers.RoFormerConfig(**config.to_dict())).eval()
        other.load_state_dict(model.state_dict(), strict=True)
        compare(arrays, golden(other, left_by_rows), 1e-5)


def compare(one: dict[str, np.ndarray], two: dict[str, np.ndarray], tolerance: float) -> None:
    for k, v in one.items():
        mask = two[k.split("/")[0] + "/attention_mask"].astype(bool)
        difference = np.abs(v - two[k])
        assert (difference[mask] if v.shape[:2] == mask.shape else difference).max() <= tolerance, k


if __name__ == "__main__":
    for i, each in enumerate(CHECKPOINTS):
        make(each, i)
