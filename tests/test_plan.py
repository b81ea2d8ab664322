"""The plan: its rows can be built and cost what they say, what it knows was measured, its rule is the one that it states."""

import json
import logging
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import bench_encode, known_results
from lpe import assets, build, costs, params, plan
from lpe.build import Recipe
from lpe.models.bert import BertConfig
from lpe.planning import advice, articles, feasible, known

TINY = BertConfig(
    vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, max_position_embeddings=16
)
LEARNED = Recipe("bert", TINY, ())
ROTARY = LEARNED._replace(family="nomic_bert", position=build.positions({"name": "rope"}))
COPY = build.positions({"name": "copy"}, 256)


def names(ways: feasible.Feasible) -> set[str]:
    return {w.position["name"] for w in ways.found}


@pytest.mark.parametrize(
    ("text", "size"), [("16GB", 16 * 10**9), ("512MB", 512 * 10**6), ("1.5GiB", 3 * 2**29), ("2 tb", 2 * 10**12)]
)
def test_memory_is_read(text, size):
    assert plan.size(text) == size


@pytest.mark.parametrize("text", ["lots", "16", "-1GB", "0GB", "1XB", "GB", "1e3MB"])
def test_memory_that_is_none_is_refused(text):
    with pytest.raises(ValueError, match=f"--memory='{re.escape(text)}', allowed is a number above 0 with one of KB, MB, GB"):
        plan.size(text)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"--from": "no/where/at/all"}, "is no folder, no hub id"),
        ({"--length": "0"}, "--length=0, allowed are whole numbers from 1"),
        ({"--length": "-5"}, "--length=-5, allowed are whole numbers from 1"),
        ({"--length": "16385", "--positions": "hierarchical"}, "max_length=16385, allowed are whole numbers from 1 to 16384"),
        ({"--memory": "lots"}, "--memory='lots'"),
        ({"--memory": None}, "--memory missing"),
        ({"--device": "abacus"}, "--device='abacus' is not known"),
        ({"--device": "tpu"}, "JAX finds none here, it has cpu; a plan is compiled and timed on the machine that it is for"),
        ({"--positions": "hierarchcal"}, "did you mean 'hierarchical'"),
        ({"--positions": "ntk"}, "A learned table has no base"),
        ({"--attentions": "windw"}, "did you mean 'window'"),
        ({"--dtype": "int8"}, "--dtype='int8' is not known"),
        ({"--chunk_size": "-1"}, "--chunk_size=-1, allowed are whole numbers from 0"),
        ({"--from": ""}, "--from needs a value"),
        ({"--positions": ""}, "--positions needs a value"),
        ({"--json": "no/where.json"}, "--json=no/where.json: there is no folder no; make it"),
        ({"--lenght": "3"}, "unknown flag --lenght; did you mean --length?"),
    ],
)
def test_wrong_input_ends_with_one_message(changes, message, monkeypatch):
    monkeypatch.setattr(plan.cli, "setup", lambda: None)
    given = {"--from": "bert-mini", "--length": "256", "--memory": "1GB", **changes}
    with pytest.raises(SystemExit) as stopped:
        plan.main(["plan", *(f"{k}={v}" for k, v in given.items() if v is not None)])
    assert str(stopped.value).startswith("lpe: ") and message in str(stopped.value)


def test_what_needs_no_training_is_planned_and_the_rest_named():
    """Derived from hooks and specs: of a table what makes a table of it, of rotations what rotates."""
    ways = feasible.combinations(LEARNED, 64)
    table = {"copy", "grouped", "hierarchical", "hierarchical_naive", "interpolate", "preserve_short", "random"}
    assert names(ways) == table and {"rope", "sinusoidal", "alibi", "shaw"} <= set(ways.left)
    assert {w.attention["name"] for w in ways.found} == {"full", "window", "chunked", "bigbird"}
    assert not any(w.trains for w in ways.found)
    assert [which for which, _ in ways.refused] == ["learned"]
    ways = feasible.combinations(ROTARY, 64)
    assert {"rope_linear", "rope_ntk", "rope_yarn"} <= names(ways) and not names(ways) & table
    assert "hierarchical" in ways.left and "alibi" in ways.left and "made of other methods" in dict(ways.refused)["by_layer"]
    refused = dict(ways.refused)
    assert "tells no places apart" in refused["logn"]
    assert "causal attention only" in refused["xpos with full, window, chunked, bigbird"]


