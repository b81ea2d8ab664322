"""Writes tiny Flax checkpoints with inputs and outputs into tests/golden/flax/, by transformers' own Flax classes.

They left transformers with version 5, hence an environment of its own:

    python -m venv ~/.cache/lpe/venv-flax
    ~/.cache/lpe/venv-flax/bin/pip install transformers==4.57.6 "flax<0.11" "jax<0.7"
    ~/.cache/lpe/venv-flax/bin/python tests/golden/make_flax.py

Every weight and bias is perturbed, so that none is 0 or 1 and no confusion of two of them goes unseen. Each folder holds a
checkpoint as `save_pretrained` writes it and golden.npz: input_ids, token_type_ids, attention_mask (0 on the right in the
second row) and `output`, computed in float32 from the weights as stored.
"""

import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from transformers import (
    BertConfig,
    FlaxBertForMaskedLM,
    FlaxBertForSequenceClassification,
    FlaxRobertaForMaskedLM,
    FlaxRobertaForSequenceClassification,
    RobertaConfig,
)

FOLDER = Path(__file__).parent / "flax"
SIZES = dict(
    vocab_size=61, hidden_size=24, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40, initializer_range=0.2
)
BERT = BertConfig(**SIZES, max_position_embeddings=20, num_labels=3)
ROBERTA = RobertaConfig(**SIZES, max_position_embeddings=22, type_vocab_size=1, layer_norm_eps=1e-5, num_labels=5)
# name: class, config, dtype of the file, largest shard
CHECKPOINTS = {
    "bert_mlm": (FlaxBertForMaskedLM, BERT, jnp.float32, "10GB"),
    "bert_classifier_sharded": (FlaxBertForSequenceClassification, BERT, jnp.float32, "20KB"),
    "roberta_mlm_bfloat16": (FlaxRobertaForMaskedLM, ROBERTA, jnp.bfloat16, "10GB"),
    "roberta_classifier": (FlaxRobertaForSequenceClassification, ROBERTA, jnp.float32, "10GB"),
}


def perturbed(params: dict, rng: np.random.Generator) -> dict:
    return jax.tree.map(lambda x: jnp.asarray(x + 0.2 * rng.standard_normal(x.shape), jnp.float32), params)


def make(name: str, seed: int) -> None:
    cls, config, dtype, shard = CHECKPOINTS[name]
    rng = np.random.default_rng(seed)
    model = cls(config, seed=seed)
    stored = jax.tree.map(lambda x: x.astype(dtype), perturbed(model.params, rng))
    input_ids = rng.integers(5, config.vocab_size, (2, 16))
    attention_mask = np.ones_like(input_ids)
    attention_mask[1, 11:] = 0
    input_ids[attention_mask == 0] = config.pad_token_id
    token_type_ids = rng.integers(0, config.type_vocab_size, input_ids.shape)
    used = jax.tree.map(lambda x: x.astype(jnp.float32), stored)
    with jax.default_matmul_precision("highest"):
        output = model(input_ids, attention_mask, token_type_ids, params=used).logits
    shutil.rmtree(FOLDER / name, ignore_errors=True)
    model.save_pretrained(FOLDER / name, params=stored, max_shard_size=shard)
    batch = {"input_ids": input_ids, "token_type_ids": token_type_ids, "attention_mask": attention_mask}
    np.savez_compressed(FOLDER / name / "golden.npz", **batch, output=np.asarray(output, np.float32))


if __name__ == "__main__":
    for i, each in enumerate(CHECKPOINTS):
        make(each, seed=i)
