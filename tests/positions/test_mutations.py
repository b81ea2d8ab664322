"""The test of the tests: a formula with one planted error must fail the comparison that the real one passes."""

import importlib
import inspect
from types import ModuleType

import pytest

from lpe import registry

from .common import compare

MUTANTS = [
    ("learned", "table.row, lambda", "lambda p, k: table.row(p, k // 2), lambda"),
    ("copy", "% (n - c)", "% n"),
    ("copy", "c + (k - n)", "(k - n)"),
    ("copy", "(k - n) %", "k %"),
    ("copy", "k < n", "k <= n"),
    ("grouped", "k * n // m", "k // (m // n)"),
    ("grouped", "k * n // m", "(k * n + m - 1) // m"),
    ("grouped", "k * n // m", "k * (n - 1) // (m - 1)"),
    ("random", '"random", table.row', '"random", lambda p, k: table.row(p, k + 1)'),
    ("hierarchical", "alpha / (1.0 - alpha)", "alpha"),
    ("hierarchical", "alpha / (1.0 - alpha)", "(1.0 - alpha) / alpha"),
    ("hierarchical", "p_nD[r])", "p_nD[0])"),
    ("hierarchical", "table.row(p_nD, r + block)", "table.row(p_nD, block)"),
    ("hierarchical", "1 + t //", "t //"),
    ("hierarchical", "c + t %", "t %"),
    ("hierarchical", "t // (n - c)", "t // n"),
    ("hierarchical", " - p_nD[r])", ")"),
    (
        "hierarchical_naive",
        "p_nD, k // n) + (1.0 - alpha) * table.row(p_nD, k % n",
        "p_nD, k % n) + (1.0 - alpha) * table.row(p_nD, k // n",
    ),  # fmt: skip
    ("hierarchical_naive", "(1.0 - alpha)", "1.0"),
    ("preserve_short", "-(-m // n)", "m // n"),
    ("preserve_short", "(k % s)", "(k % n)"),
    ("preserve_short", "k // s + 1, n - 1", "k // s + 1, n - 2"),
    ("preserve_short", "tok.length <= n", "tok.length <= 2 * n"),
    ("interpolate", "c + (k - m) % (m - c)", "k % m"),
    ("interpolate", "k < m, k", "k <= m, k"),
    ("interpolate", "n, m, degree, align", "n, length, degree, align"),
    ("interpolate", '"quadratic": 2', '"quadratic": 3'),
    ("splines", "k * (n - 1), max(m - 1, 1)", "k * (n - 1), m"),
    ("splines", "(k * n, m)", "(k * (n - 1), m)"),
    ("splines", "n - 1), np.where(inside", "n - 2), np.where(inside"),
    ("splines", "-0.5 * np.square(offset / sigma)", "-np.square(offset / sigma)"),
    ("splines", "4.0 * sigma", "1.0 * sigma"),
    ("splines", "np.clip(np.arange(m)[:, None] + offset, 0, m - 1)", "((np.arange(m)[:, None] + offset) % m)"),
    ("splines", "m = n - pinned, m - pinned", "m = n - pinned, m - pinned + 0 * pinned - (pinned > 0)"),
    ("splines", "weight / weight.sum()", "weight"),
    ("sinusoidal", "jnp.sin(angle), jnp.cos(angle)", "jnp.cos(angle), jnp.sin(angle)"),
    ("sinusoidal", "np.arange(0, size, 2) / size", "np.arange(0, size, 2) / (size // 2)"),
    ("sinusoidal_ntk", "(size / (size - 2))", "(size / (size // 2 - 2))"),
    ("sinusoidal_ntk", "b * far.factor **", "b *"),
    ("sinusoidal_ntk", "b * far.factor **", "b / far.factor **"),
    ("rope", "on.inv_freq, max", "1 / on.inv_freq, max"),
    ("rope", '"rope", rope_theta', '"rope", 10000.0'),
    ("by_layer", "[layers[i % len(layers)] for", "[layers[-1] for"),
    ("by_layer", "for m in made], q", "for m in made[:1] * 2], q"),
    ("by_layer", 'rope_theta": 160000.0', 'rope_theta": 16000.0'),
    ("rope", "partial_rotary_factor, rotary_value)", "partial_rotary_factor, not rotary_value)"),
    ("rotary", "a * cos - b * sin, b * cos + a * sin", "a * cos + b * sin, b * cos - a * sin"),
    ("rotary", "np.arange(0, d, 2) / d", "np.arange(0, d, 2) / (d // 2)"),
    ("rotary", "np.arange(0, d, 2) / d", "np.arange(1, d + 1, 2) / d"),
    ("rope_linear", "on.inv_freq / far.factor", "on.inv_freq * far.factor"),
    ("rope_linear", "on.inv_freq / far.factor", "on.inv_freq / far.factor / far.factor"),
    ("rope_ntk", "(on.d / (on.d - 2))", "(on.d / (on.d // 2 - 2))"),
    ("rope_ntk", "(on.d / (on.d - 2))", "((on.d - 2) / on.d)"),
    ("rope_ntk", "on.theta * far.factor ** (on.d / (on.d - 2))", "on.theta ** (far.factor * on.d / (on.d - 2))"),
    ("rope_dynamic", "/ (on.d - 2)", "/ (on.d // 2 - 2)"),
    ("rope_dynamic", "- (f - 1.0)", "- f"),
    ("rope_dynamic", "jnp.maximum(length, n)", "length"),
    ("rope_yarn", "0.1 * math.log(s) + 1.0\n    m,", "0.2 * math.log(s) + 1.0\n    m,"),
    ("rope_yarn", "on.inv_freq / far.factor * ramp", "on.inv_freq / far.factor**2 * ramp"),
    ("rope_yarn", "np.arange(on.d // 2) - low", "np.arange(on.d)[::2] - low"),
    ("rope_yarn", "* ramp + on.inv_freq * (1 - ramp)", "* (1 - ramp) + on.inv_freq * ramp"),
    ("rope_yarn", "on.d * math.log", "on.d // 2 * math.log"),
    ("rope_yarn", "(turns * 2 * math.pi)", "(turns * math.pi)"),
    (
        "rope_llama3",
        "(1 - g) * on.inv_freq / far.factor + g * on.inv_freq",
        "g * on.inv_freq / far.factor + (1 - g) * on.inv_freq",
    ),
    ("rope_llama3", "(turns - low)", "(turns - high)"),
    ("rope_llama3", "/ (2 * np.pi)", "/ np.pi"),
    ("rope_longrope", "length > far.original", "length >= far.original"),
    ("rope_longrope", "on.inv_freq / checks", "on.inv_freq * checks"),
    ("rope_longrope", "math.log(far.factor) / math.log(far.original)", "math.log(far.factor)"),
    ("rope_longrope", "math.sqrt(1 +", "(1 +"),
    ("xpos", "turned(q_BTNH, q_tok, 1), turned(k_BSNH, k_tok, -1)", "turned(q_BTNH, q_tok, -1), turned(k_BSNH, k_tok, 1)"),
    ("xpos", "np.arange(0, on.d, 2) / on.d + GAMMA", "np.arange(0, on.d, 2) / (on.d // 2) + GAMMA"),
    ("xpos", "centred / base", "centred"),
    ("t5", "np.minimum(log_bucket, half - 1)", "log_bucket"),
    ("relative", "places >= clip", "places > clip"),
    ("xpos", "turned(k_BSNH, k_tok, -1)", "turned(k_BSNH, k_tok, 0)"),
    ("logn", "/ math.log(n)", ""),
    ("logn", "jnp.maximum(seen, n)", "seen"),
    ("logn", "q_tok.position + 1", "q_tok.position"),
    ("logn", "k_BSNH, v_BSNH\n", "k_BSNH * scale[:, :, None, None], v_BSNH\n"),
    ("shaw", 'params["relative_key"]', 'params["relative_value"]'),
    ("shaw", 'params["relative_value"], q', 'params["relative_key"], q'),
    ("nezha", "10000.0 ** -(np.arange(0, size, 2) / size)", "10000.0 ** -(np.arange(0, size, 2) / (size // 2))"),
    ("nezha", "np.arange(2 * clip + 1)", "np.arange(-clip, clip + 1)"),
    ("nezha", "np.sin(angle), np.cos(angle)", "np.cos(angle), np.sin(angle)"),
    (
        "relative",
        "k_tok.position[:, None, None, :] - q_tok.position[:, None, :, None]",
        "q_tok.position[:, None, :, None] - k_tok.position[:, None, None, :]",
    ),
    ("relative", "jnp.all(other |", "jnp.all(True |"),
    ("relative", "places <= -clip", "places < -clip"),
    ("relative", "(s >= 0) & ", ""),
    ("t5", "distance > 0", "distance < 0"),
    ("t5", "half - exact)).astype", "half)).astype"),
    ("t5", "half // 2", "half"),
    ("alibi", "return -jnp.asarray(slope)", "return jnp.asarray(slope)"),
    ("alibi", "-8.0 * np.arange(1, below + 1) / below", "-4.0 * np.arange(1, below + 1) / below"),
    ("alibi", "np.arange(1, below + 1)", "np.arange(below)"),
    (
        "transformer_xl",
        "c_sin * sin_i + c_cos * cos_i, c_cos * sin_i - c_sin * cos_i",
        "c_cos * cos_i - c_sin * sin_i, c_cos * sin_i + c_sin * cos_i",
    ),
    ("transformer_xl", "* cfg.attention_scale)", ")"),
    ("transformer_xl", 'params["position_bias"] - params["content_bias"]', 'params["content_bias"] - params["position_bias"]'),
    ("transformer_xl", "np.arange(0, d, 2) / d", "np.arange(0, d, 2) / (d // 2)"),
]


