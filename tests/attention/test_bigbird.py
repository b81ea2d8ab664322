"""BigBird: its draws, masks drawn, a transcription key by key, transformers' own attention and model, bad options."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from transformers import BigBirdConfig
from transformers.models.big_bird import modeling_big_bird

from lpe import linear, model
from lpe.attention import bigbird, sparse_blocks

from .common import CFG, D, H, N, compare, equal, make, operands, plain, run, segments, small_blocks, some_global, toks

VARIANTS = [
    {"block_size": 2},
    {"block_size": 4, "num_random_blocks": 1, "seed": 7},
    {"block_size": 3, "num_random_blocks": 2, "global_tokens": "explicit", "global_capacity": 3},
    {"block_size": 3, "num_random_blocks": 0, "global_blocks": False, "global_tokens": "cls", "global_capacity": 6},
    {"block_size": 5, "num_random_blocks": 1, "global_blocks": False},
    {"block_size": 2, "num_random_blocks": 2, "hf_compat": True},
]


def free(row: int, blocks: int, ends: int) -> list[int]:
    """What a row may draw: neither global nor in its window."""
    if row < ends or row >= blocks - ends:
        return []
    return [b for b in range(ends, blocks - ends) if abs(b - row) > 1]


@pytest.mark.parametrize("ends", [0, 1])
@pytest.mark.parametrize("blocks, count", [(1, 2), (2, 1), (3, 3), (6, 1), (7, 3), (8, 3), (9, 3), (40, 5), (12, 0)])
def test_a_row_draws_other_blocks_than_it_has_each_once_and_all_where_there_are_few(blocks, count, ends):
    plan = sparse_blocks.draw(3, 2, N, blocks, count, ends)
    assert plan.shape == (2, N, blocks, count) and plan.dtype == np.int32
    for layer, head, row in np.ndindex(2, N, blocks):
        found, allowed = plan[layer, head, row].tolist(), free(row, blocks, ends)
        used = min(count, len(allowed))
        assert found[used:] == [-1] * (count - used)
        assert len(set(found[:used])) == used and set(found[:used]) <= set(allowed)


def test_draws_are_even():
    """Each of the blocks that a row may draw is drawn as often as the others."""
    plan = sparse_blocks.draw(0, 1, 6000, 11, 2, 1)[0]
    for row in range(1, 10):
        allowed = free(row, 11, 1)
        for place in range(2):  # 6000 draws among n: standard error √(n / 6000) of the share
            share = [len(allowed) * np.mean(plan[:, row, place] == b) for b in allowed]
            np.testing.assert_allclose(share, 1, atol=5 * (len(allowed) / 6000) ** 0.5)


def test_draws_are_a_function_of_seed_layer_and_blocks():
    """Whatever was drawn before, and whatever the model's depth; no two layers or heads are alike."""
    plan = sparse_blocks.draw(5, 3, N, 30, 3, 1)
    sparse_blocks.draw(6, 1, N, 8, 3, 1)
    np.testing.assert_array_equal(sparse_blocks.draw(5, 3, N, 30, 3, 1), plan)
    np.testing.assert_array_equal(sparse_blocks.draw(5, 2, N, 30, 3, 1), plan[:2])
    rows = plan.reshape(3 * N, -1)
    assert len({row.tobytes() for row in rows}) == 3 * N
    for other in (sparse_blocks.draw(6, 3, N, 30, 3, 1), sparse_blocks.draw(5, 3, N, 31, 3, 1)[:, :, :30]):
        assert (other != plan).mean() > 0.5


def test_draws_stay_what_they_were():
    """A trained model reads them again. By numpy's RandomState, whose stream is frozen."""
    assert sparse_blocks.draw(0, 2, 2, 9, 3, 1)[:, :, 4].tolist() == GOLDEN


GOLDEN = [[[6, 7, 1], [7, 1, 6]], [[7, 1, 6], [2, 1, 7]]]


def test_draws_equal_a_plain_loop():
    """A row takes one after the other out of what it may have."""
    for ends, blocks, count in ((1, 9, 3), (0, 6, 4), (1, 20, 5)):
        plan = sparse_blocks.draw(8, 2, N, blocks, count, ends)
        for layer in range(2):
            numbers = np.random.RandomState([8, layer, blocks]).random_sample((N, blocks, count))
            for head, row in np.ndindex(N, blocks):
                left, found = free(row, blocks, ends), []
                while left and len(found) < count:
                    found.append(left.pop(int(numbers[head, row, len(found)] * len(left))))
                assert plan[layer, head, row].tolist() == found + [-1] * (count - len(found))


