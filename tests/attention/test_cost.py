"""What linear attention costs at T, 2T and 4T: memory as XLA plans it, products counted in the program, no T × T anywhere."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lpe import build, model
from lpe.costs import flops
from lpe.models.bert import BertConfig
from tests.positions.test_contract import sizes

from .common import D, H, N, make, operands, run, toks

LENGTHS = (4096, 8192, 16384)  # at shorter ones what XLA keeps for small arrays counts
SHORT = (1024, 2048, 4096)
LINEAR = {
    "window": {"name": "window", "attention_window": 64, "global_tokens": "cls"},
    "dilated": {"name": "window", "attention_window": [32, 64], "dilation": [1, [1, 2]]},
    "chunked": {"name": "chunked", "chunk_size": 128},
    "bigbird": {"name": "bigbird", "block_size": 16, "global_tokens": "cls"},
    "bigbird of transformers": {"name": "bigbird", "block_size": 16, "hf_compat": True},
    "linear": {"name": "linear"},
    "linear, causal": {"name": "linear", "causal": True},
    "star": {"name": "star"},
}
# Where blocks do not come one after another: numbers in memory for each token and head; of the largest array for each token.
# Linear attention makes the scores of all chunks at once, 128 for each token and head: three such arrays live at a time. The
# largest array of a star is one like q; of such there are k and v of two neighbours, what is made of them, and all gradients.
AT_ONCE = {
    "linear": (3 * 128 + 8 * H, N * 128),
    "linear, causal": (3 * 128 + 8 * H, N * 128),
    "star": (12 * H, N * H),
}


def programs(spec: dict, length: int):
    """(name, function, arguments) of the forward and of the backward pass of one attention, nothing of which is run."""
    pattern, shape = make(spec), (1, length)
    tok = toks(np.ones(shape, int), pattern, np.eye(1, length, dtype=int))
    args = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), (operands(pattern, shape), tok, jnp.int32(0)))

    def forward(ops, tok, layer):
        return run(pattern.attend, ops, tok, layer)

    def backward(ops, tok, layer):
        return jax.grad(lambda ops: forward(ops, tok, layer).sum())(ops)

    return [("forward", forward, args), ("backward", backward, args)]


def measured(spec: dict) -> dict[str, np.ndarray]:
    """For each pass, at each length: products, bytes of temporary memory, elements of the largest array."""
    found = {"forward": [], "backward": []}
    for length in LENGTHS:
        for name, f, args in programs(spec, length):
            jaxpr = jax.make_jaxpr(f)(*args).jaxpr
            memory = jax.jit(f).lower(*args).compile().memory_analysis().temp_size_in_bytes
            found[name].append([flops(jaxpr), memory, max(sizes(jaxpr))])
    print("\n", spec, found)
    return {name: np.asarray(rows, np.float64) for name, rows in found.items()}


@pytest.mark.parametrize("which", LINEAR)
def test_work_and_memory_grow_with_the_length(which):
    """Forward a pair takes two products of 2·H, backward six more, and two to make it anew."""
    width = 256  # keys that a block meets, at most
    for name, rows in measured(LINEAR[which]).items():
        assert (rows[1:] / rows[:-1]).max() <= 2.05
        for length, (products, memory, largest) in zip(LENGTHS, rows, strict=True):
            pairs, passes = N * length * width, 1 if name == "forward" else 5
            assert products <= passes * 4 * H * pairs
            numbers, at_once = AT_ONCE.get(which, (width, max(N * 128 * width / length, 2 * D)))
            assert memory <= 4 * N * length * numbers
            assert largest <= at_once * length < length * length


def test_full_attention_grows_with_the_square():
    """So that the test above can fail."""
    for rows in measured({"name": "full"}).values():
        assert (rows[1:] / rows[:-1]).min() > 3.9
        assert rows[-1][2] == N * LENGTHS[-1] ** 2


def test_xla_counts_a_loop_once():
    """Why products are counted in the program; where this fails, XLA's count may be used."""
    step = jnp.ones((16, 16))

    def loop(x, count: int):
        return jax.lax.scan(lambda c, _: (c @ step, None), x, length=count)[0]

    one, many = (jax.jit(loop, static_argnums=1).lower(step, n).compile().cost_analysis()["flops"] for n in (10, 1000))
    assert many < 2 * one
    assert flops(jax.make_jaxpr(lambda x: loop(x, 1000))(step).jaxpr) == 1000 * 2 * 16**3


def test_memory_of_a_whole_model_grows_with_the_length():
    """Two layers with their embeddings, feed-forward parts and global tokens; nothing of T × T is in them."""
    cfg = BertConfig(vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
    m = model.initialise(cfg, ()).extend(attention=LINEAR["window"])
    net, found = build.network(m.recipe), {}
    for length in (LENGTHS[0], LENGTHS[-1]):
        batch = {"input_ids": jnp.ones((1, length), jnp.int32)}
        forward = lambda w, batch=batch: net.encode(w, batch)[0].sum()  # noqa: E731
        for name, f in (("forward", forward), ("backward", jax.grad(forward))):
            assert max(sizes(jax.make_jaxpr(f)(m.params).jaxpr)) < length * length / 16
            memory = jax.jit(f).lower(m.params).compile().memory_analysis().temp_size_in_bytes
            found.setdefault(name, []).append(memory)
    print(found)
    assert all(long <= 1.02 * short * LENGTHS[-1] / LENGTHS[0] for short, long in found.values())
