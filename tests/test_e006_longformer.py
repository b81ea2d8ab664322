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