def transcribed(layer: int, head: int, blocks: int, size: int, draws: np.ndarray, ends: int = 1) -> np.ndarray:
    """The paper's graph, bool[T, S] (§2): window, draws and global blocks, pair by pair."""
    kept = np.zeros((blocks * size, blocks * size), bool)
    for t, s in np.ndindex(kept.shape):
        row, block = t // size, s // size
        near = row - 1 <= block <= row + 1
        is_global = ends and (row in (0, blocks - 1) or block in (0, blocks - 1))
        kept[t, s] = near or is_global or block in draws[layer, head, row].tolist()
    return kept


@pytest.mark.parametrize("ends", [1, 0])
def test_the_mask_is_the_graph_of_the_paper(ends):
    size, blocks, count = 3, 9, 2
    pattern = make({"name": "bigbird", "block_size": size, "num_random_blocks": count, "seed": 4, "global_blocks": bool(ends)})
    tok, draws = toks(np.ones((1, 25), int)), sparse_blocks.draw(4, 2, N, blocks, count, ends)
    for layer in range(2):
        mask = np.asarray(pattern.mask(tok, tok, jnp.int32(layer), 25))
        for head in range(N):
            np.testing.assert_array_equal(mask[0, head], transcribed(layer, head, blocks, size, draws, ends)[:25, :25])


def drawn(length: int, at: tuple[int, ...] = (), **kw) -> list[str]:
    """The mask of the first head as rows of 0 and 1, with global tokens at the places `at`."""
    pattern = make({"name": "bigbird", **kw, **({"global_tokens": "explicit"} if at else {})})
    tok = toks(np.ones((1, length), int), pattern, np.isin(np.arange(length), at).astype(int)[None])
    mask = np.asarray(jax.jit(lambda tok: pattern.mask(tok, tok, 0, length))(tok))
    return ["".join(map(str, row)) for row in mask[0, 0].astype(int)]


def test_masks_without_draws_drawn():
    assert drawn(7, block_size=1, num_random_blocks=0) == [
        "1111111", "1110001", "1111001", "1011101", "1001111", "1000111", "1111111",
    ]  # fmt: skip
    kw = {"block_size": 1, "num_random_blocks": 0, "global_blocks": False}
    assert drawn(5, **kw) == ["11000", "11100", "01110", "00111", "00011"]
    assert drawn(5, at=(1,), **kw) == ["11000", "11111", "01110", "01111", "01011"]
    assert drawn(7, block_size=2, num_random_blocks=0, global_blocks=False)[2:4] == ["1111110", "1111110"]


@pytest.mark.parametrize("kw, length", [({"num_random_blocks": 3}, 16), ({"num_random_blocks": 1, "global_blocks": False}, 8)])
def test_short_texts_are_seen_whole_and_longer_ones_are_not(kw, length):
    for total, whole in ((length, True), (length - 1, True), (1, True), (length + 1, False)):
        assert all(row == "1" * total for row in drawn(total, block_size=2, **kw)) == whole


