"""BigBird (Zaheer et al. 2020, arXiv 2007.14062) as Hugging Face writes it: BERT with blocks of keys.

Its head for answers has a layer of its own and is not read. transformers draws no random blocks in evaluation: extend with
attention={…, "hf_compat": True} for its numbers.
"""

from collections.abc import Mapping
from typing import Any

from lpe.checkpoint import albert, bert

BLOCK, RANDOM = 64, 3  # transformers' defaults
NAMES = {"block_size": BLOCK, "num_random_blocks": RANDOM}


def fields(raw: Mapping[str, Any]) -> dict[str, Any]:
    return {"pooler_act": raw.get("hidden_act", "gelu_new")}


def attention(raw: Mapping[str, Any], heads: tuple[str, ...], source: str) -> dict[str, Any]:
    """Raises ValueError for an attention_type that is neither block_sparse nor original_full."""
    kind = raw.get("attention_type", "block_sparse")
    if kind not in ("block_sparse", "original_full"):
        raise ValueError(f"{source}: attention_type={kind!r}, allowed are 'block_sparse' and 'original_full'")
    return {"name": "full"} if kind == "original_full" else {"name": "bigbird", **{k: raw.get(k, v) for k, v in NAMES.items()}}


def attention_fields(spec: Mapping[str, Any], layers: int, heads: tuple[str, ...]) -> dict[str, Any] | None:
    """A plan of another seed, or none (hf_compat), is the same model to transformers, which has plans of its own."""
    if spec == {"name": "full"}:
        return {"attention_type": "original_full"}
    if spec["name"] != "bigbird" or spec.keys() - {"name", "seed", "hf_compat", *NAMES}:
        return None
    return {"attention_type": "block_sparse", **{k: spec.get(k, v) for k, v in NAMES.items()}}


FAMILY = bert.FAMILY._replace(
    classes="BigBird",
    pooler=albert.POOLER,
    heads={"mlm": bert.MLM, "classifier": bert.POOLING_CLASSIFIER, "tagger": bert.TAGGER},
    refused={"qa_classifier.": "its class has a layer of its own there, and hides the question"},
    defaults={"hidden_act": "gelu_new", "max_position_embeddings": 4096},
    fixed={"use_bias": True, "rescale_embeddings": False},
    own=frozenset({"attention_type", *NAMES}),
    fields=fields,
    attention=attention,
    attention_fields=attention_fields,
    becomes=(),
    attention_words="full attention, or bigbird with global blocks and no further global tokens",
)
