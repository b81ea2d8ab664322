"""Writes tests/golden/rope.npz: inverse frequencies and attention factors, by transformers 5.24 (torch 2.13, CPU, float32).

    python tests/golden/make_rope.py

`cases` is JSON, a list of {"name", "kw", "head_dim", "n", "length"}: lpe's method and options, the head size, the trained and
the sequence's length. Case i has float32 inv_freq_i [rotary_dim / 2] and attention_factor_i. Each comes from a fresh rotary
module, run once on positions 0 … length − 1: transformers' own modules keep state from one call to the next.
"""

import json
from pathlib import Path

import numpy as np
import torch
from transformers import GlmConfig, LlamaConfig
from transformers.models.glm.modeling_glm import GlmRotaryEmbedding
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

FILE = Path(__file__).parent / "rope.npz"
THETA = 1e4
SHORT, LONG = [1 + 0.02 * k for k in range(16)], [1 + 0.4 * k**1.3 for k in range(16)]
SHORT32, LONG32 = [1 + 0.01 * k for k in range(32)], [1.05 ** (k + 1) for k in range(32)]


def case(name: str, n: int, length: int, head_dim: int = 64, **kw) -> dict:
    return {"name": name, "kw": {"rope_theta": THETA, **kw}, "head_dim": head_dim, "n": n, "length": length}


def yarn(n: int, factor: float, **kw) -> dict:
    return case("rope_yarn", n, int(n * factor), factor=factor, **kw)


def llama3(n: int, factor: float, low: float, high: float, **kw) -> dict:
    return case("rope_llama3", n, int(n * factor), factor=factor, low_freq_factor=low, high_freq_factor=high, **kw)


def longrope(n: int, length: int, **kw) -> dict:
    return case("rope_longrope", n, length, **{"head_dim": 32, "short_factor": SHORT, "long_factor": LONG, **kw})


# METHODS.md §2: case, pairs, their inverse frequencies, attention factor
PAIRS = [0, 8, 16, 31]
PRINTED = [
    (case("rope_linear", 512, 4096, factor=8.0), PAIRS, [0.125, 0.0125, 0.00125, 1.6669e-05], 1),
    (case("rope_ntk", 512, 4096, factor=8.0), PAIRS, [1, 0.0584715, 0.00341892, 1.6669e-05], 1),
    (case("rope_dynamic", 512, 1024, factor=2.0), PAIRS, [1, 0.0753133, 0.0056721, 4.44507e-05], 1),
    (yarn(512, 8.0), PAIRS, [1, 0.0663462, 0.00125, 1.6669e-05], 1.207944),
    (yarn(2048, 4.0, rope_theta=1e3), PAIRS, [1, 0.177828, 0.023252, 3.10234e-04], 1.138629),
    (yarn(8192, 4.0, rope_theta=1.6e5), PAIRS, [1, 0.05, 0.00130682, 2.27221e-06], 1.138629),
    (yarn(1536, 4.0), PAIRS, [1, 0.0942308, 0.00480769, 3.3338e-05], 1.138629),
    (llama3(512, 8.0, 1.0, 4.0), [0, 8, 12, 16, 20, 31], [1, 0.1, 0.0184967, 0.00125, 0.000395285, 1.6669e-05], 1),
]
PRINTED_THETA = {"rope_ntk": 85550.3759, "rope_dynamic": 31082.2367}
CASES = [
    *(printed[0] for printed in PRINTED),
    case("rope", 512, 512),
    case("rope", 512, 512, 32),
    case("rope", 512, 512, 80, rope_theta=1.6e5),
    case("rope", 512, 512, partial_rotary_factor=0.5),
    case("rope", 512, 512, 80, partial_rotary_factor=0.5, rope_theta=1e3),
    case("rope", 512, 512, 32, partial_rotary_factor=0.25, rope_theta=5e5),
    case("rope_linear", 512, 1280, 80, factor=2.5),
    case("rope_linear", 512, 512, 32, factor=1.0, rope_theta=1.6e5),
    case("rope_ntk", 512, 1280, 80, factor=2.5),
    case("rope_ntk", 2048, 8192, 32, factor=4.0, rope_theta=1e3),
    case("rope_ntk", 512, 512, factor=1.0),
    *(
        case("rope_dynamic", 512, t, factor=f)
        for f in (1.0, 2.0, 4.0)
        for t in (511, 512, 513, 1024, 2560)
        if (f, t) != (2, 1024)
    ),
    case("rope_dynamic", 512, 2560, 80, factor=2.0, rope_theta=1.6e5),
    case("rope_dynamic", 512, 1300, 32, factor=1.5, rope_theta=1e3),
    yarn(512, 4.0, head_dim=32),
    yarn(512, 4.0, head_dim=80, rope_theta=1.6e5),
    yarn(512, 1.0),
    yarn(512, 8.0, original_max_position_embeddings=512),
    yarn(512, 8.0, partial_rotary_factor=0.5),
    yarn(2048, 4.0, head_dim=80, partial_rotary_factor=0.5, rope_theta=1e3),
    yarn(512, 8.0, mscale=0.707, mscale_all_dim=1.2),
    yarn(512, 8.0, mscale=0.707, mscale_all_dim=0.707),
    yarn(512, 8.0, mscale=0.707),  # one alone is ignored
    yarn(512, 8.0, mscale_all_dim=0.707),
    yarn(512, 8.0, attention_factor=1.3),
    yarn(512, 8.0, attention_factor=1.0, mscale=0.707, mscale_all_dim=1.2),
    yarn(512, 8.0, truncate=False),
    yarn(2048, 4.0, head_dim=80, truncate=False, rope_theta=1.6e5),
    yarn(512, 8.0, beta_fast=16.0, beta_slow=2.0),
    yarn(512, 8.0, beta_fast=100.0, beta_slow=82.0),  # both ends are 0: the ramp is a step
    yarn(65536, 4.0, head_dim=32, rope_theta=100.0, beta_fast=1024.0),  # upper end clamped to head_dim − 1
    llama3(512, 4.0, 1.0, 8.0),
    llama3(512, 8.0, 2.0, 3.0, head_dim=32),
    llama3(8192, 32.0, 1.0, 4.0, head_dim=80, rope_theta=5e5),
    llama3(2048, 8.0, 0.5, 16.0, rope_theta=1.6e5),
    *(longrope(512, t, factor=4.0) for t in (511, 512, 513)),
    longrope(512, 2048, factor=4.0, attention_factor=1.19),
    longrope(512, 100, factor=4.0, attention_factor=1.19),
    longrope(512, 512, factor=1.0),
    longrope(2048, 8192, head_dim=64, short_factor=SHORT32, long_factor=LONG32, factor=16.0, rope_theta=1.6e5),
]


