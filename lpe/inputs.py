"""A batch at the model's door: as int32 arrays, refused where it would be read outside a table or changed in silence."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

from lpe import build, registry, tokens
from lpe.build import Network
from lpe.models.bert import BertConfig
from lpe.tokens import Tokens

HOW = 'for texts: dict(model.tokenizer([text, …], padding=True, return_tensors="np"))'
KEYS = ("input_ids", "attention_mask", "token_type_ids", "position_ids", "segment_ids", "global_attention_mask")


def checked(net: Network, batch: Mapping[str, Any]) -> dict[str, Array]:
    """The batch as int32 arrays. Values are seen outside jit only.

    Raises:
      ValueError: naming what the model cannot read.
    """
    cfg, limit = net.recipe.config, net.position.max_length
    if not isinstance(batch, Mapping):
        raise ValueError(f"a batch is a map with input_ids, and not a {type(batch).__name__}; {HOW}")
    out = {k: _whole_numbers(k, v) for k, v in batch.items() if k in KEYS}
    unknown = set(batch) - set(KEYS)
    if unknown or "input_ids" not in out:
        raise ValueError(f"batch keys {sorted(batch)}: needs input_ids, may have {', '.join(KEYS[1:])}")
    for key, x in out.items():
        if x.ndim != 2 or x.shape != out["input_ids"].shape or 0 in x.shape:
            raise ValueError(f"{key} has shape {x.shape}; all keys have one shape [batch, length]; {HOW}")
    if any(isinstance(x, Tracer) for x in out.values()):
        return out
    _check_range(out["input_ids"], cfg.vocab_size, "input_ids", "vocab_size; is the tokenizer the model's own?")
    if "token_type_ids" in out and not cfg.type_vocab_size:
        raise ValueError("the batch has token_type_ids, and this model no token types; leave them out")
    if "token_type_ids" in out:
        _check_range(out["token_type_ids"], cfg.type_vocab_size, "token_type_ids", "type_vocab_size")
    if "segment_ids" in out:
        tokens.check_segments(np.asarray(out["segment_ids"]), out.get("attention_mask"))
    if (
        cfg.reserved_rows
        and not {"attention_mask", "segment_ids"} & set(out)
        and bool((np.asarray(out["input_ids"]) == cfg.pad_token_id).any())
    ):
        raise ValueError(f"input_ids has pad_token_id {cfg.pad_token_id} but there is no attention_mask; add it")
    tok = _tokens(cfg, net.recipe.attention, out)
    _check_marks(net, out, tok)
    position = np.asarray(tok.position)
    if position.min() < 0:
        raise ValueError(f"position_ids has {position.min()}, allowed are whole numbers from 0")
    if limit is not None and position.max() >= limit:
        raise ValueError(build.too_long(int(position.max()) + 1, net.recipe, limit))
    if "position_ids" not in out and limit is not None and out["input_ids"].shape[1] > limit:
        out["position_ids"] = jnp.asarray(position)  # longer only by padding
    return out


def check_global(net: Network, batch: dict[str, Any]) -> dict[str, Any]:
    """The batch. Raises ValueError, by row, for global tokens that are padding, or more than the attention has room for."""
    read = {k: jnp.asarray(v).reshape(-1, v.shape[-1]) for k, v in batch.items() if k in KEYS}
    _check_marks(net, batch, _tokens(net.recipe.config, net.recipe.attention, read))
    return batch


@partial(jax.jit, static_argnames=("cfg", "attention"))
def _tokens(cfg: BertConfig, attention: tuple, batch: dict[str, Array]) -> Tokens:
    """The batch's Tokens. One program for a shape: operation by operation each of a dozen would be compiled for it."""
    return registry.make("attention", dict(attention), cfg).mark(batch, tokens.from_batch(batch))


def _check_marks(net: Network, batch: dict[str, Any], tok: Tokens) -> None:
    if "global_attention_mask" in batch:
        mask = np.asarray(batch["global_attention_mask"])
        _check_range(mask, 2, "global_attention_mask", "1 = global")
        if (rows := np.flatnonzero((mask > (np.asarray(tok.segment) > 0)).any(axis=1))).size:
            raise ValueError(
                f"row {rows[0]}: global_attention_mask is 1 at padding; with padding on the left the first token is not place 0"
            )
    count, capacity = np.asarray(tok.is_global).sum(axis=1), net.pattern.capacity
    if (count > capacity).any():
        raise ValueError(
            f"row {count.argmax()} has {count.max()} global tokens, and the attention has room for {capacity}; "
            f"give it more: attention={ ({**dict(net.recipe.attention), 'global_capacity': int(count.max())}) }"
        )


def _whole_numbers(key: str, value: Any) -> Array:
    """`value` as int32. Raises ValueError for numbers that are not whole or do not fit: a cast would change them in silence."""
    if not isinstance(value, Tracer):
        value = np.asarray(value)
    if not (jnp.issubdtype(value.dtype, jnp.integer) or value.dtype == bool):
        raise ValueError(f"{key} has dtype {value.dtype}; whole numbers are needed")
    if not isinstance(value, Tracer) and value.size and not -(2**31) <= int(value.min()) <= int(value.max()) < 2**31:
        raise ValueError(f"{key} has {value.min()} to {value.max()}, which does not fit into int32")
    return jnp.asarray(value, jnp.int32)


def _check_range(x: Array | np.ndarray, size: int, key: str, why: str) -> None:
    low, high = int(np.asarray(x).min()), int(np.asarray(x).max())
    if low < 0 or high >= size:
        raise ValueError(f"{key} has {low if low < 0 else high}, allowed are 0 to {size - 1} ({why})")
