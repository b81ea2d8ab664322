"""Experiment 2: what it compares is what it says, and its small version runs, resumes and writes its files."""

import json
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import e002_inputs, e002_oracle, e002_report
from experiments.e002_oracle import ORACLE, SMALL_ARMS, arms, table
from lpe.models.bert import BertConfig
from lpe.tasks.base import UNUSED


@pytest.mark.heavy
def test_no_method_sees_a_row_beyond_those_it_is_given():
    cfg = BertConfig(hidden_size=16, num_attention_heads=2, max_position_embeddings=42, reserved_rows=2)
    P = jax.random.normal(jax.random.key(0), (42, 16))
    other = P.at[14:].add(1.0)
    for name, arm in arms().items():
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*look untrained")
            a, b = (table(arm, x, 12, 40, cfg) for x in (P, other))
        assert a.shape == (42, 16) and bool((a == b).all()) == bool(arm.method), name


def test_its_own_tables_follow_their_formulas():
    """Rows beyond n of hierarchical r=1 c=1 with another origin or another λ, and half-way to an interpolation."""
    cfg, n, m = BertConfig(hidden_size=16, num_attention_heads=2, max_position_embeddings=40), 12, 40
    P = np.random.default_rng(0).standard_normal((m, 16))
    p, every, k = P[:n], arms(), np.arange(n, m)
    block, place = 1 + (k - n) // (n - 1), 1 + (k - n) % (n - 1)
    made = {name: np.asarray(table(arm, jnp.asarray(P, jnp.float32), n, m, cfg)) for name, arm in every.items()}
    mean = p[place] + 0.4 / 0.6 * (p[1 + block] - p[1:].mean(0))
    typical, offset = (np.median(np.linalg.norm(x, axis=1)) for x in (p, p[2:5] - p[1]))
    lam = 0.25 * typical / offset  # 40 rows of 12 are three blocks beyond the first
    share = p[place] + lam * (p[1 + block] - p[1])
    stretched = 1 + (k - 1) * (n - 1) / (m - 1)  # rows 1 … 11 over places 1 … 39
    low = np.floor(np.minimum(stretched, n - 1)).astype(int)
    pi = p[low] + (np.minimum(stretched, n - 1) - low)[:, None] * (p[np.minimum(low + 1, n - 1)] - p[low])
    mixed = (p[place] + 0.4 / 0.6 * (p[1 + block] - p[1]) + pi) / 2
    want = {
        "hierarchical α=0.4 mean row c=1": mean,
        "hierarchical λ by norm 0.25 r=1 c=1": share,
        "hierarchical α=0.4 r=1 c=1 + interpolate c=1": mixed,
    }
    for name, rows in want.items():
        np.testing.assert_allclose(made[name][n:], rows, atol=1e-5, err_msg=name)
        np.testing.assert_array_equal(made[name][:n], p.astype(np.float32))


def case(**changes):
    return e002_inputs.Case(load=lambda: pytest.fail("loaded"), length=8, count=2, rows=(4,), **changes)


def test_a_place_below_n_is_within_and_unmasked_places_count_nowhere():
    """n = 4: place 3 is within, place 4 beyond. The second input has nothing masked beyond."""
    got = {
        "guess": np.asarray([[10, 11, 0, 13, 14, 0], [10, 0, 0, 0, 0, 0]]),
        "label": np.asarray([[10, 11, 12, UNUSED, 14, 15], [10, 11, 12, UNUSED, UNUSED, UNUSED]]),
        "place": np.asarray([[1, 3, 4, 6, 7, 9], [0, 1, 2, 4, 5, 6]]),
    }
    # a column more than was read, as the whole has where a view reads the beginning alone
    true = {"guess": np.asarray([[10, 0, 0, 13, 0, 0, 7], [0, 0, 0, 0, 0, 0, 7]])}
    want = {
        "accuracy_within": [1, 1 / 3],
        "accuracy_beyond": [1 / 3, np.nan],
        "agreement_within": [1 / 2, 2 / 3],
        "agreement_beyond": [2 / 3, np.nan],
    }
    found = e002_oracle.measures(case(), got, true, 4)
    assert found.keys() == want.keys()
    for name, values in want.items():
        np.testing.assert_allclose(found[name], values, err_msg=name)


