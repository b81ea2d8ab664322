"""Writes tests/golden/relative.npz: tiny models with relative positions, inputs and outputs, by transformers' own classes.

NEZHA and Transformer-XL left transformers with version 5, relative_key too, hence an environment of its own:

    python -m venv ~/.cache/lpe/venv-tf4
    ~/.cache/lpe/venv-tf4/bin/pip install transformers==4.57.6 torch
    ~/.cache/lpe/venv-tf4/bin/python tests/golden/make_relative.py

Every weight and bias is perturbed, so that none is 0 or 1 and no confusion of two of them goes unseen. All float32.

nezha (max_relative_position 4), nezha_64 (64, nezha's weights) and relative_key: nezha/weights/NAME, relative_key/weights/NAME
and, under MODEL/full and MODEL/padded (on the right) input_ids, token_type_ids, attention_mask, last_hidden_state.

transformer_xl: one attention layer, post-norm, on [B, T, D]. transformer_xl/weights/NAME: r_w_bias is the paper's u,
r_r_bias its v. Under transformer_xl/causal, memory, bidirectional: hidden_states, distances and their sinusoids r, output and
context (what goes into o_net); mems [B, M, D] in memory.
"""

from pathlib import Path

import numpy as np
import torch
from transformers import BertConfig, BertModel
from transformers.models.deprecated.nezha import NezhaConfig, NezhaModel
from transformers.models.deprecated.transfo_xl.modeling_transfo_xl import PositionalEmbedding, RelPartialLearnableMultiHeadAttn

FILE = Path(__file__).parent / "relative.npz"
SIZES = dict(vocab_size=47, hidden_size=24, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40)
B, T, M, D, N, H = 2, 12, 5, 24, 4, 6


def perturb(module: torch.nn.Module, seed: int) -> torch.nn.Module:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in module.parameters():
            p.add_(0.2 * torch.randn(p.shape, generator=generator))
    return module.eval()


def weights(module: torch.nn.Module, name: str) -> dict[str, np.ndarray]:
    return {f"{name}/weights/{k}": v.numpy() for k, v in module.state_dict().items()}


def run(model, name: str, lengths: list[int], seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    mask = (np.arange(max(lengths)) < np.array(lengths)[:, None]).astype(np.int64)
    ids = np.where(mask, rng.integers(5, model.config.vocab_size, mask.shape), model.config.pad_token_id)
    batch = {"input_ids": ids, "token_type_ids": rng.integers(0, 2, mask.shape), "attention_mask": mask}
    output = model(**{k: torch.from_numpy(v) for k, v in batch.items()}).last_hidden_state.numpy()
    return {f"{name}/{k}": v for k, v in batch.items()} | {f"{name}/last_hidden_state": output}


def nezha() -> dict[str, np.ndarray]:
    """Row r of its table is the sinusoid of r = clip(j − i) + max_relative_position; it is a buffer, no weight."""
    model = perturb(NezhaModel(NezhaConfig(**SIZES, max_relative_position=4, max_position_embeddings=20)), 0)
    long = NezhaModel(NezhaConfig(**SIZES, max_relative_position=64, max_position_embeddings=90)).eval()
    long.load_state_dict(model.state_dict())
    return (
        weights(model, "nezha")
        | run(model, "nezha/full", [20, 20], 1)
        | run(model, "nezha/padded", [20, 13], 2)
        | run(long, "nezha_64/full", [90], 3)
        | run(long, "nezha_64/padded", [90, 71], 4)
    )


def relative_key() -> dict[str, np.ndarray]:
    """Shaw's key term, one table per layer, no values. Row query − key + 19: Shaw's order is key − query, this one reversed.

    BertEmbeddings adds `position_embeddings` only if position_embedding_type is "absolute": the weight is stored, but not read
    (NaN below shows it).
    """
    config = BertConfig(**SIZES, max_position_embeddings=20, position_embedding_type="relative_key")
    model = perturb(BertModel._from_config(config, attn_implementation="eager"), 5)
    out = {k: v.copy() for k, v in weights(model, "relative_key").items()}
    model.embeddings.position_embeddings.weight.fill_(torch.nan)
    return out | run(model, "relative_key/full", [20, 20], 6) | run(model, "relative_key/padded", [20, 13], 7)


class Attention:
    """transformers' layer on [B, T, D]; keeps what goes into o_net."""

    def __init__(self, seed: int):
        self.layer = RelPartialLearnableMultiHeadAttn(N, D, H, dropout=0.0)
        torch.nn.init.zeros_(self.layer.r_w_bias), torch.nn.init.zeros_(self.layer.r_r_bias)
        perturb(self.layer, seed)
        self.layer.o_net.register_forward_hook(lambda module, inputs, output: setattr(self, "context", inputs[0]))

    def __call__(self, x, distances, hidden, mems=None):
        """hidden [T, S]: True = may not be seen. distances [S]: the last query's to each key."""
        r = PositionalEmbedding(D)(torch.tensor(distances, dtype=torch.float32))
        mems = None if mems is None else mems.transpose(0, 1)
        (output,) = self.layer(x.transpose(0, 1), r, attn_mask=hidden[:, :, None], mems=mems)
        return output.transpose(0, 1), self.context.transpose(0, 1), r[:, 0]


def transformer_xl() -> dict[str, np.ndarray]:
    attention, generator = Attention(8), torch.Generator().manual_seed(9)
    x, mems = torch.randn(B, T, D, generator=generator), torch.randn(B, M, D, generator=generator)
    out = weights(attention.layer, "transformer_xl")

    def put(name, distances, output, context, r, **more):
        arrays = dict(hidden_states=x, distances=torch.tensor(distances), output=output, context=context, r=r, **more)
        out.update({f"transformer_xl/{name}/{k}": v.numpy() for k, v in arrays.items()})

    for name, memory in ("causal", None), ("memory", mems):
        keys = T + (0 if memory is None else M)
        distances = list(range(keys - 1, -1, -1))
        future = torch.triu(torch.ones(T, keys), 1 + keys - T)
        put(name, distances, *attention(x, distances, future, memory), **({} if memory is None else {"mems": memory}))

    # The layer's shift is wrong for keys after the query. One query at a time needs no shift: the whole sequence as its memory,
    # itself hidden from among the keys (it is in the memory already), signed distances.
    rows = []
    for i in range(T):
        distances = [i - j for j in range(T)] + [0]
        rows.append(attention(x[:, i : i + 1], distances, torch.tensor([[0.0] * T + [1.0]]), x)[:2])
    output, context = (torch.cat(each, 1) for each in zip(*rows, strict=True))
    distances = list(range(T - 1, -T, -1))
    put("bidirectional", distances, output, context, PositionalEmbedding(D)(torch.tensor(distances, dtype=torch.float32))[:, 0])
    return out


if __name__ == "__main__":
    torch.manual_seed(0)
    with torch.no_grad():
        np.savez_compressed(FILE, **nezha(), **relative_key(), **transformer_xl())
