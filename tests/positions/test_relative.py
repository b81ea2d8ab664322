"""by_pair and by_distance against plain indexing, in value and gradient, with keys in order and out of order."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lpe import tokens
from lpe.positions import relative

from .test_mutations import mutated

CLIP = 3
BATCHES = {
    "in order": {"attention_mask": [[0, 0, 1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 0, 0, 0]]},
    "packed": {"segment_ids": [[1, 1, 1, 2, 2, 2, 2, 0, 0], [1, 2, 2, 2, 2, 2, 3, 3, 3]]},
    "out of order": {"position_ids": [[4, 0, 9, 1, 2, 3, 5, 12, 7], [0, 1, 2, 3, 4, 5, 6, 7, 8]]},
}


def plain(x_BNTR, w_BNTS, position):
    """x by pair and w by distance, with one-hot rows."""
    rows = jnp.clip(position[:, None, :] - position[:, :, None], -CLIP, CLIP) + CLIP
    one_hot = jax.nn.one_hot(rows, 2 * CLIP + 1)
    return jnp.einsum("bntr,btsr->bnts", x_BNTR, one_hot), jnp.einsum("bnts,btsr->bntr", w_BNTS, one_hot)


def check(module, batch: dict) -> None:
    tok = tokens.from_batch({"input_ids": jnp.zeros((2, 9), jnp.int32), **{k: jnp.asarray(v) for k, v in batch.items()}})
    seen = ((tok.segment[:, :, None] == tok.segment[:, None]) & (tok.segment[:, None] > 0))[:, None]  # others are masked
    x, gx, w, gw = (
        jax.random.normal(k, (2, 2, 9, n)) for k, n in zip(jax.random.split(jax.random.key(0), 4), (7, 9, 9, 7), strict=True)
    )

    def both(pair, distance):
        out, back = jax.vjp(lambda x, w: (pair(x) * seen, distance(w * seen)), x, w)
        return [*out, *back((gx, gw))]

    got = jax.jit(lambda: both(lambda x: module.by_pair(x, tok, tok, CLIP), lambda w: module.by_distance(w, tok, tok, CLIP)))()
    zero = jnp.zeros_like
    want = both(lambda x: plain(x, zero(w), tok.position)[0], lambda w: plain(zero(x), w, tok.position)[1])
    for a, b in zip(got, want, strict=True):
        assert np.abs(b).max() > 0.1
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5)


@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)
def test_values_and_gradients(batch):
    check(relative, batch)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return by_distance(g, *tokens, clip), None, None", "return 0 * by_distance(g, *tokens, clip), None, None"),
        ("return w_grad.astype(like.dtype), None, None", "return 0 * w_grad.astype(like.dtype), None, None"),
        ("places >= clip", "places > clip"),
        ("jnp.all(other |", "jnp.all(True |"),
    ],
)
def test_a_planted_error_is_noticed_in_gradients_too(old, new):
    with pytest.raises(AssertionError):
        for batch in BATCHES.values():
            check(mutated("relative", old, new), batch)
