"""Rotary positions that differ by layer, as in ModernBERT (Warner et al. 2024, arXiv 2412.13663, §2.1.2).

There every third layer sees the whole text with a slow base of 160,000, and the layers between see a window with RoFormer's.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import Array

from lpe import registry
from lpe.positions import base, checks
from lpe.positions.base import PositionMethod
from lpe.tokens import Tokens

MODERNBERT = ({"name": "rope", "rope_theta": 160000.0}, {"name": "rope"})


def make(
    cfg,
    *,
    methods: Sequence[Mapping[str, Any]] = MODERNBERT,
    layers: Sequence[int] = (0, 1, 1),
    max_length: int | None = None,
) -> PositionMethod:
    """In layer i the method methods[layers[i % len(layers)]].

    Args:
      cfg: the model's config.
      methods: {"name": …, options} each, of methods that rotate and do nothing else. `extend` with a single rotary method
        replaces the first one.
      layers: numbers into `methods`, repeated over the layers.
      max_length: positions offered, by each method. Default: as many as all offer.

    Raises:
      ValueError: a method that does more than rotate or has parameters, or a number that is none of a method.
    """
    several = isinstance(methods, (list, tuple)) and len(methods) > 1
    if not several or not all(isinstance(m, (Mapping, tuple)) for m in methods):  # a frozen recipe has tuples of pairs
        raise ValueError(
            f"positions.by_layer: methods={methods!r}, needed is a list of at least two, {{'name': …, options}} each"
        )
    if max_length is not None:
        checks.whole("by_layer", "max_length", max_length, 1, checks.REACH)
    made = [registry.make("positions", _reaching(dict(m), max_length), cfg) for m in methods]
    for spec, method in zip(methods, made, strict=True):
        if base.hooks(method) != {"rotate"} or method.specs or method.by_layer:
            raise ValueError(
                f"positions.by_layer: {dict(spec)['name']!r} does more than rotate queries and keys; allowed are rotary "
                "methods without parameters, as rope and its scalings"
            )
    if not isinstance(layers, (list, tuple)) or {type(i) for i in layers} != {int}:
        raise ValueError(f"positions.by_layer: layers={layers!r}, needed is a list of whole numbers, into methods")
    which = np.asarray([layers[i % len(layers)] for i in range(cfg.num_hidden_layers)], np.int32)
    for i in layers:
        if not 0 <= i < len(made):
            raise ValueError(f"positions.by_layer: layers has {i}, allowed are 0 to {len(made) - 1}, numbers of methods")

    def rotate(params: dict, q_BTNH: Array, k_BSNH: Array, v_BSNH: Array, q_tok: Tokens, k_tok: Tokens):
        return jax.lax.switch(params["which"], [partial(m.rotate, {}) for m in made], q_BTNH, k_BSNH, v_BSNH, q_tok, k_tok)

    limits = [m for m in (max_length, *(m.max_length for m in made)) if m is not None]
    every = frozenset.intersection(*(m.claims for m in made))
    some = frozenset.union(*(m.claims for m in made)) & {"causal_only", "length_dependent"}
    return PositionMethod(
        {}, rotate=rotate, by_layer={"which": which}, max_length=min(limits, default=None), claims=every | some
    )


def _reaching(spec: dict[str, Any], max_length: int | None) -> dict[str, Any]:
    takes = max_length is not None and registry.takes("positions", spec, "max_length")
    return {**spec, "max_length": max_length} if takes else spec
