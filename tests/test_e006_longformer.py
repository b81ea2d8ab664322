"""Experiment 6: bits are the model's own, characters the text's own, arms what they say; the small version goes on."""

import json

import jax
import numpy as np
import pytest

from configs import longformer_table4, longformer_table5
from experiments import e006_longformer, e006_report
from lpe import arms, build
from lpe.data.document import Document
from lpe.data.windows import cut
from lpe.tasks.base import UNUSED


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("e006")
    return e006_longformer.run(folder / "out", folder / "runs", small=True)


def test_characters_are_those_of_the_pieces(mini):
    docs = [Document("The prosperity of our country, 1796! " * 9, "a"), Document("Fellow-citizens of the Senate", "b")]
    pieces = cut(docs, mini.tokenizer, 20)
    got = e006_longformer.widths(docs, mini.tokenizer, pieces)
    for row, ids, real in zip(got, pieces.tokens, pieces.real, strict=True):
        spelled = [x.removeprefix("##") for x in mini.tokenizer.convert_ids_to_tokens(ids[:real])]
        assert "[UNK]" not in spelled
        assert row.tolist() == [len(x) for x in spelled] + [0] * (20 - real)
    assert got.sum() == sum(len(d.text.replace(" ", "")) for d in docs)


@pytest.mark.parametrize("config", [longformer_table4, longformer_table5])
def test_every_arm_can_be_built(config):
    whole = config.get_config().to_dict()
    assert len(named := arms.named(whole)) == 8
    for _, arm in named:
        arms.check(arm)


def test_widths_have_one_mean_and_two_heads_of_the_upper_half_are_dilated():
    patterns = dict(longformer_table4.get_config().arms)
    for name, over in patterns.items():
        widths = over["attention"]["attention_window"]
        assert np.mean(widths) == float(name.rpartition(" ")[2])
        steps = np.sign(np.diff(widths)).tolist()
        assert steps == [{"g": 1, "f": 0, "s": -1}[name[0]]] * 3
    dilated = patterns["growing, 2 heads dilated, mean 32"]["attention"]["dilation"]
    assert [sum(g > 1 for g in np.ravel(x)) for x in dilated] == [0, 0, 2, 2]


def test_differences_are_paired_and_errors_are_of_their_unit():
    tokens, a = np.asarray([2.0, 3.0]), np.asarray([[4.0, 6.0], [6.0, 12.0]])
    assert e006_report.over_seeds(a, tokens) == pytest.approx((2.8, 0.8))
    assert e006_report.over_windows(a, tokens) == pytest.approx((2.8, 0.24))
    b = a - np.asarray([[1.0, 1.0], [1.0, 1.0]])
    assert e006_report.over_seeds(a - b, tokens) == pytest.approx((0.4, 0.0))
    assert e006_report.over_seeds(a[:1], tokens) == (2.0, None)
    assert e006_report.shown((0.5, 0.0126), signed=True) == "+0.500 ± 0.013" and e006_report.shown((2.0, None)) == "2.000 ± ?"


def page(bits, right=None):
    """Of two windows with 2 masked tokens each. bits: by table, arm and step, for each seed and window."""
    rows = [
        {
            "table": key[0],
            "arm": key[1],
            "step": key[2],
            "seed": seed,
            "bits": x,
            "right": (right or bits)[key][seed],
            "read": "1",
        }
        for key, seeds in bits.items()
        for seed, x in enumerate(seeds)
    ]
    return e006_report.page({"tokens": [2, 2], "characters": [4, 4]}, rows)


def test_table_5_is_an_arm_minus_what_its_head_says():
    """Bits of two seeds and two windows. After tuning copied rows have −1 and −3 of 4 tokens against the untouched model."""
    rate, best, rows = ", rate 0.001", "copied rows, all weights", "copied rows, new rows only"
    before = {"in pieces, all weights": [[4, 4]] * 2, best: [[5, 7]] * 2, rows: [[5, 7]] * 2, "random rows": [[8, 8]] * 2}
    after = {
        "in pieces, all weights": [[4, 4]] * 2,
        best: [[3, 4], [3, 2]],
        rows: [[4, 5], [5, 2]],
        "random rows": [[7, 7]] * 2,
    }
    steps = {0: before, 1: before, 2: after}
    p = page({("table5", arm + rate, step): x for step, arms in steps.items() for arm, x in arms.items()})
    first = [line.strip("| ").split(" | ")[3] for line in e006_report.starts(p)[2:-1]]
    # +1 and +3 of the windows of 2: the mean of 4 tokens is 1, the residuals −1 and 1, √(2 · 2 / 1) / 4 = .5
    assert first == ["–", "+2.000 ± 0.000", "+1.000 ± 0.500"]
    lines = e006_report.tuned(p)
    assert lines[0].split(" | ")[4:6] == ["minus untouched, in pieces", "minus copied rows, all weights"]
    less = {cells[0]: cells[4:6] for cells in (line.strip("| ").split(" | ") for line in lines[2:-1])}
    # seeds −1/4 and −3/4; windows −1 and −1 in the mean of the seeds
    assert less[best] == ["-0.500 ± 0.250 (0.000)", "–"]
    # against the copied rows with all weights: (1 + 1) / 4 and (2 + 0) / 4; windows 1.5 and .5, residuals ±.5
    assert less[rows][1] == "+0.500 ± 0.000 (0.250)"
    assert less["random rows"] == ["+1.500 ± 0.000 (0.000)", "+2.000 ± 0.250 (0.000)"]


