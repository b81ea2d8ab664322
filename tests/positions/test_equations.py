"""equations.py itself against other code: transformers' functions and the outputs that make_relative.py stored."""

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import erf
from transformers import T5Config
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.gpt_neox import modeling_gpt_neox
from transformers.models.llama import modeling_llama
from transformers.models.roformer.modeling_roformer import RoFormerSelfAttention, RoFormerSinusoidalPositionalEmbedding
from transformers.models.t5.modeling_t5 import T5Attention

from . import equations

GOLDEN = np.load(Path(__file__).parents[1] / "golden" / "relative.npz")
POSITIONS = np.array([0, 1, 2, 3, 7, 5, 40, -3, 300])
T, N, H = len(POSITIONS), 4, 6


def qkv(T=T, N=N, H=H):
    return np.random.default_rng(0).standard_normal((3, T, N, H))


def close(found, want, atol):
    np.testing.assert_allclose(found, want, rtol=0, atol=atol)


def under(prefix):
    return {k.removeprefix(prefix + "/"): GOLDEN[k].astype(np.float64) for k in GOLDEN.files if k.startswith(prefix + "/")}


def layer_norm(x, w, name, eps):
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * w[f"{name}.weight"] + w[f"{name}.bias"]


def bert(w, input_ids, token_type_ids, attention):
    """One sequence through a BERT without position rows; attention(layer's name, q, k, v)."""

    def dense(x, name):
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    types = w["embeddings.token_type_embeddings.weight"][token_type_ids]
    x = layer_norm(w["embeddings.word_embeddings.weight"][input_ids] + types, w, "embeddings.LayerNorm", 1e-12)
    for name in ("encoder.layer.0", "encoder.layer.1"):
        q, k, v = (dense(x, f"{name}.attention.self.{p}").reshape(len(x), N, H) for p in ("query", "key", "value"))
        y = attention(f"{name}.attention.self", q, k, v).reshape(x.shape)
        x = layer_norm(x + dense(y, f"{name}.attention.output.dense"), w, f"{name}.attention.output.LayerNorm", 1e-12)
        y = dense(x, f"{name}.intermediate.dense")
        y = dense(y * (1 + erf(y / np.sqrt(2))) / 2, f"{name}.output.dense")
        x = layer_norm(x + y, w, f"{name}.output.LayerNorm", 1e-12)
    return x


def check_bert(weights, batch, attention):
    b = under(batch)
    for row, mask in enumerate(b["attention_mask"].astype(bool)):
        ids, types = (b[k][row, mask].astype(int) for k in ("input_ids", "token_type_ids"))
        close(bert(weights, ids, types, attention), b["last_hidden_state"][row, mask], 1e-5)


@pytest.mark.parametrize("batch", ["full", "padded"])
@pytest.mark.parametrize("model, k", [("nezha", 4), ("nezha_64", 64)])
def test_nezha(model, k, batch):
    check_bert(under("nezha/weights"), f"{model}/{batch}", lambda _, *qkv: equations.nezha(*qkv, np.arange(len(qkv[0])), k))


@pytest.mark.parametrize("batch", ["full", "padded"])
def test_shaw_without_values(batch):
    w = under("relative_key/weights")

    def attention(name, *qkv):
        table = w[f"{name}.distance_embedding.weight"][::-1]
        return equations.shaw(*qkv, np.arange(len(qkv[0])), table, clip=19)

    check_bert(w, f"relative_key/{batch}", attention)


def test_shaw_with_values_is_nezha_given_its_table():
    table = equations.sinusoidal(np.arange(17), H)
    close(equations.shaw(*qkv(), POSITIONS, table, table, 8), equations.nezha(*qkv(), POSITIONS, 8), 0)


@pytest.mark.parametrize("case", ["causal", "memory", "bidirectional"])
def test_transformer_xl(case):
    w, g = under("transformer_xl/weights"), under(f"transformer_xl/{case}")
    D = N * H
    w_r = w["r_net.weight"].T.reshape(D, N, H)
    for row, x in enumerate(g["hidden_states"]):
        seen = np.concatenate([g["mems"][row], x]) if case == "memory" else x
        q, k, v = (seen @ w["qkv_net.weight"].T).reshape(len(seen), 3, N, H).swapaxes(0, 1)
        positions = np.arange(len(seen)) + 3
        out = equations.transformer_xl(q, k, v, positions, w["r_w_bias"], w["r_r_bias"], w_r, case != "bidirectional")
        context = out[-len(x) :].reshape(len(x), D)
        close(context, g["context"][row], 1e-5)
        close(layer_norm(x + context @ w["o_net.weight"].T, w, "layer_norm", 1e-5), g["output"][row], 1e-5)


def torch_BNTH(x_TNH):
    return torch.from_numpy(x_TNH).transpose(0, 1)[None]


def numpy_TNH(x_BNTH):
    return x_BNTH[0].transpose(0, 1).numpy()


def cos_sin(theta, d, repeat):
    angles = torch.from_numpy(POSITIONS[:, None] * theta ** (-np.arange(0, d, 2) / d))
    return repeat(angles).cos()[None], repeat(angles).sin()[None]


