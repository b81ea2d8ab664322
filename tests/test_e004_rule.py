"""Experiment 4: the rule does what its words say, halves and folds are apart, and the small version runs and goes on."""

import json

import numpy as np
import pytest

import lpe
from experiments import e004_inputs, e004_report, e004_rule
from lpe import metrics, positions


def test_a_share_is_the_length_of_the_offsets_in_rows():
    rows = np.random.default_rng(0).normal(size=(16, 8)) * np.linspace(1, 2, 16)[:, None]
    for r, c in ((0, 0), (1, 1)):
        alpha = e004_rule.by_norm(rows, 40, 0.75, r, c)
        made = positions.extend_table(rows, 40, alpha=alpha, reference_row=r, pin_rows=c)
        offsets = np.stack([made[16 + b * (16 - c)] for b in range(2)]) - rows[c]
        got = np.median(np.linalg.norm(offsets, axis=1)) / np.median(np.linalg.norm(rows, axis=1))
        assert got == pytest.approx(0.75, rel=1e-2), (r, c)


def test_the_rule_makes_the_median_offset_of_the_blocks_in_use_one_and_a_half_rows():
    """60 tokens of 16 rows are three blocks beyond the first, so the offsets of rows 1, 2 and 3 from row 0 count."""
    rows = np.random.default_rng(1).normal(size=(16, 8)) * np.linspace(1, 2, 16)[:, None]
    typical, offset = (np.median([np.sqrt((x**2).sum()) for x in each]) for each in (rows, rows[1:4] - rows[0]))
    found = e004_rule.rule(rows, 60)
    assert (found["reference_row"], found["pin_rows"]) == (0, 0)
    lam = found["alpha"] / (1 - found["alpha"])
    assert lam * offset == pytest.approx(1.5 * typical, rel=1e-2)  # α has three decimals
    far = rows * np.where(np.arange(16) > 3, 1.0, 5.0)[:, None]  # longer offsets need a smaller λ
    assert e004_rule.rule(far, 60)["alpha"] < found["alpha"]


def test_halves_and_folds_share_no_molecule_and_no_gene():
    a, b = (set(".".join(e004_inputs.molecules(half)).split(".")) for half in e004_inputs.HALVES)
    assert min(len(a), len(b)) > 1000 and len(a & b) < 0.02 * len(a)  # salts, and bases of salts
    gene = {x: name for name, alleles in e004_inputs.segments("V").items() for x in alleles}
    seen: dict[str, set] = {}
    for half in e004_inputs.HALVES:
        for i, domain in enumerate(e004_inputs.domains(half)):
            for v in (x for x in gene if domain.startswith(x)):
                seen.setdefault(v, set()).add((half, i % e004_inputs.FOLDS))
    shared = {gene[v] for v, where in seen.items() if len(where) > 1}
    assert len(seen) > 50 and all(name.startswith(("IGHV3-30", "IGHV3-33")) for name in shared)  # one gene's copies


@pytest.mark.heavy
def test_a_cut_checkpoint_is_the_whole_one_on_short_inputs(tmp_path):
    cut, whole = e004_inputs.folders("bert-mini", e004_inputs.SMALL["bert-mini"], tmp_path)
    short, long = lpe.from_pretrained(cut), lpe.from_pretrained(whole)
    ids = np.random.default_rng(0).integers(5, short.config.vocab_size, (1, 40))
    assert (short.max_length, long.max_length) == (32, 128)
    assert np.abs(short.mlm_logits({"input_ids": ids[:, :32]}) - long.mlm_logits({"input_ids": ids[:, :32]})).max() < 1e-4
    with pytest.raises(ValueError, match="longer than the 32 positions"):
        short.mlm_logits({"input_ids": ids})


def test_differences_are_paired_by_fold():
    rows = [
        {"checkpoint": "x", "arm": arm, "fold": fold, "before": 0.0, "after": after}
        for arm, values in (("a", (0.5, 0.9)), ("b", (0.8, 0.3)))
        for fold, after in reversed(list(enumerate(values)))
    ]
    found = e004_report.of(rows, "x")
    assert e004_report.paired(found, "a", "b", "after") == "+15.0 ± 45.0"
    assert e004_report.shown(found["a"]["after"]) == "70.0 ± 20.0" and e004_report.paired(found, "a", "c", "after") == "–"


def test_before_is_before_and_differences_are_the_arm_minus_another(tmp_path):
    values = {  # by arm: before and after, of two folds
        "pieces": ((0.6, 0.6), (0.7, 0.9)),
        "hierarchical α=0.4": ((0.2, 0.3), (0.5, 0.6)),
        "the rule": ((0.3, 0.5), (0.45, 0.35)),
    }

    def swept(arm, fold):
        before, after = ({"accuracy": x[fold], "label": "1 × 126", "count": 9} for x in values[arm])
        return {"label": arm, "repeat": fold, "seconds": 1.0, "views": {"full": {"before": before, "after": after}}}

    about = {"checkpoint": "x", "n": 64, "steps": 1, "batch_size": 1, "length": 128, "learning_rate": 0.1, "examples": 1}
    about["arms"] = {arm: {"position": {"name": "hierarchical", "alpha": 0.3}} for arm in values}
    e004_report.keep(tmp_path, about, [swept(arm, fold) for fold in (1, 0) for arm in values])
    rows = metrics.read(tmp_path / "results.jsonl")
    cells = "| 40.0 ± 10.0 | 40.0 ± 5.0 | +15.0 ± 5.0 | -15.0 ± 10.0 | -40.0 ± 15.0 | 2 |"
    assert f"| the rule | alpha=0.3 {cells}" in e004_report.checkpoint("x", about, e004_report.of(rows, "x"))
    heads, _, line = e004_report.judged(["x"], rows, "before")
    assert heads == "| checkpoint | the rule | minus hierarchical α=0.4 | minus pieces |"
    assert line == "| x | 40.0 ± 10.0 | +15.0 ± 5.0 | -20.0 ± 10.0 |"
    assert e004_report.judged(["x"], rows, "after")[2] == "| x | 40.0 ± 5.0 | -15.0 ± 10.0 | -40.0 ± 15.0 |"


@pytest.mark.heavy
def test_the_small_version_runs_and_goes_on(tmp_path):
    work, out = tmp_path / "work", tmp_path / "out"
    target = e004_rule.run("report", work, out, [], small=True)
    lines = (target / "results.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(x) for x in lines]
    assert {(r["arm"], r["fold"]) for r in rows} == {
        (arm, fold) for arm in (e004_rule.PIECES, e004_rule.RULE) for fold in (0, 1)
    }
    before = {r["arm"]: r["before"] for r in rows if r["fold"] == 0}
    assert before[e004_rule.PIECES] > 0.4 > before[e004_rule.RULE]  # pieces are what the checkpoint was trained on
    assert any(r["before"] != r["after"] for r in rows)
    text = (target / "table.md").read_text(encoding="utf-8")
    assert "| the rule | alpha=" in text and (target / "rule.png").stat().st_size > 10_000
    assert str(tmp_path) not in text + (target / "config.json").read_text(encoding="utf-8")
    swept = work / "report" / "bert-mini" / "results.jsonl"
    swept.write_text("".join(swept.read_text(encoding="utf-8").splitlines(keepends=True)[:-1]), encoding="utf-8")
    e004_rule.run("report", work, out, [], small=True)
    again = (target / "results.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(again) == len(lines) and again[:-1] == lines[:-1]
