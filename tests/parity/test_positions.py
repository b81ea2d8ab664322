"""Models and layers of transformers that use a position method, with the same weights in lpe: within 1e-4 as a whole.

Rotary and T5's come from transformers 5, NEZHA, relative_key and Transformer-XL from what version 4 had (make_relative.py).
"""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from transformers import MPNetConfig, MPNetModel, RoFormerConfig, RoFormerModel

import lpe
from lpe.attention import full
from lpe.attention.base import Call
from lpe.linear import Dropout
from lpe.models.bert import BertConfig
from lpe.positions import transformer_xl
from lpe.positions.base import Bound
from lpe.tokens import Tokens
from tests.checkpoint import tiny
from tests.parity import reference

GOLDEN = np.load(Path(__file__).parents[1] / "golden" / "relative.npz")
SIZES = {k: v for k, v in reference.SIZES.items() if k != "num_labels"}


def golden(prefix: str) -> dict[str, np.ndarray]:
    return {k.removeprefix(prefix): GOLDEN[k] for k in GOLDEN.files if k.startswith(prefix)}


def as_bert(state: dict, folder: Path, position, **config) -> lpe.Model:
    """lpe's model of an encoder with a BertModel's tensor names; where it has no position rows, lpe leaves them out."""
    state = {k: torch.as_tensor(x) for k, x in state.items()}
    state.setdefault("embeddings.position_embeddings.weight", torch.zeros(16, SIZES["hidden_size"]))
    rows = len(state["embeddings.position_embeddings.weight"])
    own = {"model_type": "bert", "architectures": ["BertModel"], "max_position_embeddings": rows}
    tiny.write(folder, state, {**own, **SIZES, **config})
    return lpe.from_pretrained(folder, position=position)


def check(got, batch: dict[str, np.ndarray], want: np.ndarray, what: str) -> None:
    found = reference.error(got, want, batch)
    print(f"parity {what}: {found:.1e}")
    assert found < 1e-4


@pytest.mark.parametrize("variant, clip", [("nezha", 4), ("nezha_64", 64)])
def test_nezha(variant, clip, tmp_path):
    model = as_bert(golden("nezha/weights/"), tmp_path, {"name": "nezha", "max_relative_position": clip})
    for case in ("full", "padded"):
        batch = golden(f"{variant}/{case}/")
        check(
            model.encode({k: x for k, x in batch.items() if k != "last_hidden_state"}),
            batch,
            batch["last_hidden_state"],
            variant,
        )


def test_relative_key_is_shaw_without_clipping_and_values(tmp_path):
    state = golden("relative_key/weights/")
    # Its row counts query minus key, Shaw's key minus query; its absolute rows are in the file and not read.
    keys = np.stack([state.pop(f"encoder.layer.{i}.attention.self.distance_embedding.weight")[::-1] for i in range(2)])
    model = as_bert(state, tmp_path, {"name": "shaw", "clip": 19})
    model.params["position"].update(relative_key=jnp.asarray(keys), relative_value=jnp.zeros_like(keys))
    for case in ("full", "padded"):
        batch = golden(f"relative_key/{case}/")
        got = model.encode({k: x for k, x in batch.items() if k != "last_hidden_state"})
        check(got, batch, batch["last_hidden_state"], "relative_key")


@pytest.mark.parametrize("rotary_value", [False, True])
def test_roformer(rotary_value, tmp_path):
    config = RoFormerConfig(**SIZES, embedding_size=24, max_position_embeddings=16, rotary_value=rotary_value)
    theirs = RoFormerModel(config)
    waves = theirs.encoder.embed_positions.weight.detach().clone()
    reference.perturb(theirs).encoder.embed_positions.weight.data = waves  # a table of sines, no weight
    state = {k: x for k, x in theirs.state_dict().items() if "embed_positions" not in k}
    model = as_bert(state, tmp_path, {"name": "rope", "layout": "interleaved", "rotary_value": rotary_value})
    batch = reference.batch(config, [16, 1, 9], "right")
    with torch.no_grad():
        want = theirs(**{k: torch.from_numpy(v) for k, v in batch.items()})[0].numpy()
    check(model.encode(batch), batch, want, f"RoFormer, rotary_value={rotary_value}")