@pytest.mark.parametrize("kw", VARIANTS)
def test_values_equal_the_transcription(kw, monkeypatch):
    """The reference is no judge of itself. Global tokens have the projections of all."""
    small_blocks(monkeypatch)
    pattern, segment = make({"name": "bigbird", **kw}), segments(31)
    size, ends, count = kw["block_size"], int(kw.get("global_blocks", True)), kw.get("num_random_blocks", 3)
    blocks, hf = -(-31 // size), kw.get("hf_compat", False)
    mask = some_global(segment, pattern.capacity).astype(bool)
    draws = sparse_blocks.draw(kw.get("seed", 0), 2, N, blocks, 0 if hf else count, ends)
    ops, tok = operands(pattern, segment.shape), toks(segment, pattern, mask.astype(int))
    both = jax.jit(lambda ops, layer: [run(f, ops, tok, layer) for f in (pattern.attend, pattern.reference)])
    for layer in range(2):
        kept = [transcribed(layer, n, blocks, size, draws, ends) for n in range(N)]
        if hf:
            times = np.ones((31, 31))
            times[size : (blocks - 1) * size, :size] = 1 + count
            want = counted(ops, segment, kept[0], times)
        else:
            want = np.concatenate(
                [
                    plain(
                        {k: x[i : i + 1] if k in "xqkv" else x for k, x in ops.items()}, segment[i : i + 1], near(kept, mask[i])
                    )
                    for i in range(len(segment))
                ]
            )
        for out in both(ops, layer):
            equal(out, want, 2e-6)


def near(kept: list[np.ndarray], is_global: np.ndarray) -> Callable[[int, int, int], bool]:
    return lambda t, s, n: kept[n][t, s] or is_global[t] or is_global[s]


def counted(ops: dict, segment: np.ndarray, kept: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Key by key in float64; a key is in the softmax as often as `times` says."""
    q, k, v = (np.asarray(ops[n], np.float64) for n in "qkv")
    out = np.zeros(q.shape)
    for b, t, n in np.ndindex(*q.shape[:3]):
        keys = [s for s in np.flatnonzero(segment[b] == segment[b, t]) if kept[t, s]]
        if segment[b, t]:
            e = times[t, keys] * np.exp(H**-0.5 * (k[b, keys, n] @ q[b, t, n]))
            out[b, t, n] = (e / e.sum()) @ v[b, keys, n]
    return out


def padded(length: int) -> np.ndarray:
    """0/1 [4, length]: full, padded right and left, and padded left by more than a block or two."""
    place = np.arange(length)
    return np.stack([place >= 0, place < length - length // 3, place >= 1 + length // 7, place >= length // 2]).astype(int)


def perturbed(size: int, count: int) -> modeling_big_bird.BigBirdModel:
    """Made anew for each length: at a short input transformers switches to full attention, and never back."""
    config = BigBirdConfig(
        vocab_size=20, hidden_size=D, num_attention_heads=N, num_hidden_layers=2, intermediate_size=16, block_size=size,
        num_random_blocks=count, max_position_embeddings=4096,
    )  # fmt: skip
    torch.manual_seed(0)
    module = modeling_big_bird.BigBirdModel(config, add_pooling_layer=False).eval()
    with torch.no_grad():
        for p in module.parameters():
            p.add_(0.5 * torch.randn(p.shape))
    return module


def theirs_and_ours(size: int, count: int, length: int) -> list[list[np.ndarray]]:
    """By layer of a whole model of theirs, for real tokens: its attention, our fast path, our reference, on its operands."""
    theirs, segment, seen = perturbed(size, count), padded(length), []
    for layer in theirs.encoder.layer:
        layer.attention.output.register_forward_pre_hook(lambda _, given: seen.append([x[:, :length].numpy() for x in given]))
    ids = np.random.default_rng(length).integers(1, 20, segment.shape) * segment
    with torch.no_grad():
        theirs(torch.from_numpy(ids), attention_mask=torch.from_numpy(segment))
    pattern = make({"name": "bigbird", "block_size": size, "num_random_blocks": count, "hf_compat": True})
    ops, tok, found = operands(pattern, segment.shape), toks(segment), []
    both = jax.jit(lambda ops: [run(f, ops, tok, 1) for f in (pattern.attend, pattern.reference)])
    for layer, (want, x) in zip(theirs.encoder.layer, seen, strict=True):
        for name, letter in (("query", "q"), ("key", "k"), ("value", "v")):
            weight, bias = (p.detach().numpy() for p in getattr(layer.attention.self, name).parameters())
            ops[letter] = jnp.asarray((x @ weight.T + bias).reshape(*segment.shape, N, H))
        found.append([np.asarray(y)[segment > 0] for y in (want.reshape(*segment.shape, N, H), *both(ops))])
    return found


@pytest.mark.parametrize(
    "size, count, length",
    [(2, 3, 22), (2, 3, 23), (2, 3, 24), (4, 1, 28), (4, 1, 29), (4, 1, 64), (3, 2, 27), (3, 2, 50), (16, 2, 150)],
)
def test_hf_compat_equals_transformers(size, count, length):
    """At the switch to full attention, right after it, and further; whole blocks and others; padding left and right."""
    for want, *found in theirs_and_ours(size, count, length):
        for got in found:
            equal(got, want)


@pytest.mark.heavy
@pytest.mark.parametrize(
    "size, count, length", [(64, 3, 704), (64, 3, 705), (64, 3, 1024), (64, 3, 1025), (32, 3, 3072), (16, 3, 4096)]
)
def test_hf_compat_equals_transformers_at_real_sizes(size, count, length):
    """1024, 3072 and 4096 tokens have a plan of their own there."""
    for want, *found in theirs_and_ours(size, count, length):
        for got in found:
            equal(got, want)


def _whole_row(form, position, total):
    """Planted: the first and the last block of queries count too."""
    if form.is_full(total):
        return position
    log = lambda p, q, q_tok, k_tok, h: jnp.where(k_tok.index < form.size, np.log(1.0 + form.random), 0.0)[:, None, None, :]  # noqa: E731
    return position._replace(method=position.method._replace(logits=log))


def _once_less(form, position, total):
    """Planted: the first block counts r times, not 1 + r."""
    return ORIGINAL(form._replace(random=form.random - 1), position, total)


def _second_too(form, position, total):
    """Planted: the row after the first does not count."""
    bound = ORIGINAL(form, position, total)
    inner = bound.method.logits
    return bound._replace(
        method=bound.method._replace(
            logits=lambda p, q, q_tok, k_tok, h: jnp.where(
                (q_tok.index // form.size == 1)[:, None, :, None], 0.0, inner(p, q, q_tok, k_tok, h)
            )
        )
    )


ORIGINAL = bigbird._counted


@pytest.mark.parametrize("wrong", [_whole_row, _once_less, _second_too])
def test_a_wrong_count_would_be_seen(wrong, monkeypatch):
    monkeypatch.setattr(bigbird, "_counted", wrong)
    want, fast, dense = theirs_and_ours(2, 3, 24)[0]
    assert np.abs(dense - want).max() > 1e-3
    if wrong is not _whole_row:  # the fast path has the rows of global blocks apart
        assert np.abs(fast - want).max() > 1e-3


def test_a_boolean_mask_would_be_seen():
    """Without the count transformers is missed by far."""
    want, *_ = theirs_and_ours(2, 3, 24)[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bigbird, "_counted", lambda form, position, total: position)
        for got in theirs_and_ours(2, 3, 24)[0][1:]:
            assert np.abs(got - want).max() > 1e-3


def test_more_global_tokens_than_there_is_room_for_are_nan_in_that_row_only():
    for length in (9, 40):  # seen whole, and not
        pattern = make({"name": "bigbird", "block_size": 2, "global_tokens": "explicit", "global_capacity": 2})
        segment = np.ones((2, length), int)
        tok = toks(segment, pattern, (np.arange(length) < np.array([[2], [3]])).astype(int))
        both = jax.jit(lambda ops, tok, p=pattern: [run(f, ops, tok) for f in (p.attend, p.reference)])
        out, dense = both(operands(pattern, segment.shape), tok)
        equal(out[0], dense[0])
        assert bool(jnp.isnan(out[1]).all())


def test_dropout_draws_anew_for_each_step_part_and_head(monkeypatch):
    """With values of 1 and equal weights, an output is the share of weights kept, over 1 - rate; global rows too."""
    small_blocks(monkeypatch)
    pattern = make({"name": "bigbird", "block_size": 8, "global_tokens": "explicit"})
    segment, ones = np.ones((2, 400), int), jnp.ones((2, 400, N, H))
    tok = toks(segment, pattern, np.isin(np.arange(400), (20, 130))[None] * segment)
    ops = operands(pattern, segment.shape) | {"q": 0 * ones, "v": ones}
    attend = jax.jit(lambda ops, key: run(pattern.attend, ops, tok, 1, drop=linear.Dropout(0.25, key)))
    out = np.asarray(attend(ops, jax.random.key(3)))[..., 0]
    for rows, keys in ((out[:, 30:120], 66), (out[:, :8], 400), (out[:, -8:], 400), (out[:, [20, 130]], 400)):
        spread = (0.25 / 0.75 / keys) ** 0.5
        assert abs(rows.mean() - 1) < 5 * spread / rows.size**0.5
        assert 0.5 * spread < rows.std() < 1.5 * spread
    steps = out[:, 8:-8].reshape(2, 48, 8, N)
    flat = np.concatenate([steps.transpose(0, 1, 3, 2).reshape(-1, 8), out[:, :8].swapaxes(1, 2).reshape(-1, 8)])
    assert len({row.tobytes() for row in flat}) == len(flat)
    np.testing.assert_array_equal(np.asarray(attend(ops, jax.random.key(3)))[..., 0], out)
    whole = jax.jit(lambda ops: run(pattern.attend, ops, tok, 1))(ops)
    np.testing.assert_allclose(whole, 1, rtol=1e-6)


@pytest.mark.heavy
def test_many_steps_of_the_real_size():
    pattern = make({"name": "bigbird", "block_size": 24, "num_random_blocks": 2, "global_tokens": "cls"})
    segment = np.ones((3, 1203), int)
    segment[1, 700:] = segment[2, :190] = 0
    mask = np.zeros_like(segment)
    mask[[0, 1, 2], [0, 77, 1202]] = 1
    compare(pattern, operands(pattern, segment.shape), toks(segment, pattern, mask), layer_count=1)


def test_a_model_reads_long_texts_and_its_layers_draw_for_themselves():
    """Extended as users do; in bfloat16 too."""
    m = model.initialise(CFG, ()).extend(attention={"name": "bigbird", "block_size": 4, "num_random_blocks": 1})
    ids = np.random.default_rng(0).integers(1, 20, (2, 150))
    out = np.asarray(m.encode({"input_ids": ids}))
    assert out.shape == (2, 150, D) and np.isfinite(out).all()
    other = m.extend(attention={"name": "bigbird", "block_size": 4, "num_random_blocks": 1, "seed": 1})
    assert np.abs(np.asarray(other.encode({"input_ids": ids})) - out).max() > 1e-3
    pattern = make({"name": "bigbird", "block_size": 4, "num_random_blocks": 1})
    ops, tok = operands(pattern, (2, 150)), toks(np.ones((2, 150), int))
    first, second = (np.asarray(jax.jit(lambda ops, n: run(pattern.attend, ops, tok, n))(ops, n)) for n in range(2))
    assert np.abs(first - second).max() > 1e-2
    half = jax.tree.map(lambda x: x.astype(jnp.bfloat16), ops)
    got = jax.jit(lambda ops: run(pattern.attend, ops, tok, 0))(half)
    assert got.dtype == jnp.bfloat16 and np.abs(np.asarray(got, np.float32) - first).max() < 0.05


WRONG = [
    *[({"block_size": w}, "block_size=.*whole numbers from 1 to 1048576") for w in (0, -2, 2.0, True, "64", None)],
    *[({"num_random_blocks": w}, "num_random_blocks=.*whole numbers from 0 to 1024") for w in (-1, 1.5, True, 1025)],
    *[({"seed": w}, "seed=.*whole numbers from 0 to 4294967295") for w in (-1, 2**32, 0.5, None)],
    ({"global_blocks": 1}, "global_blocks=1, allowed are True, False"),
    ({"hf_compat": "yes"}, "hf_compat='yes', allowed are False, True"),
    ({"global_tokens": "first"}, "global_tokens='first', allowed are 'none', 'cls', 'question', 'explicit'"),
    ({"global_capacity": 3}, 'global_capacity=3 with global_tokens="none"; leave it out, or name a policy'),
    ({"global_tokens": "question"}, "sep_token_id=None with global_tokens='question'; question needs the id"),
    ({"hf_compat": True, "seed": 2}, "hf_compat=True with seed=2; transformers has seed=0 only; leave one out"),
    ({"hf_compat": True, "global_blocks": False}, "hf_compat=True with global_blocks=False; .* leave one out"),
    ({"hf_compat": True, "global_tokens": "cls"}, "hf_compat=True with global_tokens='cls'; .* leave one out"),
    ({"hf_compat": True, "num_random_blocks": 0}, "num_random_blocks=0, allowed are whole numbers from 1 to 1024, as in trans"),
]


@pytest.mark.parametrize("kw, message", WRONG)
def test_bad_options_are_refused(kw, message):
    with pytest.raises(ValueError, match=r"attention\.bigbird: .*" + message):
        bigbird.make(CFG, **kw)


def test_keys_of_other_shapes_and_unasked_global_tokens_are_refused():
    pattern, tok = make({"name": "bigbird"}), toks(np.ones((1, 4), int))
    short = jax.tree.map(lambda x: x[:, :3], tok)
    with pytest.raises(ValueError, match=r"attention.bigbird is for self-attention, not \(1, 4\) queries on \(1, 3\) keys"):
        run(lambda p, call: pattern.attend(p, call._replace(k_tok=short)), operands(pattern, (1, 4)), tok)
    m, ids = model.initialise(CFG, ()).extend(attention={"name": "bigbird"}), np.ones((1, 6), int)
    with pytest.raises(ValueError, match='global_attention_mask, and this attention no global tokens.*"explicit"'):
        m.encode({"input_ids": ids, "global_attention_mask": ids})