def rotary(case: dict) -> tuple[np.ndarray, np.float32]:
    name, n, length = "default" if case["name"] == "rope" else case["name"].removeprefix("rope_"), case["n"], case["length"]
    kw = {k: v for k, v in case["kw"].items() if k != "original_max_position_embeddings"}
    if name == "ntk":
        # transformers has no static ntk. Its dynamic base is b·(f·L'/L − (f − 1))^(d/(d−2)): b·s^(d/(d−2)) at f = 1, L' = s·L.
        name, length, kw["factor"] = "dynamic", round(n * kw["factor"]), 1.0
    rows = n if name in ("default", "linear", "dynamic") else max(n, int(n * kw["factor"]))
    if name in ("yarn", "llama3", "longrope"):
        kw["original_max_position_embeddings"] = n
    config, module = (GlmConfig, GlmRotaryEmbedding) if name == "default" else (LlamaConfig, LlamaRotaryEmbedding)
    kw.setdefault("partial_rotary_factor", 1.0)
    cfg = config(head_dim=case["head_dim"], max_position_embeddings=rows, rope_parameters={"rope_type": name, **kw})
    embedding = module(cfg)
    embedding(torch.zeros(1), torch.arange(length)[None])
    assert embedding.rope_type == name and cfg.rope_parameters["rope_theta"] == kw["rope_theta"]
    return embedding.inv_freq.numpy(), np.float32(embedding.attention_scaling)


def check() -> None:
    """The numbers that METHODS.md prints come out, to the digits printed."""
    for each, pairs, want, factor in PRINTED:
        inv_freq, attention_factor = rotary(each)
        np.testing.assert_allclose(inv_freq[pairs], want, rtol=1e-5, err_msg=str(each))
        np.testing.assert_allclose(attention_factor, factor, rtol=5e-7)
        if each["name"] in PRINTED_THETA:
            found = np.float64(inv_freq[-1]) ** (-each["head_dim"] / (each["head_dim"] - 2))
            np.testing.assert_allclose(found, PRINTED_THETA[each["name"]], rtol=1e-6)


if __name__ == "__main__":
    check()
    arrays = {}
    for i, each in enumerate(CASES):
        arrays[f"inv_freq_{i}"], arrays[f"attention_factor_{i}"] = rotary(each)
    np.savez_compressed(FILE, cases=np.array(json.dumps(CASES)), **arrays)
