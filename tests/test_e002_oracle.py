"""Experiment 2: what it compares is what it says, and its small version runs, resumes and writes its files."""

import json
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import e002_inputs, e002_oracle
from experiments.e002_oracle import ORACLE, SMALL_ARMS, arms, table
from lpe.models.bert import BertConfig


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
