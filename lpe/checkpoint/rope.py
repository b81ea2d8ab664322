"""`rope_parameters` of config.json: rotary positions and their scalings by Hugging Face's names."""

from collections.abc import Mapping
from typing import Any

from lpe import registry
from lpe.positions import rotary

NAMES = {
    "default": "rope",
    "linear": "rope_linear",
    "dynamic": "rope_dynamic",
    "yarn": "rope_yarn",
    "llama3": "rope_llama3",
    "longrope": "rope_longrope",
}
WORDS = f"{', '.join(NAMES.values())}, with the layout that the weights have"
ALIKE = {"layout": "half", "partial_rotary_factor": 1.0}  # options that only one value of has a field


def read(given: Mapping[str, Any], theta: float, max_length: int | None, source: str) -> dict[str, Any]:
    """The position method that rope_parameters say.

    Args:
      given: of config.json; it may be empty.
      theta: the base where none is given.
      max_length: positions that unscaled ones offer.

    Raises:
      ValueError: a rope_type that lpe does not have.
    """
    options = dict(given)
    kind = options.pop("rope_type", None) or options.pop("type", None) or "default"
    options.pop("type", None)
    if kind not in NAMES:
        raise ValueError(f"{source}: rope_type={kind!r} is not known to lpe; it reads {', '.join(NAMES)}")
    spec = {"name": NAMES[kind], "rope_theta": float(options.pop("rope_theta", None) or theta)}
    spec |= {k: v for k, v in options.items() if v is not None}
    return spec | ({"max_length": max_length} if kind == "default" and max_length is not None else {})


def parameters(spec: Mapping[str, Any], cfg) -> dict[str, Any] | None:
    """The reverse of `read`, with all defaults said; None where no rope_parameters say it."""
    kinds = {ours: theirs for theirs, ours in NAMES.items()}
    if spec["name"] not in kinds:
        return None
    options = {**registry.defaults("positions", spec), **spec}
    if any(options.pop(k) != v for k, v in ALIKE.items()) or options.pop("rotary_value", False):
        return None
    kind, longest, original = kinds[options.pop("name")], options.pop("max_length"), "original_max_position_embeddings"
    if "factor" in options:
        options["factor"] = rotary.reach(cfg, spec["name"], options["factor"], longest, options[original]).factor
    if kind in ("yarn", "llama3", "longrope") and options[original] is None:
        options[original] = rotary.original_length(cfg, spec["name"], None)
    return {k: v for k, v in options.items() if v is not None} | {"rope_type": kind}


def fields(spec: Mapping[str, Any], cfg) -> dict[str, Any] | None:
    """Fields of config.json of a model with one such method in all layers."""
    found = parameters(spec, cfg)
    if found is None:
        return None
    longer = found["rope_type"] == "default" and "max_length" in spec
    return {"rope_parameters": found} | ({"max_position_embeddings": spec["max_length"]} if longer else {})
