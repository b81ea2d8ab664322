"""Writes tiny NomicBERT checkpoints in their original format with inputs and outputs into tests/golden/nomic_original/.

The original format is that of the remote code of nomic-ai (nomic-bert-2048, nomic-embed-text-v1, v1.5; the classes of their
repository contrastors): GPT-2's config keys, flash-attention's tensor names. transformers 5 has a class of its own, with other
names inside. The outputs are its, of 5.24.0 with torch 2.13.0:

    ~/.cache/lpe/venv/bin/python -m tests.golden.make_nomic_original

transformers takes the tensors as they are (it renames them, below) but not the config: of `n_embd` and its like it reads none
and takes its defaults, the sizes of nomic-bert-2048, whatever they say. Hence the config is given here, and the prefix `bert.`
of the MLM, which transformers calls `nomic_bert.`, is mapped. Every weight and bias is perturbed, so that none is 0 or 1 and no
confusion of two of them goes unseen. golden.npz: see tiny.py.

Config, original → transformers: n_embd → hidden_size, n_head → num_attention_heads, n_layer → num_hidden_layers, n_inner →
intermediate_size (the original code rounds it up to a multiple of 256 in a gated MLP, hence 256 here), n_positions →
max_position_embeddings, layer_norm_epsilon → layer_norm_eps, activation_function "swiglu" → hidden_act "silu",
rotary_emb_base → rope_parameters.rope_theta, embd_pdrop (unused) and resid_pdrop → hidden_dropout_prob, attn_pdrop →
attention_probs_dropout_prob. vocab_size is rounded up to a multiple of pad_vocab_size_multiple, in the file already; there is
no pad_token_id (0). transformers has but the published kind: rotary_emb_fraction 1, rotary_emb_interleaved false, prenorm
false, no biases (qkv_proj_bias, mlp_fc1_bias, mlp_fc2_bias), use_rms_norm false, causal false, rotary_scaling_factor null.

Tensors, original → transformers: `emb_ln` → `embeddings.LayerNorm`, `encoder.layers.N` → `layers.N`, `attn.Wqkv` (query, key,
value, one below the other) → `self_attn.{q,k,v}_proj`, `attn.out_proj` → `self_attn.o_proj`, `mlp.fc11` → `mlp.up_proj`,
`mlp.fc12` → `mlp.gate_proj` (the one that silu is applied to), `mlp.fc2` → `mlp.down_proj`, `norm1` →
`post_attention_layernorm`, `norm2` → `post_mlp_layernorm`; `embeddings.{word,token_type}_embeddings` and
`cls.predictions.transform.{dense,layer_norm}` keep their names. With mlp_fc1_bias false neither
`cls.predictions.transform.dense` nor the decoder has a bias; `cls.predictions.decoder.weight` is the word embeddings, and may
be in a file once more.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import NomicBertConfig, NomicBertForMaskedLM, NomicBertModel

from tests.golden.tiny import golden, no_trivial_weight, write
from tests.parity.reference import SIZES, perturb

FOLDER = Path(__file__).parent / "nomic_original"
CONFIG = NomicBertConfig(
    **{**SIZES, "vocab_size": 48, "intermediate_size": 256, "max_position_embeddings": 160},
    rope_parameters={"rope_type": "default", "rope_theta": 500.0},  # not 1000, transformers' default
)
ORIGINAL = {
    "model_type": "nomic_bert",
    "activation_function": "swiglu",
    "attn_pdrop": 0.0,
    "bos_token_id": None,
    "causal": False,
    "dense_seq_output": True,
    "embd_pdrop": 0.0,
    "eos_token_id": None,
    "fused_bias_fc": True,
    "fused_dropout_add_ln": True,
    "initializer_range": 0.02,
    "layer_norm_epsilon": CONFIG.layer_norm_eps,
    "max_trained_positions": CONFIG.max_position_embeddings,
    "mlp_fc1_bias": False,
    "mlp_fc2_bias": False,
    "n_embd": CONFIG.hidden_size,
    "n_head": CONFIG.num_attention_heads,
    "n_inner": CONFIG.intermediate_size,
    "n_layer": CONFIG.num_hidden_layers,
    "n_positions": CONFIG.max_position_embeddings,
    "pad_vocab_size_multiple": 16,
    "parallel_block": False,
    "parallel_block_tied_norm": False,
    "prenorm": False,
    "qkv_proj_bias": False,
    "reorder_and_upcast_attn": False,
    "resid_pdrop": 0.0,
    "rotary_emb_base": CONFIG.rope_parameters["rope_theta"],
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None,
    "rotary_scaling_factor": None,
    "scale_attn_by_inverse_layer_idx": False,
    "scale_attn_weights": True,
    "summary_activation": None,
    "summary_first_dropout": 0.0,
    "summary_proj_to_labels": True,
    "summary_type": "cls_index",
    "summary_use_proj": True,
    "torch_dtype": "float32",
    "type_vocab_size": CONFIG.type_vocab_size,
    "use_cache": True,
    "use_flash_attn": True,
    "use_rms_norm": False,
    "use_xentropy": True,
    "vocab_size": CONFIG.vocab_size,
}
NAMES = {
    "nomic_bert.": "bert.",
    "embeddings.LayerNorm.": "emb_ln.",
    "layers.": "encoder.layers.",
    "self_attn.o_proj.": "attn.out_proj.",
    "mlp.up_proj.": "mlp.fc11.",
    "mlp.gate_proj.": "mlp.fc12.",
    "mlp.down_proj.": "mlp.fc2.",
    "post_attention_layernorm.": "norm1.",
    "post_mlp_layernorm.": "norm2.",
}
UNBIASED = "cls.predictions.bias", "cls.predictions.decoder.bias", "cls.predictions.transform.dense.bias"
# name: class, original class
CHECKPOINTS = {"base": (NomicBertModel, "NomicBertModel"), "mlm": (NomicBertForMaskedLM, "NomicBertForPreTraining")}


def original(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    out = {}
    for name, x in state.items():
        if name in UNBIASED or name == "cls.predictions.decoder.weight":
            continue
        if "self_attn.q_proj" in name:
            x = torch.cat([state[name.replace("q_proj", each)] for each in ("q_proj", "k_proj", "v_proj")])
            name = name.replace("self_attn.q_proj", "attn.Wqkv")
        elif "k_proj" in name or "v_proj" in name:
            continue
        for ours, theirs in NAMES.items():
            name = name.replace(ours, theirs)
        out[name] = x.clone()
    return out


def make(name: str, seed: int) -> None:
    cls, original_class = CHECKPOINTS[name]
    torch.manual_seed(seed)
    model = perturb(cls(CONFIG), seed)
    no_trivial_weight(model)
    for each, p in model.named_parameters():
        if each in UNBIASED:
            p.data.zero_()
    arrays = golden(model, positions=True)

    shutil.rmtree(FOLDER / name, ignore_errors=True)
    (FOLDER / name).mkdir(parents=True)
    config = {"architectures": [original_class], **ORIGINAL}
    (FOLDER / name / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_file(original(model.state_dict()), FOLDER / name / "model.safetensors", metadata={"format": "pt"})
    write(FOLDER / name, arrays)

    prefix = {r"^bert\.": "nomic_bert."} if name == "mlm" else None
    again = cls.from_pretrained(FOLDER / name, config=CONFIG, key_mapping=prefix).eval()
    for k, v in golden(again, positions=True).items():
        assert np.abs(v - arrays[k]).max() <= 1e-6, k


if __name__ == "__main__":
    for i, each in enumerate(CHECKPOINTS):
        make(each, i)
