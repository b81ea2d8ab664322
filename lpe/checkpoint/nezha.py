"""NEZHA (Wei et al. 2019, arXiv 1909.00204) as transformers 4 writes it: BERT with relative positions and no table."""

from collections.abc import Mapping
from typing import Any

from lpe.checkpoint import bert

DISTANCE = 64  # transformers' default


def position(raw: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Its sinusoids by distance; for transformers, texts end at max_position_embeddings, though no weights do."""
    return {"name": "nezha", "max_relative_position": raw.get("max_relative_position", DISTANCE)}


def position_fields(spec: Mapping[str, Any], cfg) -> dict[str, Any] | None:
    return {"max_relative_position": spec.get("max_relative_position", DISTANCE)} if spec["name"] == "nezha" else None


FAMILY = bert.FAMILY._replace(
    classes="Nezha",
    encoder=(*bert.EMBEDDINGS, *bert.LAYERS),
    prefix="nezha.",
    carried=frozenset({"use_relative_position"}),
    own=frozenset({"max_relative_position"}),
    position=position,
    position_fields=position_fields,
    position_words="nezha",
)
