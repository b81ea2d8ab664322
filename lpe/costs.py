"""What a model costs at a length: parameters, memory as the compiler plans it, products, and time at this machine's rate.

Nothing is loaded and nothing of the model is run, except where `speed` times a small forward pass with random weights.
"""

import math
import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from lpe import build, params

PASSES = ("forward", "train")
ROUNDS = 10
SIDE = 1024  # of the square matrices whose product gives the machine's rate
TIMED = 1024  # tokens of the timed pass, at most: a trained length of 8,192 would take minutes


class Cost(NamedTuple):
    """Of one pass over one input. parameters: of the encoder; memory: bytes; flops: of matrix products; compiled: seconds."""

    parameters: int
    memory: int
    flops: int
    compiled: float


def flops(jaxpr) -> int:
    """Of all matrix products; the body of a loop as often as it runs, of branches the dearest.

    XLA's own count takes the body of a loop once (tests/attention/test_cost.py), so it says nothing here.

    Raises:
      ValueError: a loop whose number of rounds the program does not say.
    """
    total = 0
    for e in jaxpr.eqns:
        if e.primitive.name == "dot_general":
            (contracted, _), _ = e.params["dimension_numbers"]
            shape = e.invars[0].aval.shape
            total += 2 * e.outvars[0].aval.size * math.prod(shape[i] for i in contracted)
        if e.primitive.name == "while":
            raise ValueError("the program has a while loop, and does not say how often it runs: its products cannot be counted")
        inner = [flops(j) for j in _inside(e)]
        total += e.params.get("length", 1) * (max(inner, default=0) if e.primitive.name == "cond" else sum(inner))
    return total


def arrays(jaxpr) -> int:
    """Bytes of all arrays that a program makes, those of a loop's body once: more than it ever holds together."""
    made = sum(math.prod(v.aval.shape) * v.aval.dtype.itemsize for e in jaxpr.eqns for v in e.outvars)
    return made + sum(arrays(j) for e in jaxpr.eqns for j in _inside(e))


def _inside(e) -> list:
    found = []
    for p in jax.tree.leaves(list(e.params.values()), is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")):
        inner = getattr(p, "jaxpr", p)
        if hasattr(inner, "eqns"):
            found.append(inner)
    return found


def weights(net: build.Network) -> dict:
    """The parameters' shapes, as a tree of jax.ShapeDtypeStruct: nothing is allocated."""
    return params.nest({path: jax.ShapeDtypeStruct(s.shape, jnp.float32) for path, s in net.specs.items()})


def _program(net: build.Network, what: str) -> Callable[[dict, dict[str, Array]], Array]:
    """The last hidden states of a batch; for "train", the gradient of their mean square to every parameter."""

    def forward(w: dict, batch: dict[str, Array]) -> Array:
        return net.encode(w, batch)[0]

    def train(w: dict, batch: dict[str, Array]) -> dict:
        return jax.grad(lambda w: jnp.square(forward(w, batch).astype(jnp.float32)).mean())(w)

    if what not in PASSES:
        raise ValueError(f"costs: pass {what!r}, allowed are {', '.join(PASSES)}")
    return {"forward": forward, "train": train}[what]


def inputs(length: int) -> dict[str, jax.ShapeDtypeStruct]:
    """A batch of one text as tokenizers make it; a model without a mask would be compiled to less."""
    return {name: jax.ShapeDtypeStruct((1, length), jnp.int32) for name in ("input_ids", "attention_mask")}


def of(recipe: build.Recipe, length: int, what: str = "forward") -> Cost:
    """Compiles one pass at batch 1, without running it.

    Args:
      what: forward, or train: forward and backward, without an optimiser and its state.

    Raises:
      ValueError: as build.network, or an input that the positions do not reach.
    """
    net, start = build.network(recipe), time.perf_counter()
    traced = jax.jit(_program(net, what)).trace(weights(net), inputs(length))
    memory = traced.lower().compile().memory_analysis()
    if memory is None:
        raise ValueError(f"the compiler for {jax.default_backend()} does not say how much memory a program takes")
    total = memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes
    return Cost(params.count(weights(net)), int(total), flops(traced.jaxpr.jaxpr), time.perf_counter() - start)


class Speed(NamedTuple):
    """Of this machine and of one model on it.

    rate: FLOPs a second of a large matrix product. share: of it that the model's forward pass reaches, which has `flops` in
    matrix products and takes `seconds` for an input of `length` tokens.
    """

    rate: float
    share: float
    length: int
    seconds: float
    flops: int


def speed(recipe: build.Recipe, length: int) -> Speed:
    """Times a large product and the model as it is, with random weights, in turn; of each the fastest of a few rounds.

    Args:
      length: tokens of the input; TIMED at most.
    """
    net, length = build.network(recipe), min(length, TIMED)
    drawn = params.init(net.specs, jax.random.key(0))
    batch = {name: jnp.ones(x.shape, x.dtype) for name, x in inputs(length).items()}
    program, product = jax.jit(_program(net, "forward")), jax.jit(jnp.matmul)
    products = flops(program.trace(weights(net), inputs(length)).jaxpr.jaxpr)
    x = jnp.ones((SIDE, SIDE), build.DTYPES[recipe.dtype])
    times = [(_seconds(product, x, x), _seconds(program, drawn, batch)) for _ in range(ROUNDS + 1)][1:]  # the first compiles
    square, seconds = (min(column) for column in zip(*times, strict=True))
    rate = 2 * SIDE**3 / square
    return Speed(rate, products / seconds / rate, length, seconds, products)


def _seconds(run: Callable, *args) -> float:
    start = time.perf_counter()
    jax.block_until_ready(run(*args))
    return time.perf_counter() - start
