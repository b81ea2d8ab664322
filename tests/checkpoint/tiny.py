"""Tiny checkpoints written by torch and safetensors, to be damaged or renamed, and read back by lpe."""

import json
from pathlib import Path

import jax
import numpy as np
import torch
from safetensors.torch import save_file

import lpe
from tests.parity import reference


def state_and_config(family: str = "bert", head: str = "mlm", **changes) -> tuple[dict[str, torch.Tensor], dict]:
    """All tensors of a perturbed model, the tied ones too, and its config.json."""
    model = reference.tiny(family, head, **changes)
    state = {k: x.clone().contiguous() for k, x in model.state_dict().items()}
    own = {"architectures": [type(model).__name__], "tie_word_embeddings": model.config.tie_word_embeddings}
    return state, {**model.config.to_diff_dict(), **own}


def write(folder: Path, state: dict[str, torch.Tensor], config: dict, file: str = "model.safetensors", **options) -> Path:
    """A folder with the tensors as they are given. options: of torch.save."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if file.endswith(".safetensors"):
        save_file(state, folder / file)
    else:
        torch.save(state, folder / file, **options)
    return folder


def write_sharded(folder: Path, state: dict[str, torch.Tensor], config: dict, file: str) -> Path:
    """Two shards and an index."""
    stem, suffix = file.rsplit(".", 1)
    names, weight_map = sorted(state), {}
    for i, part in enumerate((names[::2], names[1::2]), 1):
        shard = f"{stem}-{i:05}-of-00002.{suffix}"
        write(folder, {k: state[k] for k in part}, config, shard)
        weight_map |= dict.fromkeys(part, shard)
    (folder / f"{file}.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return folder


def equal(a: lpe.Model, b: lpe.Model) -> bool:
    """Same parameters, bit for bit, under the same config."""
    same = jax.tree.structure(a.params) == jax.tree.structure(b.params) and a.config == b.config
    return same and all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a.params), jax.tree.leaves(b.params), strict=True))
