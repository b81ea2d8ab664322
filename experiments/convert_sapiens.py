"""Converts a fairseq checkpoint of sapiens (antibody sequences, RoBERTa; PyPI sapiens==1.0.5) to a Hugging Face RoBERTa folder.

    python -m tests.assets
    python -m experiments.convert_sapiens ~/.cache/lpe/assets/sapiens==1.0.5/sapiens/models/v1/checkpoint_vh.pt FOLDER

Names change, values do not. The vocabulary is fairseq's: <s> <pad> </s> <unk>, the lines of dict.txt beside the checkpoint,
<mask>. fairseq numbers positions from pad + 1, as RoBERTa does, and its layer norm has an epsilon of 1e-5.
"""

import argparse
import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

BODY, HEAD = "decoder.sentence_encoder.", "decoder.lm_head."
NAMES = {
    "embed_tokens.": "embeddings.word_embeddings.",
    "embed_positions.": "embeddings.position_embeddings.",
    "emb_layer_norm.": "embeddings.LayerNorm.",
    "layers.": "encoder.layer.",
    "self_attn.q_proj.": "attention.self.query.",
    "self_attn.k_proj.": "attention.self.key.",
    "self_attn.v_proj.": "attention.self.value.",
    "self_attn.out_proj.": "attention.output.dense.",
    "self_attn_layer_norm.": "attention.output.LayerNorm.",
    "fc1.": "intermediate.dense.",
    "fc2.": "output.dense.",
    "final_layer_norm.": "output.LayerNorm.",
}


def rename(key: str) -> str:
    """Hugging Face's name of a fairseq tensor."""
    if key.startswith(HEAD):
        name = key.removeprefix(HEAD)
        return "lm_head.decoder.weight" if name == "weight" else f"lm_head.{name}"
    name = key.removeprefix(BODY)
    for theirs, ours in NAMES.items():
        name = name.replace(theirs, ours)
    return f"roberta.{name}"


def tokenizer(words: Path) -> PreTrainedTokenizerFast:
    """One residue, one token; <s> before and </s> behind."""
    residues = [line.split()[0] for line in words.read_text(encoding="utf-8").splitlines()]
    vocabulary = ["<s>", "<pad>", "</s>", "<unk>", *residues, "<mask>"]
    backend = Tokenizer(models.WordLevel({w: i for i, w in enumerate(vocabulary)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    backend.post_processor = processors.TemplateProcessing("<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    named = {"bos": "<s>", "cls": "<s>", "pad": "<pad>", "eos": "</s>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>"}
    return PreTrainedTokenizerFast(tokenizer_object=backend, **{f"{k}_token": v for k, v in named.items()})


def convert(checkpoint: Path, folder: Path) -> None:
    """Writes config.json, model.safetensors and the tokenizer into `folder`."""
    with torch.serialization.safe_globals([argparse.Namespace]):
        state = torch.load(checkpoint, map_location="cpu", weights_only=True)
    args, tensors = state["args"], {rename(k): x.contiguous() for k, x in state["model"].items()}
    tensors["roberta.embeddings.token_type_embeddings.weight"] = torch.zeros(1, args.encoder_embed_dim)  # fairseq has none
    config = {
        "model_type": "roberta",
        "architectures": ["RobertaForMaskedLM"],
        "vocab_size": len(tensors["roberta.embeddings.word_embeddings.weight"]),
        "hidden_size": args.encoder_embed_dim,
        "num_hidden_layers": args.encoder_layers,
        "num_attention_heads": args.encoder_attention_heads,
        "intermediate_size": args.encoder_ffn_embed_dim,
        "hidden_act": args.activation_fn,
        "hidden_dropout_prob": args.dropout,
        "attention_probs_dropout_prob": args.attention_dropout,
        "max_position_embeddings": len(tensors["roberta.embeddings.position_embeddings.weight"]),
        "type_vocab_size": 1,
        "layer_norm_eps": 1e-5,
        "bos_token_id": 0,
        "pad_token_id": 1,
        "eos_token_id": 2,
    }
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer(checkpoint.parent / "dict.txt").save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]).expanduser())