def mutated(name: str, old: str, new: str) -> ModuleType:
    source = inspect.getsource(importlib.import_module(f"lpe.positions.{name}"))
    assert source.count(old) == 1, f"{name}: {source.count(old)} × {old!r}"
    module = ModuleType(name)
    exec(compile(source.replace(old, new), f"{name} with {new}", "exec"), module.__dict__)
    return module


def passes(name: str, make) -> bool:
    tests = importlib.import_module(f".test_{name}", __package__)
    try:
        for kw, want in tests.VALUES:
            compare(make, kw, want, reserved=(2,))
    except AssertionError:
        return False
    return True


HELPERS = {  # shared files, and a method that shows their errors
    "splines": "interpolate",
    "rotary": "rope",
    "relative": "shaw",
}


@pytest.mark.parametrize("name, old, new", MUTANTS)
def test_a_planted_error_is_noticed(name, old, new, monkeypatch):
    module = mutated(name, old, new)
    if user := HELPERS.get(name):
        monkeypatch.setattr(importlib.import_module(f"lpe.positions.{user}"), name, module)
        name, module = user, importlib.import_module(f"lpe.positions.{user}")
    assert not passes(name, module.make)


def test_every_method_has_a_planted_error():
    assert {n for n, _, _ in MUTANTS} == {*registry.names("positions"), *HELPERS}