def test_a_model_says_the_same_of_training(mini, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("lpe"), "propagate", True)
    ways = feasible.combinations(mini.recipe, 256, ("copy", "sinusoidal", "grouped", "alibi"), ("full",))
    for way in ways.found:
        caplog.clear()
        mini.extend(position=way.position)
        assert way.trains == ("they need training" in caplog.text), way.position


def test_patterns_for_training_are_marked_and_what_does_not_go_together_is_refused():
    ways = feasible.combinations(LEARNED, 64, ("copy", "alibi"), ("linear", "star", "full"))
    trains = {(w.position["name"], w.attention["name"]): w.trains for w in ways.found}
    assert trains["copy", "linear"] and trains["copy", "star"] and not trains["copy", "full"] and trains["alibi", "full"]
    assert ("alibi", "linear") not in trains and "needs the hook 'logits'" in dict(ways.refused)["alibi with linear"]


def test_the_checkpoints_own_attention_keeps_its_options():
    own = LEARNED._replace(attention=build.attention({"name": "window", "attention_window": 6}))
    ways = feasible.combinations(own, 64, ("copy",))
    by_name = {w.attention["name"]: w for w in ways.found}
    assert by_name["window"].attention["attention_window"] == 6 and by_name["window"].keeps and not by_name["full"].keeps
    assert by_name["chunked"].attention == {"name": "chunked", "chunk_size": 16}


def test_products_are_those_of_the_models_layers():
    recipe = LEARNED._replace(position=COPY)
    todo = bench_encode.products(TINY, 256, False)
    assert costs.of(recipe, 256).flops == sum(p.flops for p in todo)
    assert 3 * sum(p.flops for p in todo) <= costs.of(recipe, 256, "train").flops <= 4 * sum(p.flops for p in todo)


def test_memory_is_the_compilers_for_a_batch_with_its_mask(mini):
    long = mini.extend(max_length=256, position={"name": "copy"})
    net = build.network(long.recipe)
    batch = {name: jnp.ones((1, 256), jnp.int32) for name in ("input_ids", "attention_mask")}
    memory = jax.jit(lambda w, b: net.encode(w, b)[0]).lower(long.params, batch).compile().memory_analysis()
    cost = costs.of(long.recipe._replace(heads=()), 256)
    total = memory.argument_size_in_bytes + memory.temp_size_in_bytes + memory.output_size_in_bytes
    assert cost.memory == total
    assert cost.parameters == params.count(long.params) - params.count(long.params["mlm_head"])


def test_a_model_larger_than_this_machine_is_counted():
    """Nothing is allocated: 400 layers of 12,288 would take 2.9 TB."""
    cfg = BertConfig(hidden_size=12288, num_hidden_layers=400, num_attention_heads=96, intermediate_size=49152)
    cost = costs.of(Recipe("bert", cfg, (), build.positions({"name": "copy"})), 16)
    assert cost.parameters > 7e11 and cost.memory > 4 * cost.parameters


def test_known_results_are_those_of_the_committed_runs():
    assert assets.KNOWN_RESULTS.read_text(encoding="utf-8") == known_results.made()