def test_table_4_is_the_first_pattern_minus_the_second():
    bits = {
        ("table4", "growing, mean 32", 0): [[2, 2]] * 2,
        ("table4", "fixed, mean 32", 0): [[3, 5]] * 2,
        ("table4", "shrinking, mean 32", 0): [[6, 6]] * 2,
        ("table4", "growing, mean 32", 40): [[2, 2], [4, 2]],
        ("table4", "fixed, mean 32", 40): [[1, 2], [2, 2]],
        ("table4", "shrinking, mean 32", 40): [[3, 2], [4, 2]],
    }
    found = e006_report.ablation(page(bits))
    assert found[found.index("") + 1 :] == [
        "| bits per token | before | after 40 steps |",
        "|---|---|---|",
        "| growing minus fixed, mean 32 | -1.000 ± 0.500 | +0.375 ± 0.125 (0.375) |",  # seeds 1/4 and 2/4; windows 1.5, 0
        "| shrinking minus fixed, mean 32 | +1.000 ± 0.500 | +0.500 ± 0.000 (0.500) |",  # 2/4 and 2/4; 2, 0
        "| growing minus shrinking, mean 32 | -2.000 ± 0.000 | -0.125 ± 0.125 (0.125) |",  # −1/4 and 0; −.5, 0
        "",
    ]


def test_tau_is_negative_where_fewer_bits_are_more_right():
    """Of four evaluations' six pairs one is in the other order: (5 − 1) / 6."""
    bits = {("table5", "a", step): [[2 * step, 1]] for step in range(4)}
    falls = {key: [[right, 0]] for key, right in zip(bits, (9, 8, 6, 7), strict=True)}
    rises = {key: [[right, 0]] for key, right in zip(bits, (6, 7, 9, 8), strict=True)}
    down, up = (e006_report.direction(page(bits, right)) for right in (falls, rises))
    assert "the 4 different evaluations" in down
    assert "accuracy is -0.67: the fewer bits, the more are right" in down
    assert "accuracy is 0.67: no order that is clear." in up


def test_bits_of_the_untouched_model_are_those_of_its_own_scores(small, mini):
    windows, *rows = map(json.loads, (small / "results.jsonl").read_text(encoding="utf-8").splitlines())
    config = longformer_table5.get_config("debug").to_dict()
    task = build.task(config["task"], build.network(mini.recipe))
    docs = e006_longformer.sources.documents(config["data"])["heldout"]
    pieces = task.prepare(docs, mini.tokenizer)
    want, counts = [], []
    for batch in task.dataset(pieces, mini.tokenizer, "pieces", 1, limit=4):
        scores = jax.nn.log_softmax(mini.mlm_logits({k: batch[k] for k in ("input_ids", "attention_mask")}))
        row, slot = np.nonzero(batch["labels"] != UNUSED)
        chosen = scores[row, batch["places"][row, slot], batch["labels"][row, slot]]
        want.append(-float(chosen.sum()) / np.log(2))
        counts.append(len(row))
    (first,) = [r for r in rows if r["arm"].startswith("in pieces") and r["step"] == 0]
    np.testing.assert_allclose(first["bits"], want, rtol=1e-4)
    assert windows["windows"]["tokens"] == counts
    table = (small / "table.md").read_text(encoding="utf-8")
    assert f"| in pieces | 2 × 128 | {sum(want) / sum(counts):.3f} ± " in table


def test_the_small_version_has_every_arm_and_goes_on(small):
    rows = [json.loads(x) for x in (small / "results.jsonl").read_text(encoding="utf-8").splitlines()][1:]
    assert [r["step"] for r in rows] == [0, 1, 2] * 4 and len({r["arm"] for r in rows}) == 4
    by_arm = {r["arm"].split(",")[0]: r["bits"] for r in rows if r["step"] == 0 and r["table"] == "table5"}
    assert sum(by_arm["copied rows"]) < sum(by_arm["random rows"])
    made = ("results.jsonl", "table.md")
    before = [(small / f).read_text(encoding="utf-8") for f in made]
    logs = {p: p.read_bytes() for p in (small.parent / "runs").rglob("metrics.jsonl")}
    (small / "table.md").unlink()
    e006_longformer.run(small, small.parent / "runs", small=True)
    assert [(small / f).read_text(encoding="utf-8") for f in made] == before and (small / "bits.png").stat().st_size > 10_000
    assert len(logs) == 4 and all(p.read_bytes() == x for p, x in logs.items())  # with their seconds: nothing ran again
