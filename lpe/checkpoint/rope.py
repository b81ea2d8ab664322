"""`rope_parameters` of config.json: rotary positions and their scalings by Hugging Face's names."""

from collections.abc import Mapping
from typing import Any

NAMES = {
    "default": "rope",
    "linear": "rope_linear",
    "dynamic": "rope_dynamic",
    "yarn": "rope_yarn",
    "llama3": "rope_llama3",
    "longrope": "rope_longrope",
}
WORDS = f"{', '.join(NAMES.values())}, in halves, with their `factor` said"
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


def parameters(spec: Mapping[str, Any]) -> dict[str, Any] | None:
    """The reverse of `read`; None where no rope_parameters say it."""
    kinds = {ours: theirs for theirs, ours in NAMES.items()}
    options = {k: v for k, v in spec.items() if k not in ("name", "max_length") and ALIKE.get(k) != v}
    if spec["name"] not in kinds or ALIKE.keys() & options.keys() or "rotary_value" in options:
        return None
    if spec["name"] != "rope" and "factor" not in options:
        return None
    return {"rope_theta": 10000.0, **options, "rope_type": kinds[spec["name"]]}


def fields(spec: Mapping[str, Any], cfg) -> dict[str, Any] | None:
    """Fields of config.json of a model with one such method in all layers."""
    found = parameters(spec)
    if found is None:
        return None
    longer = spec["name"] == "rope" and "max_length" in spec
    return {"rope_parameters": found} | ({"max_position_embeddings": spec["max_length"]} if longer else {})