def test_without_a_head_the_first_state_is_that_of_place_1():
    """n = 3: the states of places 1 and 2 are within. [CLS], at place 0, is not among them."""
    got = {"states": np.asarray([[[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]])}
    true = {"states": np.asarray([[[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]])}
    found = e002_oracle.measures(case(heads=False), got, true, 3)
    want = {"hidden_within": 1.0, "hidden_beyond": 0.0, "embedding": 0.8}  # (2, 1) · (1, 2) / 5
    assert {k: v.tolist() for k, v in found.items()} == {k: [pytest.approx(v)] for k, v in want.items()}


def row(checkpoint, arm, within, beyond, rows=2, half="report", takes="x", what="accuracy"):
    """A line of results.jsonl with inputs of 8 tokens."""
    about = {"checkpoint": checkpoint, "rows": rows, "half": half, "arm": arm, "length": 8, "table": {"takes": takes}}
    return {**about, f"{what}_within": within, f"{what}_beyond": beyond}


def test_all_places_are_within_and_beyond_by_their_number():
    """2 of 8 places are within."""
    found = e002_report.overall(row("a", "x", [0.8, 0.4, 1.0], [0.4, 0.0, None]))
    assert found[:2] == pytest.approx([0.5, 0.1]) and np.isnan(found[2])


def test_means_are_over_cases_and_the_rule_follows_itself():
    """The rule takes x for a and y for b; c has no MLM head; what reads no place beyond has no mean."""
    rows = [
        row("a", "x", [0.8, 0.4], [0.4, 0.0]),  # 0.5 and 0.1
        row("a", "y", [0.7], [0.7]),
        row("a", "truncated", [0.9], [None]),
        row("b", "x", [0.2], [0.0], rows=4, takes="y"),  # half of the places: 0.1
        row("b", "y", [0.4], [0.6], rows=4, takes="y"),
        row("b", "truncated", [0.9], [None], rows=4, takes="y"),
        row("c", "x", [1.0], [1.0], what="hidden"),
        row("a", "x", [0.4], [0.8], half="develop"),  # 0.7
        row("a", "y", [0.6], [0.6], half="develop"),
    ]
    assert e002_report.means(rows, lambda table: table["takes"], ["develop", "report"])[2:] == [
        "| y | 60.0 | 60.0 | 2 |",
        "| the rule | 70.0 | 40.0 | 2 |",
        "| x | 70.0 | 20.0 | 2 |",
    ]


def test_the_rule_is_judged_minus_each_rival_on_the_same_inputs():
    """With as many places within as beyond, .8 and .6 against .9 and .5: −10 and +10 points in every column but the first."""
    rows = [row("a", arm, [0.9, 0.5], [0.9, 0.5], rows=4) for arm in e002_report.RIVALS]
    rows[0] |= {"accuracy_within": [0.3, 0.3], "accuracy_beyond": [0.5, 0.3]}  # .4 and .3
    rows.append(row("a", "x", [0.8, 0.8], [0.8, 0.4], rows=4) | {"rows_l2": 1.0})
    line = e002_report.judged(rows, lambda table: table["takes"], "report")[2]
    same = " | ".join(["+0.0 ± 10.0"] * (len(e002_report.RIVALS) - 1))
    assert line == f"| a | 4 | x | 70.0 ± 10.0 | +35.0 ± 5.0 | {same} | x: 70.0 ± 10.0 |"


@pytest.mark.heavy
def test_a_model_with_other_rows_is_the_extended_model(mini):
    options = {"name": "hierarchical", "alpha": 0.2, "reference_row": 1, "pin_rows": 1}
    cfg = mini.config
    made = table(e002_oracle.Arm(options), mini.params["position"]["table"], 32, 122, cfg)
    batch = {"input_ids": np.random.default_rng(0).integers(5, cfg.vocab_size, (1, 122))}
    want = mini.extend(max_length=122, position={**options, "trained_rows": 32}).mlm_logits(batch)
    got = e002_oracle.with_table(mini, made).mlm_logits(batch)
    assert jnp.abs(got - want).max() < 1e-4
    assert jnp.abs(mini.mlm_logits(batch) - want).max() > 1.0


def test_the_halves_share_no_antibody_and_no_sequence_is_a_part_of_another():
    heavy = e002_inputs.antibodies((True,))
    a, b = (set(heavy(half, 9, np.random.default_rng(0))) for half in e002_inputs.HALVES)
    assert len(a) == 2 and len(b) == 1 and not a & b
    assert all(x == y or x not in y for x in a | b for y in a | b)


@pytest.mark.heavy
def test_the_small_version_runs_and_goes_on(tmp_path):
    e002_oracle.run(tmp_path, list(e002_inputs.HALVES), small=True)
    file = tmp_path / "results.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines()
    rows = [json.loads(x) for x in lines]
    assert len(rows) == 2 * len(SMALL_ARMS) == len({(r["half"], r["arm"]) for r in rows})
    for r in rows:
        assert len(r["accuracy_beyond"]) == 2
        assert (r["agreement_within"] == [1.0, 1.0] == r["agreement_beyond"]) == (r["arm"] == ORACLE)
    text = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert all(f"| {arm} |" in text for arm in SMALL_ARMS) and (tmp_path / "beyond.png").stat().st_size > 10_000
    file.write_text("\n".join(lines[:-2]) + "\n" + lines[-2][:40], encoding="utf-8")  # killed within a line
    e002_oracle.run(tmp_path, list(e002_inputs.HALVES), small=True)
    assert file.read_text(encoding="utf-8").splitlines() == lines
