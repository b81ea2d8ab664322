"""verify: what holds is said to hold, exactly, and every planted error breaks its own promise."""

import dataclasses
import json
from types import ModuleType

import jax.numpy as jnp
import numpy as np
import pytest

import lpe
from lpe import build, model, params
from lpe.attention import chunked
from lpe.model import Companions, Model
from lpe.models.bert import BertConfig
from lpe.positions import copy
from lpe.verification import __main__ as command
from lpe.verification import comparison, provenance
from lpe.verification.findings import Check, Report
from tests import assets

CFG = BertConfig(
    vocab_size=31, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
    max_position_embeddings=8, initializer_range=0.5,
)  # fmt: skip
RAW = {"license": "apache-2.0", "model_type": "bert"}
PROMISED = {
    "weights",
    "short inputs",
    "vectors",
    "method's rows",
    "short vectors",
    "full length",
    "padding left",
    "padding right",
    "batch",
}


def tiny(heads=(), **changes) -> Model:
    m = model.initialise(dataclasses.replace(CFG, **changes), heads)
    return dataclasses.replace(m, companions=Companions(raw=RAW))


def long(m: Model, **options) -> Model:
    return m.extend(max_length=20, **options)


def by_name(report: Report) -> dict[str, Check]:
    return {c.name: c for c in report.checks}


def broken(report: Report) -> set[str]:
    assert report.ok is (not report.broken) and len(report.broken) == sum(c.ok is False for c in report.checks)
    return {c.name for c in report.checks if c.ok is False}


IDENTITY = [
    {"name": "hierarchical"},
    {"name": "hierarchical", "alpha": 0.3, "pin_rows": 1, "reference_row": 1, "materialize": True},
    {"name": "copy"},
    {"name": "random"},
    {"name": "preserve_short"},
]


@pytest.mark.parametrize("position", IDENTITY, ids=lambda p: "-".join(map(str, p.values())))
def test_short_inputs_are_exactly_as_before(position):
    heads = () if position != IDENTITY[0] else ("mlm", "pooler", "classifier")
    m = tiny(heads)
    report = lpe.verify(m, long(m, position=position))
    assert report.ok and {c.name for c in report.checks if c.ok} == PROMISED | {"licence"}
    assert by_name(report)["short inputs"].data["largest"] == dict.fromkeys(
        ["hidden states", *(h for h in heads if h != "pooler")], 0.0
    )


def test_short_inputs_of_bert_mini_are_exactly_as_before(mini):
    report = lpe.verify(mini, mini.extend(max_length=256))
    assert report.ok and by_name(report)["short inputs"].data["largest"] == {"hidden states": 0.0, "mlm": 0.0}
    assert "128–255: new" in str(report) and 15 <= len(str(report).splitlines()) <= 32


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"position": {"name": "interpolate"}}, "'interpolate' gives short inputs other vectors"),
        ({"position": {"name": "grouped"}}, "'grouped' gives short inputs other vectors"),
        ({"attention": {"name": "window", "attention_window": 4}}, "another attention pattern"),
    ],
)
def test_what_is_not_promised_is_measured(change, reason):
    m = tiny()
    report = lpe.verify(m, long(m, **change))
    short = by_name(report)["short inputs"]
    assert report.ok and short.ok is None and reason in short.promised and short.data["largest"]["hidden states"] > 1e-3


def with_params(m: Model, path: str, change) -> Model:
    flat = params.flatten(m.params)
    return dataclasses.replace(m, params=params.nest({**flat, path: change(flat[path])}))


def test_a_changed_weight_is_seen_and_allowed_only_where_it_was_tuned():
    m = tiny()
    other = with_params(long(m), "layers/output/bias", lambda x: x.at[0, 0].add(0.5))
    report = lpe.verify(m, other)
    assert broken(report) == {"weights", "short inputs"} and "by up to 5.0e-01 (layers/output/bias)" in str(report)
    report = lpe.verify(m, other, tuned=True)
    assert report.ok and by_name(report)["weights"].data["differ"] == ["layers/output/bias"]
    assert by_name(report)["short inputs"].promised == "tuned since"