def test_what_is_known_is_of_the_same_methods():
    def entry(position, attention, factor, accuracy, places=10):
        spec = {"position": position, "attention": attention, "trained": 128, "factor": factor}
        return {**spec, "accuracy": accuracy, "places": places}

    cls = {"name": "window", "attention_window": 128, "global_tokens": "cls"}
    entries = [
        entry({"name": "interpolate", "kind": "cubic"}, {"name": "full"}, 8, 0.1),
        entry({"name": "interpolate"}, {"name": "full"}, 3, 0.2),
        entry({"name": "interpolate"}, {"name": "full"}, 8, 0.3),
        entry({"name": "copy"}, cls, 8, 0.4),
        entry({"name": "copy"}, cls, 8, 0.5, places=20),
    ]

    def accuracy(position, attention, factor, n=512):
        found = known.quality(entries, position, attention, n, factor)
        return found and found["accuracy"]

    linear = {"name": "interpolate", "max_length": 9, "kind": "linear"}
    assert accuracy(linear, {"name": "full"}, 4) == 0.2
    assert accuracy(linear, {"name": "full"}, 5) == 0.3  # 8 is nearer to 5 than 3, as ratios
    assert accuracy({"name": "grouped"}, {"name": "full"}, 4) is None
    assert accuracy({"name": "copy"}, known.sized("window", 512), 8) == 0.5  # one trained length wide, there as here
    assert accuracy({"name": "copy"}, {**cls, "attention_window": 64}, 8) is None
    assert accuracy({"name": "copy"}, cls, 8) == 0.5 and accuracy({"name": "copy"}, {"name": "window"}, 8) is None


def row(name: str, accuracy: float | None, **changes):
    worth = accuracy and {"accuracy": accuracy, "standard_error": 0.01, "model": "m", "factor": 8.0}
    plain = {
        "fits": True,
        "needs_training": False,
        "seconds": 1.0,
        "memory": 5,
        "same_on_short_inputs": False,
        "in_pieces": False,
    }
    spec = {"position": {"name": name, "max_length": 99}, "attention": {"name": "full"}, "own_attention": True, "parameters": 1}
    return {**spec, **plain, "zero_shot": worth, **changes}


def test_the_rule_is_the_one_stated():
    rows = [
        row("hierarchical", 0.3),
        row("grouped", None, seconds=0.1),
        row("interpolate", 0.9, fits=False),
        row("alibi", 0.9, needs_training=True),
        row("copy", 0.3, seconds=0.5),
        row("random", 0.2, seconds=0.1),
        row("learned", 0.8, in_pieces=True),
    ]
    ranked = advice.ranked(rows)
    assert [r["position"]["name"] for r in ranked] == [
        "copy",
        "hierarchical",
        "random",
        "grouped",
        "learned",
        "alibi",
        "interpolate",
    ]
    pieces = {"model": "m", "read_as": "8 × 16", "accuracy": 0.6, "standard_error": 0.01}
    whole = {"from": "a b", "factor": 8.0, "combinations": ranked, "untouched": pieces}
    said = advice.recommendation(whole, LEARNED)
    assert said["recommended"]["position"]["name"] == "copy" and "is worse than that" in said["reason"]
    assert said["command"] == "python -m lpe.convert '--from=a b' --position=copy --max_length=99 --to=DIR"
    for accuracy, verdict in ((0.61, "no better and no worse, beyond the errors,"), (0.7, "is better than that")):
        ranked[0]["zero_shot"]["accuracy"] = accuracy
        assert verdict in advice.recommendation(whole, LEARNED)["reason"]


@pytest.fixture(scope="module")
def planned():
    chosen = {"positions": ("copy", "hierarchical"), "attentions": ("full", "window")}
    return plan.plan("bert-mini", 256, 10**9, **chosen, claims=False)


def test_what_is_recommended_reads_that_length(planned, mini):
    best = planned["recommended"]
    assert best["position"]["name"] == "copy" and best["zero_shot"]["factor"] == 3  # 3 is nearer to 2 than 8
    long = mini.extend(position=best["position"], attention=best["attention"])
    hidden = long.encode({"input_ids": np.full((1, 256), 7)})
    assert hidden.shape == (1, 256, 128) and bool(jnp.isfinite(hidden).all())
    assert params.count(long.params) - params.count(long.params["mlm_head"]) == best["parameters"]
    command = planned["command"].split()
    assert command[3:] == [
        "--from=bert-mini", "--position=copy", "--max_length=256",
        *([] if best["own_attention"] else ["--attention=window", "--attention_window=128", "--global_tokens=cls"]), "--to=DIR",
    ]  # fmt: skip


