"""Static lengths with little padding, and a plan of batches that is a function of seed and number."""

import itertools
import pickle

import grain
import numpy as np
import pytest

from lpe.data import buckets, sources

LONG = np.clip(np.random.default_rng(0).lognormal(5, 0.8, 20_000), 1, 512).astype(int)


def speeches():
    """Lengths of the embedded speeches, in words, cut to pieces of at most 510."""
    docs = sources.documents({"source": "sotu"})["train"]
    words = [len(d.text.split()) for d in docs]
    return np.asarray([min(510, n - start) for n in words for start in range(0, n, 510)])


def padded(lengths, sizes):
    return sum(min(s for s in sizes if s >= n) for n in lengths)


@pytest.mark.parametrize("count", [1, 2, 3, 9])
def test_the_best_lengths(count):
    lengths = np.random.default_rng(count).integers(1, 38, 30)
    got = buckets.choose(lengths, 37, count=count, multiple=8)
    edges = sorted({min(-(-n // 8) * 8, 37) for n in range(1, lengths.max() + 1)})
    options = [c for k in range(1, count + 1) for c in itertools.combinations(edges, k) if c[-1] >= lengths.max()]
    assert padded(lengths, got) == min(padded(lengths, c) for c in options) and len(got) <= count


@pytest.mark.parametrize("lengths", [LONG, speeches()], ids=["log-normal", "speeches"])
def test_padding_is_under_a_tenth(lengths):
    sizes = buckets.choose(lengths, 512, target=0.05)
    assert 1 - lengths.sum() / padded(lengths, sizes) <= 0.05 and len(sizes) <= 20
    assert len(sizes) == 1 or 1 - lengths.sum() / padded(lengths, buckets.choose(lengths, 512, count=len(sizes) - 1)) > 0.05
    plan = buckets.Plan(lengths, sizes, tokens=4096, multiple_of=2)
    real = sum(int(lengths[b.items].sum()) for b in map(plan.__getitem__, range(plan.per_epoch)))
    places = sum(b.length * len(b.items) for b in map(plan.__getitem__, range(plan.per_epoch)))
    assert 1 - real / places <= plan.padding < 0.1


def test_a_plan_reads_every_item_once_an_epoch_in_static_shapes():
    lengths = LONG[:997]
    plan = buckets.Plan(lengths, (64, 160, 300, 512), tokens=1024, multiple_of=4, seed=3)
    epochs = [[plan[e * plan.per_epoch + i] for i in range(plan.per_epoch)] for e in range(3)]
    for epoch in epochs:
        seen = np.bincount(np.concatenate([b.items for b in epoch]), minlength=997)
        assert seen.min() == 1 and (seen == 2).sum() == plan.repeated < plan.rows[-1] and seen.max() <= 2
        assert all(lengths[b.items].max() <= b.length for b in epoch)
        assert {(b.length, len(b.items)) for b in epoch} == {(64, 16), (160, 4), (300, 4), (512, 4)}
    assert plan.repeated > 0
    orders = [np.concatenate([b.items for b in epoch]) for epoch in epochs]
    assert any((a[:100] != b[:100]).any() for a, b in itertools.combinations(orders, 2))


def test_a_batch_is_a_function_of_seed_and_number():
    made = [buckets.Plan(LONG[:300], (256, 512), tokens=2048, seed=s) for s in (0, 0, 1)]
    numbers = [500, 3, 77, 4, 501]
    a, b = ([made[k][n] for n in order] for k, order in ((0, numbers), (1, numbers[::-1])))
    assert all(x.length == y.length and (x.items == y.items).all() for x, y in zip(a, b[::-1], strict=True))
    assert any(x.items.tolist() != made[2][n].items.tolist() for x, n in zip(a, numbers, strict=True))
    again = pickle.loads(pickle.dumps(made[0]))
    assert (again[77].items == made[0][77].items).all()
    stream = iter(grain.MapDataset.source(made[0])[497:].map(lambda b: b.items).to_iter_dataset())  # as a run resumes
    assert all((next(stream) == made[0][n].items).all() for n in range(497, 520))


def test_fewer_items_than_rows():
    plan = buckets.Plan([5, 6], (8,), tokens=64)
    assert plan.per_epoch == 1 and sorted(plan[0].items) == [0, 0, 0, 0, 1, 1, 1, 1] and plan.repeated == 6


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: buckets.choose([9], 8, count=1), "item 0 has length 9, allowed are 1 to 8"),
        (lambda: buckets.choose([], 8, count=1), "there are no items"),
        (lambda: buckets.choose([9], 16), "count=None, target=None: give one"),
        (lambda: buckets.choose([9, 17], 32, target=0.1), "padding even with .* lengths, wanted were 10.0%; lower multiple=8"),
        (lambda: buckets.Plan([9], (8,), tokens=64), "item 0 has length 9"),
    ],
)
def test_what_does_not_fit(call, message):
    with pytest.raises(ValueError, match=message):
        call()