def test_a_changed_row_is_seen():
    m = tiny()
    report = lpe.verify(m, with_params(long(m), "position/table", lambda x: x.at[3, 0].add(1e-3)))
    assert broken(report) == {"short inputs", "method's rows", "short vectors"}
    assert "positions 0–7 differ, the first at 3" in str(report)
    assert by_name(report)["provenance"].data["repeat_a_row"] == 7


def test_a_vector_that_is_not_finite_is_seen():
    m = tiny()
    report = lpe.verify(m, with_params(long(m, position={"name": "random"}), "position/table", lambda x: x.at[19].set(jnp.nan)))
    assert broken(report) == {"vectors", "full length"} and "1 not finite, the first at position 19" in str(report)
    json.dumps(report.as_dict(), allow_nan=False)


def test_scores_that_are_not_finite_are_seen_even_of_a_tuned_model():
    m = tiny(("mlm",))
    report = lpe.verify(m, with_params(long(m), "mlm_head/bias", lambda x: x.at[3].set(jnp.nan)), tuned=True)
    assert broken(report) == {"full length"} and "8 values of mlm not finite" in str(report)


def test_untrained_rows_are_read_only_where_a_table_is():
    """A table whose second half the initialiser has left."""
    draw = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
    draw[:32] = 2.0 * np.cumsum(draw[:32], axis=0)
    m = tiny(hidden_size=64, max_position_embeddings=64, initializer_range=1.0)
    m = with_params(m, "position/table", lambda x: jnp.asarray(draw))
    with pytest.warns(UserWarning, match="rows 32 to 63 of this table look untrained"):
        after = m.extend(max_length=80, position={"name": "copy"})
    assert by_name(lpe.verify(m, after))["trained rows"].data["untrained_rows_read"] == 32
    after = m.extend(max_length=80, position={"name": "sinusoidal"})
    assert by_name(lpe.verify(m, after))["trained rows"].data["untrained_rows_read"] == 0


def test_the_command_ends_with_1_where_a_promise_is_broken(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command.cli, "setup", lambda: None)
    m = tiny()
    m.save_pretrained(tmp_path / "before")
    long(m).save_pretrained(tmp_path / "after")
    with_params(long(m), "layers/output/bias", lambda x: x + 1).save_pretrained(tmp_path / "wrong")
    flags = ["verification", f"--before={tmp_path / 'before'}"]
    command.main([*flags, f"--after={tmp_path / 'after'}", f"--json={tmp_path / 'report.json'}"])
    assert "promises hold" in capsys.readouterr().out and json.loads((tmp_path / "report.json").read_text())["ok"]
    with pytest.raises(SystemExit) as stopped:
        command.main([*flags, f"--after={tmp_path / 'wrong'}"])
    assert stopped.value.code == 1 and "BROKEN: weights" in capsys.readouterr().out
    for wrong, message in (
        (flags, "--after missing"),
        ([*flags, "--aftr=x"], "unknown flag --aftr; did you mean --after?"),
    ):
        with pytest.raises(SystemExit, match=message):
            command.main(wrong)


def patched(monkeypatch, module: ModuleType, change) -> None:
    """The method with a fault; callers name options that no other test has, so that nothing is compiled already."""
    make = module.make
    monkeypatch.setattr(module, "make", lambda cfg, *, max_length=None, chunk_size=512, **kw: change(
        make(cfg, **({"max_length": max_length} if module is copy else {"chunk_size": chunk_size}), **kw)
    ))  # fmt: skip


def test_a_method_that_moves_short_inputs_is_seen(monkeypatch):
    patched(
        monkeypatch,
        copy,
        lambda f: f._replace(embed=lambda p, x, tok: f.embed(p, x, tok) + 1e-3 * (tok.position == 2)[..., None]),
    )
    m = tiny()
    report = lpe.verify(m, m.extend(max_length=19, position={"name": "copy"}))
    assert broken(report) == {"short inputs", "short vectors"}
    assert [str(provenance.Range(*r.values())) for r in by_name(report)["provenance"].data["ranges"][:3]] == [
        "0–1: rows 0–1", "2: new, computed or drawn", "3–7: rows 3–7",
    ]  # fmt: skip


