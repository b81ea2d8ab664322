"""T5's relative attention bias: a learned number per head and bucket of distances (Raffel et al. 2019, arXiv 1910.10683, §2.1).

Of the buckets one half is for keys at or before the query, one for keys after it. In each, small distances have a bucket of
their own, larger ones share logarithmic buckets up to max_distance, and beyond it all share the last. The table is the same
in all layers. T5's own weights have no 1/√d; other weights keep theirs.
"""

import math

import jax.numpy as jnp
import numpy as np
from jax import Array

from lpe.params import Spec, normal
from lpe.positions import base, checks, relative
from lpe.tokens import Tokens


def make(cfg, *, num_buckets: int = 32, max_distance: int = 128) -> base.PositionMethod:
    """logits + table[bucket(j − i), head].

    Args:
      cfg: the model's config.
      num_buckets: of both directions together; a multiple of 4.
      max_distance: from which on all share the last bucket; more than a quarter of num_buckets.

    Raises:
      ValueError: a value outside its range.
    """
    count = checks.whole("t5", "num_buckets", num_buckets, 4, checks.LARGEST)
    if count % 4:
        raise ValueError(f"positions.t5: num_buckets={num_buckets!r}, allowed are multiples of 4")
    far = checks.whole("t5", "max_distance", max_distance, count // 4 + 1, checks.LARGEST)
    specs = {"relative_attention_bias": Spec((count, cfg.num_attention_heads), (None, "heads"), normal(cfg.initializer_range))}
    bucket = buckets(np.arange(-far, far + 1), count, far)

    def logits(params: dict, q_BTNH: Array, q_tok: Tokens, k_tok: Tokens, heads: slice) -> Array:
        by_row = params["relative_attention_bias"][bucket][:, heads].T  # [N, 2·far + 1]
        shape = (*q_tok.position.shape, *by_row.shape)
        return relative.by_pair(jnp.broadcast_to(by_row, shape).swapaxes(1, 2), q_tok, k_tok, far)

    claims = frozenset({"relative"})
    return base.PositionMethod(specs, base.keep_or_init("t5", specs), logits=logits, claims=claims)


def buckets(distance: np.ndarray, num_buckets: int, max_distance: int) -> np.ndarray:
    """The bucket of each distance, key minus query; i32 of the same shape."""
    half = num_buckets // 2
    exact, size = half // 2, np.abs(distance)
    with np.errstate(divide="ignore"):
        grown = np.log(size.astype(np.float32) / np.float32(exact)) / np.float32(math.log(max_distance / exact))
    # Float32 throughout: at the borders of buckets the trained weights know this rounding, as at distances 16, 32, 64.
    log_bucket = exact + np.where(size < exact, 0, np.nan_to_num(grown, neginf=0.0) * (half - exact)).astype(np.int32)
    return np.where(size < exact, size, np.minimum(log_bucket, half - 1)).astype(np.int32) + np.where(distance > 0, half, 0)
