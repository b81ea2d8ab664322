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
ORIGINAL = "original_max_position_embeddings"
OPTIONS = {
    "rope_theta", "partial_rotary_factor", "factor", ORIGINAL, "attention_factor", "beta_fast", "beta_slow", "mscale",
    "mscale_all_dim", "truncate", "low_freq_factor", "high_freq_factor", "short_factor", "long_factor",
}  # fmt: skip
WORDS = f"{', '.join(NAMES.values())}, rope_ntk, with the layout that the weights have"
ALIKE = {"layout": "half", "partial_rotary_factor": 1.0}  # options that only one value of has a field


def read(given: Any, theta: float, trained: int, source: str) -> dict[str, Any]:
    """The position method that rope_parameters say.

    Args:
      given: of config.json; it may be empty.
      theta: the base where none is given.
      trained: max_position_embeddings, which unscaled ones offer.

    Raises:
      ValueError: something that lpe does not compute as transformers does.
    """
    about = f"{source}: rope_parameters={given!r}"
    if not isinstance(given, Mapping):
        raise ValueError(f"{about}, allowed is a map, as {{'rope_type': 'default', 'rope_theta': {theta}}}")
    options = {k: v for k, v in given.items() if v is not None}
    kind = options.pop("rope_type", options.pop("type", "default"))
    options.pop("type", None)
    if not isinstance(kind, str) or kind not in NAMES:
        raise ValueError(f"{about}: rope_type={kind!r} is not known to lpe; it reads {', '.join(NAMES)}")
    if unknown := sorted(options.keys() - OPTIONS):
        raise ValueError(f"{about}: {unknown[0]!r} is not known to lpe; it reads {', '.join(sorted(OPTIONS))}")
    base = options.pop("rope_theta", theta)
    if type(base) not in (int, float):
        raise ValueError(f"{about}: rope_theta={base!r}, allowed is a number above 1")
    if (share := options.pop("partial_rotary_factor", 1.0)) != 1.0:
        raise ValueError(f"{about}: partial_rotary_factor={share!r}, which transformers does not compute here; allowed is 1.0")
    if kind == "dynamic" and (found := options.pop(ORIGINAL, trained)) != trained:
        raise ValueError(f"{about}: {ORIGINAL}={found!r}, which transformers does not read here; allowed is {trained}")
    spec = {"name": NAMES[kind], "rope_theta": float(base), **options}
    return spec | ({"max_length": trained} if kind == "default" else {})


def unscaled(spec: Mapping[str, Any], cfg) -> dict[str, Any]:
    """`spec`, or the plain rotary method that is the same with another base, where its file says so."""
    make = getattr(registry.load("positions", spec["name"]), "as_rope", None)
    if make is None:
        return dict(spec)
    options = {**registry.defaults("positions", spec), **spec}
    return make(cfg, **{k: v for k, v in options.items() if k != "name"})


def parameters(spec: Mapping[str, Any], cfg) -> dict[str, Any] | None:
    """The reverse of `read`, with all defaults said; None where no rope_parameters say it. Args: as `unscaled` gives it."""
    kinds = {ours: theirs for theirs, ours in NAMES.items()}
    if spec["name"] not in kinds:
        return None
    options = {**registry.defaults("positions", spec), **spec}
    if any(options.pop(k) != v for k, v in ALIKE.items()) or options.pop("rotary_value", False):
        return None
    kind, longest = kinds[options.pop("name")], options.pop("max_length")
    trained = rotary.original_length(cfg, spec["name"], None)
    if "factor" in options:
        options["factor"] = rotary.reach(cfg, spec["name"], options["factor"], longest, options[ORIGINAL]).factor
    if kind in ("yarn", "llama3", "longrope") and options[ORIGINAL] is None:
        options[ORIGINAL] = trained
    if kind == "dynamic" and options.pop(ORIGINAL) not in (None, trained):
        return None
    return {k: v for k, v in options.items() if v is not None} | {"rope_type": kind}


def fields(spec: Mapping[str, Any], cfg) -> dict[str, Any] | None:
    """Fields of config.json of a model with one such method in all layers."""
    spec = unscaled(spec, cfg)
    found = parameters(spec, cfg)
    if found is None:
        return None
    longer = found["rope_type"] == "default" and "max_length" in spec
    return {"rope_parameters": found} | ({"max_position_embeddings": spec["max_length"]} if longer else {})