def test_a_method_whose_rows_are_others_is_seen(monkeypatch):
    patched(monkeypatch, copy, lambda f: f._replace(rows=np.roll(f.rows, 1)))
    m = tiny()
    report = lpe.verify(m, long(m, position={"name": "copy"}))
    assert broken(report) == {"method's rows"}


def test_padding_that_a_pattern_claims_to_bear_is_tried(monkeypatch):
    m = tiny()
    attention = {"name": "chunked", "chunk_size": 5}
    report = lpe.verify(m, long(m, attention=attention))
    left = by_name(report)["padding left"]
    assert report.ok and left.ok is None and max(left.data["largest"].values()) > 1e-3 and "claims none" in left.promised
    patched(monkeypatch, chunked, lambda f: f._replace(claims=frozenset({"padding_invariant"})))
    assert broken(lpe.verify(m, long(m, attention=attention))) == {"padding left"}


def test_rows_that_other_rows_change_are_seen(monkeypatch):
    def mixed(f):
        return f._replace(embed=lambda p, x, tok: f.embed(p, x, tok) + 1e-2 * x[-1:, :1])

    patched(monkeypatch, copy, mixed)
    m = tiny()
    assert "batch" in broken(lpe.verify(m, m.extend(max_length=17, position={"name": "copy"})))


def test_a_lost_licence_is_seen():
    m = tiny()
    after = dataclasses.replace(long(m), companions=Companions(raw={"model_type": "bert"}))
    assert broken(lpe.verify(m, after)) == {"licence"}


def test_json(tmp_path):
    m = tiny()
    report = lpe.verify(m, long(m))
    report.save(tmp_path / "verify.json")
    found = json.loads((tmp_path / "verify.json").read_text(encoding="utf-8"))
    assert found == json.loads(json.dumps(report.as_dict())) and found["ok"] is True and found["broken"] == []
    ranges = next(c for c in found["checks"] if c["name"] == "provenance")["ranges"]
    assert [(r["start"], r["stop"], r["rows"]) for r in ranges] == [(0, 8, [0, 7]), (8, 20, None)]


def test_reserved_rows_are_kept_and_are_no_positions():
    m = tiny(max_position_embeddings=10, reserved_rows=2, pad_token_id=1)
    after = long(m, position={"name": "copy"})
    report = lpe.verify(m, after)
    assert report.ok and by_name(report)["reserved rows"].ok and "0–15: rows 0–7, 2 times over" in str(report)
    assert "16–19: rows 0–3" in str(report)
    moved = with_params(after, "position/table", lambda x: x.at[0, 0].add(1.0))
    assert broken(lpe.verify(m, moved)) == {"reserved rows", "method's rows"}


def test_rotary_positions_have_no_vectors_and_promise_nothing_for_short_inputs():
    m = model.initialise(CFG, ())
    weights = {k: x for k, x in m.params.items() if k != "position"}
    m = dataclasses.replace(m, params=weights, recipe=m.recipe._replace(position=build.positions({"name": "rope"})))
    report = lpe.verify(m, m.extend(position={"name": "rope_yarn", "max_length": 20}))
    checks = by_name(report)
    assert report.ok and checks["short inputs"].ok is None and "no vectors" in checks["provenance"].measured
    assert checks["max_length"].measured == "no limit → 20 tokens" and "short vectors" not in checks


@pytest.mark.heavy  # which has the compiler's optimisations: without a branch around the positions, 4e-7 is lost there
@pytest.mark.parametrize("name", ["hierarchical", "random", "preserve_short"])
def test_short_inputs_are_exactly_as_before_where_xla_optimises(name):
    m = tiny(("mlm",), num_hidden_layers=2, initializer_range=0.02)
    report = lpe.verify(m, long(m, position={"name": name}))
    assert report.ok and by_name(report)["short inputs"].data["largest"] == {"hidden states": 0.0, "mlm": 0.0}


