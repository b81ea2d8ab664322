"""The interface of a position method: pure hooks with neutral defaults (DESIGN.md), and how several are composed."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jax import Array

from lpe import params as parameters
from lpe.params import Spec
from lpe.tokens import Tokens


def _adopt(source: dict[str, Array], key: Array) -> dict[str, Array]:
    return {}


def _embed(params: dict, x_BTD: Array, tok: Tokens) -> Array:
    return x_BTD


def _rotate(params: dict, q_BTNH: Array, k_BSNH: Array, v_BSNH: Array, q_tok: Tokens, k_tok: Tokens):
    return q_BTNH, k_BSNH, v_BSNH


def _logits(params: dict, q_BTNH: Array, q_tok: Tokens, k_tok: Tokens, heads: slice) -> Array | None:
    return None


def _values(params: dict, weights_BNTS: Array, q_tok: Tokens, k_tok: Tokens, heads: slice) -> Array | None:
    return None


class PositionMethod(NamedTuple):
    """How a model tells places apart. Hooks read Tokens, never arange; a neutral hook changes nothing.

    specs: parameters of the method.
    adopt: (source, key) -> params: keep, resize or drop the rows loaded from a checkpoint.
    embed: adds to the input embeddings.
    rotate: rotates or scales queries, keys, values.
    logits: f32[B|1, N, T, S] added to the attention logits, for the blocks that a pattern keeps; q comes rotated and scaled.
    values: [B, T, N, H] added to the attention output; linear in the weights.
    by_layer: constants with a leading axis of layers; a layer's hooks find theirs among the parameters, untrained.
    rows: i32[rows of the parameter table], the source row of each, -1 = new.
    max_length: number of positions, None = no limit.
    claims: properties that the contract test checks: relative (all positions may move alike), direction_blind (they may be
      counted from the other end), identity_on_trained, causal_only, length_dependent (what a position means depends on the
      length of its sequence), query_scale (queries are multiplied by numbers, and nothing tells places apart), reads_query
      (logits depend on the query).
    """

    specs: dict[str, Spec]
    adopt: Callable = _adopt
    embed: Callable = _embed
    rotate: Callable = _rotate
    logits: Callable = _logits
    values: Callable = _values
    by_layer: dict[str, np.ndarray] = {}
    rows: np.ndarray | None = None
    max_length: int | None = None
    claims: frozenset[str] = frozenset()


HOOKS = {"embed": _embed, "rotate": _rotate, "logits": _logits, "values": _values}


def hooks(method: PositionMethod) -> frozenset[str]:
    """The hooks that do something."""
    return frozenset(name for name, neutral in HOOKS.items() if getattr(method, name) is not neutral)


def keep_or_init(method: str, specs: dict[str, Spec]) -> Callable:
    """An `adopt` for parameters that no extension changes: those of the source, else fresh ones.

    Raises:
      ValueError: the source has one of another shape.
    """

    def adopt(source: dict[str, Array], key: Array) -> dict[str, Array]:
        for name in sorted(specs.keys() & source.keys()):
            if (there := tuple(source[name].shape)) != specs[name].shape:
                raise ValueError(
                    f"positions.{method}: the model's {name} has shape {there}, these options need {specs[name].shape}; "
                    "give the options that it was made with"
                )
        fresh = parameters.init({n: s for n, s in specs.items() if n not in source}, key)
        return fresh | {n: source[n] for n in specs if n in source}

    return adopt


def compose(named: Sequence[tuple[str, PositionMethod]]) -> PositionMethod:
    """One method that does what several do, in any order: query scalings always come first.

    Args:
      named: (name, method) each, at least one; the parameters of all lie side by side.

    Raises:
      ValueError: one given twice; two that embed, two that rotate, or two with a parameter of the same name.
    """
    if len(named) == 1:
        return named[0][1]
    for i, (name, method) in enumerate(named):
        for other, earlier in named[:i]:
            _check_pair(other, earlier, name, method)
    methods = [m for _, m in sorted(named, key=lambda nm: "query_scale" not in nm[1].claims)]
    joined = {hook: _joined(hook, [getattr(m, hook) for m in methods if hook in hooks(m)]) for hook in HOOKS}
    limits = [m.max_length for m in methods if m.max_length is not None]
    all_of = frozenset.intersection(*(m.claims for m in methods)) - {"identity_on_trained"}
    any_of = frozenset.union(*(m.claims for m in methods)) & {"causal_only", "length_dependent", "reads_query"}

    def adopt(source: dict[str, Array], key: Array) -> dict[str, Array]:
        return {name: x for m in methods for name, x in m.adopt(source, key).items()}

    return PositionMethod(
        {name: spec for m in methods for name, spec in m.specs.items()}, adopt, **joined,
        by_layer={name: x for m in methods for name, x in m.by_layer.items()},
        rows=next((m.rows for m in methods if m.rows is not None), None),
        max_length=min(limits, default=None), claims=all_of | any_of,
    )  # fmt: skip


def _check_pair(a: str, first: PositionMethod, b: str, second: PositionMethod) -> None:
    if a == b:
        raise ValueError(f"position names {a!r} twice")
    if "query_scale" not in first.claims | second.claims:
        for hook, verb in (("embed", "add a vector to each token"), ("rotate", "rotate or move queries and keys")):
            if hook in hooks(first) & hooks(second):
                raise ValueError(f"position: {a!r} and {b!r} both {verb}, and a model can have one such method; leave one out")
        for reader, mover, name, other in ((first, second, a, b), (second, first, b, a)):
            if "reads_query" in reader.claims and "rotate" in hooks(mover):
                raise ValueError(
                    f"position: {other!r} moves the queries that {name!r} compares with its own vectors, so its term would "
                    "depend on absolute positions; leave one out"
                )
    if both := sorted(first.specs.keys() & second.specs.keys()):
        raise ValueError(f"position: {a!r} and {b!r} both have a parameter named {both[0]}; leave one out")


def _joined(hook: str, found: list[Callable]) -> Callable:
    """The hooks of several methods as one; none is the neutral one."""
    if len(found) < 2:
        return found[0] if found else HOOKS[hook]

    def embed(params: dict, x_BTD: Array, tok: Tokens) -> Array:
        for f in found:
            x_BTD = f(params, x_BTD, tok)
        return x_BTD

    def rotate(params: dict, q_BTNH: Array, k_BSNH: Array, v_BSNH: Array, q_tok: Tokens, k_tok: Tokens):
        for f in found:
            q_BTNH, k_BSNH, v_BSNH = f(params, q_BTNH, k_BSNH, v_BSNH, q_tok, k_tok)
        return q_BTNH, k_BSNH, v_BSNH

    def added(*args) -> Array:
        first, *rest = (f(*args) for f in found)
        return sum(rest, first)

    return {"embed": embed, "rotate": rotate}.get(hook, added)


class Bound(NamedTuple):
    """The hooks that attention calls, with one layer's parameters."""

    params: dict
    method: PositionMethod

    def rotate(self, q_BTNH: Array, k_BSNH: Array, v_BSNH: Array, q_tok: Tokens, k_tok: Tokens):
        return self.method.rotate(self.params, q_BTNH, k_BSNH, v_BSNH, q_tok, k_tok)

    def logits(self, q_BTNH: Array, q_tok: Tokens, k_tok: Tokens, heads: slice) -> Array | None:
        return self.method.logits(self.params, q_BTNH, q_tok, k_tok, heads)

    def values(self, weights_BNTS: Array, q_tok: Tokens, k_tok: Tokens, heads: slice) -> Array | None:
        return self.method.values(self.params, weights_BNTS, q_tok, k_tok, heads)

    @property
    def rotates(self) -> bool:
        return self.method.rotate is not _rotate
