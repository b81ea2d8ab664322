"""What the make_*.py of tiny checkpoints in folders share: batches, outputs and their golden.npz.

golden.npz of a folder: `BATCH/input_ids`, `BATCH/token_type_ids`, `BATCH/attention_mask` and `BATCH/output` (float32) of the
batches right (lengths 16, 1, 9, padded on the right), left (the same lengths, padded on the left) and long (85 and 71 tokens,
padded on the right). `output` is the last hidden state (base), or the logits, an answer's start and end as [B, T, 2]. A
classifier reads place 0, which is padding on the left: its rows of `left` were computed one by one without padding, and so
were those of models that number places instead of tokens. Outputs at padding mean nothing.
"""

from pathlib import Path

import numpy as np
import torch

from tests.parity.reference import batch

BATCHES = {"right": ([16, 1, 9], "right"), "left": ([16, 1, 9], "left"), "long": ([85, 71], "right")}


@torch.no_grad()
def output(model: torch.nn.Module, inputs: dict[str, np.ndarray], positions: bool = False) -> np.ndarray:
    tensors = {k: torch.from_numpy(v) for k, v in inputs.items()}
    if positions:
        tensors["position_ids"] = (tensors["attention_mask"].cumsum(1) - 1).clamp(min=0)
    out = model(**tensors)
    return (torch.stack([out.start_logits, out.end_logits], -1) if "start_logits" in out else out[0]).numpy()


def by_rows(model: torch.nn.Module, inputs: dict[str, np.ndarray]) -> np.ndarray:
    """Each row without its padding; 0 at padding."""
    real = inputs["attention_mask"].astype(bool)
    rows = [output(model, {k: v[i : i + 1, real[i]] for k, v in inputs.items()}) for i in range(len(real))]
    if rows[0].ndim == 2:  # a classifier's
        return np.concatenate(rows)
    out = np.zeros((*real.shape, rows[0].shape[-1]), np.float32)
    out[real] = np.concatenate([row[0] for row in rows])
    return out


def golden(model, left_by_rows: bool = False, positions: bool = False) -> dict[str, np.ndarray]:
    """positions: whether the model takes position_ids, those of real tokens from 0."""
    arrays = {}
    for seed, (name, (lengths, side)) in enumerate(BATCHES.items()):
        inputs = batch(model.config, lengths, side, seed)
        result = by_rows(model, inputs) if left_by_rows and side == "left" else output(model, inputs, positions)
        assert result.dtype == np.float32 and np.isfinite(result).all()
        arrays |= {f"{name}/{k}": v for k, v in {**inputs, "output": result}.items()}
    return arrays


def write(folder: Path, arrays: dict[str, np.ndarray]) -> None:
    np.savez_compressed(folder / "golden.npz", **arrays)
    assert sum(f.stat().st_size for f in folder.iterdir()) < 300_000


def no_trivial_weight(model: torch.nn.Module) -> None:
    for name, p in model.named_parameters():
        assert not p.requires_grad or not ((p == 0) | (p == 1)).any(), name