def test_mpnet_is_a_bert_with_learned_rows_and_t5_buckets(tmp_path):
    config = MPNetConfig(**SIZES, max_position_embeddings=42, pad_token_id=1, layer_norm_eps=1e-5)
    theirs = reference.perturb(MPNetModel(config))
    renamed = {"attention.attn.q": "attention.self.query", "attention.attn.k": "attention.self.key"}
    renamed |= {"attention.attn.v": "attention.self.value", "attention.attn.o": "attention.output.dense"}
    renamed |= {"attention.LayerNorm": "attention.output.LayerNorm"}
    state = {"embeddings.token_type_embeddings.weight": torch.zeros(1, 24)}
    for name, x in theirs.state_dict().items():
        for old, new in renamed.items():
            name = name.replace(old, new)
        state[name] = x
    bias = state.pop("encoder.relative_attention_bias.weight")
    own = {"model_type": "roberta", "architectures": ["RobertaModel"], "type_vocab_size": 1, "pad_token_id": 1}
    position = [{"name": "learned"}, {"name": "t5"}]
    model = as_bert(state, tmp_path, position, layer_norm_eps=1e-5, **own)
    model.params["position"]["relative_attention_bias"] = jnp.asarray(bias.numpy())
    batch = reference.batch(model.config, [40, 7, 22], "right")
    batch.pop("token_type_ids")
    with torch.no_grad():
        want = theirs(**{k: torch.from_numpy(v) for k, v in batch.items()})[0].numpy()
    check(model.encode(batch), batch, want, "MPNet")


@pytest.mark.parametrize("case", ["causal", "bidirectional", "memory"])
def test_transformer_xl(case):
    """One attention of transformers' layer, up to its output projection; with memory there are more keys than queries."""
    w, data = golden("transformer_xl/weights/"), golden(f"transformer_xl/{case}/")
    cfg = BertConfig(hidden_size=24, num_attention_heads=4, num_hidden_layers=1, intermediate_size=8, vocab_size=8)
    x = data["hidden_states"]
    y = np.concatenate([data["mems"], x], axis=1) if case == "memory" else x
    heads = lambda z, rows: jnp.asarray((z @ rows.T).reshape(*z.shape[:2], 4, 6))  # noqa: E731
    query, key, value = np.split(w["qkv_net.weight"], 3)
    params = {
        "content_bias": w["r_w_bias"], "position_bias": w["r_r_bias"],
        "relative_projection": w["r_net.weight"].T.reshape(24, 4, 6),
    }  # fmt: skip
    method = transformer_xl.make(cfg)
    bound = Bound(params, method)
    shift = y.shape[1] - x.shape[1]

    def tokens(count: int, first: int) -> Tokens:
        index = jnp.broadcast_to(jnp.arange(count) + first, (len(x), count))
        return Tokens(index, index + shift, jnp.ones_like(index), jnp.full_like(index, y.shape[1]), index < -shift)

    sides = tokens(x.shape[1], 0), tokens(y.shape[1], -shift)
    call = Call(
        x,
        y,
        heads(x, query),
        heads(y, key),
        heads(y, value),
        *sides,
        cfg.attention_scale,
        bound,
        jnp.int32(0),
        Dropout(),
    )
    pattern = full.make(cfg, causal=case != "bidirectional")
    for run in (pattern.reference, pattern.attend):
        found = float(np.abs(np.asarray(run({}, call)).reshape(data["context"].shape) - data["context"]).max())
        print(f"parity Transformer-XL, {case}: {found:.1e}")
        assert found < 1e-5
