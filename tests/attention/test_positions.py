"""Every position hook with every attention pattern: embeddings, rotations, biases, terms that read the query, values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lpe import build, model, registry
from lpe.positions.base import hooks

from .common import CFG, compare, equal, hidden, make, operands, segments, small_blocks, toks

NAMES = registry.names("positions")
REPRESENTATIVES = [
    "learned",  # embed
    "rope",  # rotate
    "by_layer",  # a constant for each layer, which has no gradient
    "alibi",  # a bias only
    "t5",  # a bias with parameters by head
    "shaw",  # reads the query; values
    "nezha",  # the same without parameters
    "transformer_xl",  # reads the query, with parameters by head; rotate
]
PATTERNS = {
    "full": {"name": "full"},
    "chunked": {"name": "chunked", "chunk_size": 8},
    "linear": {"name": "linear"},
    "star": {"name": "star", "global_capacity": 3},
    "window": {
        "name": "window", "attention_window": 6, "dilation": [[1, 1, 2, 2]], "global_tokens": "explicit", "global_capacity": 3,
    },
    "bigbird": {
        "name": "bigbird", "block_size": 2, "num_random_blocks": 2, "global_tokens": "explicit", "global_capacity": 3,
    },
}  # fmt: skip
CAUSAL = {  # of the patterns that have such a form
    "full": {"name": "full", "causal": True},
    "chunked": {"name": "chunked", "chunk_size": 8, "causal": True},
    "linear": {"name": "linear", "causal": True},
    "window": {"name": "window", "attention_window": 9, "dilation": [[1, 2]], "causal": True},
}


def check(position: str, spec: dict) -> None:
    """In the first layer and in the last, each with its own parameters; positions are those of packed documents."""
    pattern, method = make(spec), registry.make("positions", {"name": position}, CFG)
    segment = segments(23)
    ops = operands(pattern, segment.shape, 3, method)
    first, last = compare(pattern, ops, toks(segment, pattern), method)
    if any(s.axes[0] == "layers" for s in method.specs.values()):
        assert np.abs(first - last).max() > 1e-3


def together(position: str, spec: dict) -> bool:
    """Whether the pattern has the hooks that the method needs."""
    return hooks(registry.make("positions", {"name": position}, CFG)) - {"embed"} <= make(spec).hooks


def refused(position: str, spec: dict) -> None:
    with pytest.raises(ValueError, match=f"position '{position}' needs the hook '.*which attention '{spec['name']}' does not"):
        model.initialise(CFG, ()).extend(position={"name": position}, attention=spec)


def test_all_patterns_are_here():
    assert set(CAUSAL) <= set(PATTERNS) == set(registry.names("attention"))
    assert all("causal" in make(spec).claims for spec in CAUSAL.values())
    assert not any(registry.takes("attention", spec, "causal") for name, spec in PATTERNS.items() if name not in CAUSAL)


def test_all_hooks_are_here():
    found = [hooks(registry.make("positions", {"name": name}, CFG)) for name in REPRESENTATIVES]
    assert frozenset.union(*found) == {"embed", "rotate", "logits", "values"}


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_the_fast_path_equals_the_reference(name, pattern, monkeypatch):
    small_blocks(monkeypatch)
    (check if together(name, PATTERNS[pattern]) else refused)(name, PATTERNS[pattern])


@pytest.mark.parametrize("pattern", CAUSAL)
def test_a_causal_only_method(pattern, monkeypatch):
    small_blocks(monkeypatch)
    check("xpos", CAUSAL[pattern])


@pytest.mark.parametrize("pattern", PATTERNS)
def test_pairs_that_do_not_go_together_are_refused_by_name(pattern):
    base = model.initialise(CFG, ())
    with pytest.raises(ValueError, match=f"position 'xpos' is for causal attention only, and attention '{pattern}' as given"):
        base.extend(position={"name": "xpos"}, attention=PATTERNS[pattern])
    with pytest.raises(ValueError, match=f"attention '{pattern}' as given"):
        base.extend(position=[{"name": "learned"}, {"name": "xpos"}], attention=PATTERNS[pattern])
    if pattern in CAUSAL:
        m = base.extend(position={"name": "xpos"}, attention=CAUSAL[pattern])
        assert m.recipe.attention == build.freeze(CAUSAL[pattern])


def test_a_hook_that_a_pattern_lacks_is_refused_by_name():
    base = model.initialise(CFG, ())
    recipe = base.recipe._replace(position=build.positions({"name": "shaw"}), attention=build.freeze(PATTERNS["window"]))
    pattern = make(PATTERNS["window"])._replace(hooks=frozenset({"rotate"}))
    with pytest.raises(
        ValueError, match="position 'shaw' needs the hook 'logits', which attention 'window' does not have; it has"
    ):
        build._check_together(recipe, build.position_method(recipe), pattern)


@pytest.mark.parametrize("name", ["transformer_xl"])
def test_a_whole_model_equals_the_dense_one_in_value_and_gradient(name, monkeypatch):
    """Two layers of other windows, over all parameters; 1e-4 for whole models."""
    small_blocks(monkeypatch)
    spec = {"name": "window", "attention_window": [4, 7], "global_tokens": "cls", "global_capacity": 3}
    m = model.initialise(CFG, ()).extend(position={"name": name}, attention=spec)
    net, segment = build.network(m.recipe), segments(23)[[0, 1, 2, 5]]
    ids = np.random.default_rng(0).integers(1, 20, segment.shape)
    batch = {"input_ids": jnp.asarray(ids), "segment_ids": jnp.asarray(segment)}
    weight = np.random.default_rng(1).normal(size=(*segment.shape, 16)) * (segment > 0)[..., None] / 10

    def loss(weights, fast):
        out = hidden(net, weights, batch, fast)[0] * (segment > 0)[..., None]
        return (out * weight.astype(np.float32)).sum(), out

    got, want = jax.jit(lambda w: [jax.grad(loss, has_aux=True)(w, fast) for fast in (True, False)])(m.params)
    equal(got, want, 1e-4)


@pytest.mark.heavy
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("name", [n for n in NAMES if hooks(registry.make("positions", {"name": n}, CFG)) != {"embed"}])
def test_the_whole_product(name, pattern, monkeypatch):
    """Each method that acts within attention with each pattern; one that is for causal attention with causal forms."""
    small_blocks(monkeypatch)
    causal = "causal_only" in registry.make("positions", {"name": name}, CFG).claims
    spec = CAUSAL.get(pattern) if causal else PATTERNS[pattern]
    if spec is not None:
        (check if together(name, spec) else refused)(name, spec)