@pytest.mark.heavy
def test_real_weights():
    m = lpe.from_pretrained(assets.path("minilm"))
    report = lpe.verify(m, m.extend(max_length=1024), length=640)
    checks = by_name(report)
    assert report.ok and checks["short inputs"].data["largest"] == {"hidden states": 0.0}
    assert "checked at 640 of 640 tokens" in str(report)


@pytest.mark.parametrize(
    ("spec", "length", "shown"),
    [
        ({"name": "hierarchical"}, 16384, ["0–127: rows 0–127", "128–16,383: new, computed or drawn"]),
        ({"name": "copy"}, 300, ["0–255: rows 0–127, 2 times over", "256–299: rows 0–43"]),
        ({"name": "copy", "pin_rows": 1}, 300, ["0–127: rows 0–127", "128–254: rows 1–127", "255–299: rows 1–45"]),
        ({"name": "grouped"}, 384, ["0–383: rows 0–127, 3 places each"]),
        ({"name": "grouped"}, 192, ["0–191: rows 0–127, 1.5 places each"]),
        (
            {"name": "interpolate", "align": "pi"},
            384,
            ["0–380: rows 0–126 at 127 of the places, new between", "381–383: row 127"],
        ),
        ({"name": "preserve_short"}, 256, ["0–255: rows 0–127 at 129 of the places, new between"]),
    ],
    ids=lambda x: str(x)[:40],
)
def test_ranges(spec, length, shown):
    rows = np.random.default_rng(0).normal(size=(128, 8)).astype(np.float32)
    cfg = dataclasses.replace(CFG, max_position_embeddings=128, hidden_size=8)
    method = build.registry.make("positions", {**spec, "max_length": length}, cfg)
    found = provenance.trace(provenance.vectors(method, {"table": jnp.asarray(rows)}, 8, length, length), rows)
    assert len(found.source) == length and not len(found.bad)
    assert [str(r) for r in provenance.ranges(found.source)] == shown


def test_no_limit_is_looked_at_as_far_as_said(monkeypatch):
    monkeypatch.setattr(provenance, "LIMIT", 2**14)
    m = tiny()
    report = lpe.verify(m, m.extend(position={"name": "copy"}))
    checks = by_name(report)
    assert "16,384 positions (of no limit; those after were not looked at)" in checks["vectors"].measured
    assert checks["full length"].data == {"checked": 32, "wanted": 32, "finite": True}
    assert "0–16,383: rows 0–7, 2,048 times over" in str(report)


def test_what_does_not_fit_is_not_claimed(monkeypatch):
    m = tiny()
    monkeypatch.setattr(comparison, "WORK", 6e4)
    report = lpe.verify(m, long(m))
    assert "checked at 10 of 20 tokens" in str(report) and "give length= to try" in str(report)
    assert "checked at 20 of 20 tokens" in str(lpe.verify(m, long(m), length=20))


def test_the_compiler_is_asked_for_memory(monkeypatch):
    after = long(tiny())
    assert comparison.affordable([after], 20, rows=1) == 20
    monkeypatch.setattr(comparison, "free_memory", lambda: 0)
    assert comparison.affordable([after], 20, rows=1) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: ("no", m, {}), "before is a str, needed is an lpe.Model"),
        (lambda m: (m, None, {}), "after is a NoneType"),
        (lambda m: (m, tiny(vocab_size=30), {}), "vocab_size is 31 before and 30 after"),
        (lambda m: (m, tiny(hidden_size=8), {}), "hidden_size is 16 before and 8 after"),
        (lambda m: (m, tiny(num_hidden_layers=2), {}), "num_hidden_layers is 1 before and 2 after"),
        (lambda m: (m, m, {"length": 9}), "length=9, allowed are 1 to 8"),
        (lambda m: (m, m, {"length": 0}), "length=0, allowed are whole numbers from 1"),
        (lambda m: (m, m, {"length": True}), "length=True"),
        (lambda m: (m, dataclasses.replace(m, recipe=m.recipe._replace(family="roberta")), {}), "family is 'bert' before"),
    ],
)
def test_wrong_arguments_are_refused(change, message):
    before, after, options = change(tiny())
    with pytest.raises(ValueError, match=message):
        lpe.verify(before, after, **options)