@pytest.mark.parametrize("factor", [1.0, 1.2])
@pytest.mark.parametrize("code, d", [(modeling_llama, H), (modeling_gpt_neox, 4)])
def test_rope_half(code, d, factor):
    q, k, v = qkv()
    cos, sin = (factor * x for x in cos_sin(1e3, d, lambda a: torch.cat([a, a], -1)))
    turned = code.apply_rotary_pos_emb(torch_BNTH(q[..., :d]), torch_BNTH(k[..., :d]), cos, sin)
    qr, kr = (np.concatenate([numpy_TNH(t), x[..., d:]], -1) for t, x in zip(turned, (q, k), strict=True))
    found = equations.rope(q, k, v, POSITIONS, 1e3, rotary_dim=d, attention_factor=factor)
    close(found, equations.plain(qr, kr, v), 1e-12)
    inv_freq = 1e3 ** (-np.arange(0, d, 2) / d)
    close(equations.rope(q, k, v, POSITIONS, inv_freq=inv_freq, attention_factor=factor), found, 1e-12)


@pytest.mark.parametrize("rotary_value", [False, True])
def test_rope_interleaved(rotary_value):
    positions = np.arange(T)
    table = RoFormerSinusoidalPositionalEmbedding(T, H).create_weight()[None, None].double()
    turned = RoFormerSelfAttention.apply_rotary_position_embeddings(table, *map(torch_BNTH, qkv()))
    qr, kr, vr = map(numpy_TNH, turned)
    found = equations.rope(*qkv(), positions, layout="interleaved", rotary_value=rotary_value)
    close(found, equations.plain(qr, kr, vr if rotary_value else qkv()[2]), 1e-6)


def test_sinusoidal():
    table = RoFormerSinusoidalPositionalEmbedding(50, 10).create_weight().numpy()
    found = equations.sinusoidal(np.arange(50), 10)
    close(np.concatenate([found[:, 0::2], found[:, 1::2]], 1), table, 1e-6)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_xpos(layout):
    """With all weight on one plane a logit is cos · ζ^(distance / 512): ζ_0 = 2/7, so 150-fold for a key 2,048 to the right."""
    q = np.zeros((2, 1, 8))
    q[..., 0] = 1.0
    v = np.eye(2)[:, None]
    for distance in 1, 30, -2048:
        p = equations.xpos(q, q, v, np.array([70, 70 + distance]), layout=layout, scale=1.0)[1, 0]
        close(np.log(p[0] / p[1]), np.cos(distance) * (2 / 7) ** (distance / 512) - 1, 1e-9)
    close(equations.xpos(*qkv(), POSITIONS + 99, layout=layout), equations.xpos(*qkv(), POSITIONS, layout=layout), 1e-12)
    close(
        equations.xpos(*qkv(), POSITIONS, layout=layout, scale_base=1e9),
        equations.rope(*qkv(), POSITIONS, layout=layout, causal=True),
        1e-5,
    )


def test_logn():
    q, k, v = qkv()
    close(equations.logn(q, k, v, POSITIONS, 16, 256), equations.plain(2 * q, k, v), 1e-12)
    close(equations.logn(q, k, v, POSITIONS, 16, 9), equations.plain(q, k, v), 0)
    scaled = q * np.array([1, 1, 1, 1, 1, 1, np.log(41) / np.log(16), 1, np.log(301) / np.log(16)])[:, None, None]
    close(equations.logn(q, k, v, POSITIONS, 16, causal=True), equations.plain(scaled, k, v, causal=True), 1e-12)


@pytest.mark.parametrize("buckets, distance", [(32, 128), (32, 256), (64, 128), (16, 100), (8, 20)])
def test_t5_buckets(buckets, distance):
    relative = np.arange(-1000, 1001)
    want = T5Attention._relative_position_bucket(torch.from_numpy(relative), True, buckets, distance)
    np.testing.assert_array_equal([equations.t5_bucket(int(r), buckets, distance) for r in relative], want)


def test_t5():
    config = T5Config(d_model=N * H, num_heads=N, d_kv=H, dropout_rate=0.0)
    torch.manual_seed(0)
    layer, x = T5Attention(config, has_relative_attention_bias=True).double().eval(), torch.randn(1, 60, N * H).double()
    layer.relative_attention_bias.weight.data.normal_()
    with torch.no_grad():
        want = layer(x)[0][0].numpy()
        q, k, v = (f(x)[0].reshape(-1, N, H).numpy() for f in (layer.q, layer.k, layer.v))
        table, o = layer.relative_attention_bias.weight.numpy(), layer.o.weight.numpy()
    found = equations.t5(q, k, v, np.arange(60) - 7, table, scale=1.0)
    close(found.reshape(60, -1) @ o.T, want, 1e-5)


@pytest.mark.parametrize("heads", [1, 6, 8, 12])
def test_alibi(heads):
    """Causally, slope · j and −slope · |i − j| differ by a constant of the row."""
    q, k, v = qkv(N=heads)
    bias = build_alibi_tensor(torch.ones(1, T), heads, torch.float32).numpy()
    close(bias[:, 0, 1], equations.alibi_slopes(heads), 1e-7)
    want = equations.attend(equations.dots(q, k) / np.sqrt(H) + bias, v, causal=True)
    close(equations.alibi(q, k, v, np.arange(T), causal=True), want, 1e-6)


def test_alibi_sees_both_sides_alike():
    q, k, v = qkv()
    close(equations.alibi(q, k, v, POSITIONS), equations.alibi(q, k, v, -POSITIONS), 0)


def test_plain():
    q, k, v = qkv()
    for causal in False, True:
        want = torch.nn.functional.scaled_dot_product_attention(*map(torch_BNTH, (q, k, v)), is_causal=causal)
        close(equations.plain(q, k, v, causal=causal), numpy_TNH(want), 1e-12)