def test_the_page_shows_every_row_and_the_file_is_json(planned):
    assert json.loads(json.dumps(planned, allow_nan=False))["trained"] == 128
    page = advice.text(planned)
    table = [line for line in page.splitlines() if line.startswith("|")]
    assert len(table) == 2 + 4 and len({len(line) for line in table}) == 1 and len(table[0]) <= 128
    assert "Rule: of those that fit" in page and planned["command"] in page
    keeps = {(r["position"]["name"], r["attention"]["name"]): r["same_on_short_inputs"] for r in planned["combinations"]}
    assert keeps["hierarchical", "full"] and not keeps["hierarchical", "window"]
    speed = planned["speed"]
    for r in planned["combinations"]:
        assert r["seconds"] == pytest.approx(r["flops"] / speed["flops"] * speed["seconds"])


def test_where_nothing_fits_the_way_out_does(monkeypatch):
    monkeypatch.setattr(plan.costs, "speed", lambda own, length: costs.Speed(1e9, 0.5, 16, 1.0, 1))
    chosen = {"positions": ("copy",), "attentions": ("full",), "claims": False}
    needed = plan.plan("bert-mini", 1024, 10**9, **chosen)["combinations"][0]["memory"]
    nothing = plan.plan("bert-mini", 1024, needed // 2, **chosen)
    assert nothing["recommended"] is None and nothing["command"] == ""
    assert "--dtype=bfloat16: " in nothing["reason"] and "--chunk_size=512 --dtype=bfloat16: " in nothing["reason"]
    (shorter,) = re.findall(r"--length=(\d+): ", nothing["reason"])
    assert plan.plan("bert-mini", int(shorter), needed // 2, **chosen)["recommended"] is not None
    tiny = plan.plan("bert-mini", 256, 1000, **chosen)
    assert "no length: the parameters alone take" in tiny["reason"]


def test_claims_are_listed_with_what_was_measured():
    """Values come from the committed results and from this run; each is there, and contradicts."""
    rows = [
        {"position": {"name": p}, "attention": {"name": "full"}, "memory": m}
        for p, m in (("hierarchical", 101), ("interpolate", 100))
    ]
    found = articles.contradicted(rows, 512, 128, build.Recipe("bert", BertConfig(max_position_embeddings=128), ()))
    text = {c.claim: c.measured for c in found}
    assert all(c.where and re.search(r"\d|refused", c.measured) for c in found)
    assert "1.010 with full" in text["peak memory differs by position method: hierarchical takes more than interpolate"]
    base = text["BERT runs out of the 32 GB of a V100 at 2,048 tokens"]
    forward, train = (float(x) for x in re.findall(r"([\d.]+) GB", base))
    assert 0.4 < forward < train < 32  # 110 M parameters in float32 are 0.44 GB
    moved, kept = re.findall(r"by ([\d.]+)", text["α p_i + (1 − α) p_j keeps the trained rows as they are"])
    assert float(moved) > 0.1 and float(kept) == 0
    assert "4 n" in text["interpolate reaches 2 n"] and "8 n" in text["sinusoidal_ntk reaches 4 n"]
    assert "A learned table has no base" in text["NTK-aware scaling extends the position table of a BERT"]
    measured = known.results()
    best = max(measured["alpha"], key=lambda r: r["after"])
    assert f"α = {best['alpha']}: {100 * best['after']:.1f}" in text["α from 0.6 to 0.9 is best"]
    assert len(measured["claims"]) == 8 and {c.claim for c in found} >= {c["says"] for c in measured["claims"]}
