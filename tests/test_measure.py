"""What lpe.measure measures: a pass in layers, needles, accuracy, memory; what is refused; the headline run, shrunk."""

import dataclasses
import json
import shutil
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import lpe
from experiments import e001_headline
from lpe import costs, measure, stepwise, workdir
from lpe import model as models
from lpe.data import reading, sources, windows
from lpe.data.document import Document
from lpe.data.windows import Windows
from lpe.measuring import bench, mlm, needle, page, process, text
from lpe.models.bert import BertConfig

TINY = BertConfig(
    vocab_size=50, hidden_size=16, num_hidden_layers=4, num_attention_heads=2, intermediate_size=32, max_position_embeddings=16
)
FLAGS = {"--lengths": "16,64", "--positions": "copy", "--attentions": "full", "--examples": "6", "--rounds": "2"}


@pytest.fixture(scope="module")
def stream(mini):
    words = " ".join(f"{w} {n}" for n in range(300) for w in ("the senate and", "the people of", "a treaty with"))
    return text.Sequence([Document(words, "a"), Document("the end of it", "b")], mini.tokenizer, mini.config.vocab_size)


def test_a_pass_layer_by_layer_is_the_same_pass():
    cfg = dataclasses.replace(TINY, pre_norm=True, num_hidden_groups=2, embedding_size=8)
    model = models.initialise(cfg, ()).extend(
        max_length=40, position=[{"name": "hierarchical"}, {"name": "t5"}], attention={"name": "window", "attention_window": 6}
    )
    batch = {"input_ids": np.arange(2 * 33).reshape(2, 33) % 50, "attention_mask": np.arange(33) < np.array([[33], [20]])}
    seen = []
    parts = stepwise.encode(model, batch, lambda i, n: seen.append((i, n)))
    real = batch["attention_mask"]
    np.testing.assert_allclose(np.asarray(parts)[real], np.asarray(model.encode(batch))[real], atol=1e-6)
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    with pytest.raises(ValueError, match="longer than the 40 positions"):
        stepwise.encode(model, {"input_ids": np.ones((1, 41), np.int32)})


def test_the_peak_is_that_of_an_array():
    peak = process.Peak()
    assert np.ones(8 * 10**6).sum()  # 64 MB, given back at once
    assert 60e6 < (peak.bytes() or 0) < 200e6


def test_documents_follow_each_other(stream):
    first, second = (len(x) for x in reading.tokenize([" ".join(["the end of it"])] * 2, stream.tokenizer))
    assert first == second == len(stream.tokens) - stream.ends[0]
    assert stream.documents(100) == 1 and stream.documents(len(stream.tokens) + 2) == 2
    assert list(stream.input(10, 3)[1:-1]) == list(stream.tokens[3:11])
    with pytest.raises(ValueError, match="x has .* tokens, and an input of 99999 needs 99997"):
        stream.check(99999, "x")


def test_a_set_of_needles_has_every_key_in_its_own_document(stream):
    drawn = needle.make(stream, 60, 0, 0)
    texts = [stream.tokenizer.decode(d).lower() for d in drawn.documents]
    questions = [stream.tokenizer.decode(q, skip_special_tokens=True).lower() for q in drawn.questions]
    assert drawn.documents.shape == (50, 60)
    used = set()
    for question, found in zip(questions, texts, strict=True):
        asked = question.split()
        animal, city, thing = (
            next(w.lower() for w in words if w.lower() in asked) for words in (needle.ANIMALS, needle.CITIES, needle.THINGS)
        )
        assert f"the {animal} of {city} hides the {thing} under the" in found
        used |= {animal, city, thing}
    assert len(used) == 150
    common = set(drawn.documents[0]).intersection(*map(set, drawn.documents))
    assert len(common) > 20  # one text for all
    again, other = needle.make(stream, 60, 0, 0), needle.make(stream, 60, 1, 0)
    assert (again.documents == drawn.documents).all() and not (other.documents == drawn.documents).all()
    with pytest.raises(ValueError, match="no room for a key sentence of"):
        needle.make(stream, 12, 0, 0)


def test_retrieval_counts_the_questions_whose_document_is_nearest(mini, stream, monkeypatch):
    """With a perfect embedding, tokens that only keys have, all are right; of the first half only those of early keys."""
    lay = windows.layout(128, 66)
    hay = set(stream.tokens.tolist())

    def counts(model, rows):
        out = np.stack([np.bincount(r, minlength=mini.config.vocab_size) for r in rows]).astype(float)
        out[:, list(hay)] = 0
        return out / np.maximum(1, np.linalg.norm(out, axis=1, keepdims=True)) + 1e-9

    monkeypatch.setattr(needle, "_means", counts)
    monkeypatch.setattr(needle, "_questions", lambda m, rows: np.concatenate([counts(m, q[None]) for q in rows]))
    found = {r: needle.score(mini, stream, lay, read=r, seed=0, examples=100) for r in ("whole", "first", "pieces")}
    assert found["whole"]["quality"] > 0.9 and found["pieces"]["quality"] > 0.9 and found["whole"]["count"] == 100
    assert 0.2 < found["first"]["quality"] < 0.8
    one = needle.score(mini, stream, lay, read="first", seed=0, examples=50)
    p, q = one["quality"], 2 * found["first"]["quality"] - one["quality"]  # of the second set
    assert one["error"] == pytest.approx((p * (1 - p) / 49) ** 0.5)
    assert p != q and found["first"]["error"] == pytest.approx(abs(p - q) / 2)


def test_questions_padded_together_are_embedded_as_each_alone(mini, stream):
    cfg = dataclasses.replace(TINY, num_hidden_layers=1, vocab_size=mini.config.vocab_size, max_position_embeddings=96)
    model = models.initialise(cfg, (), tokenizer=mini.tokenizer)
    questions = sorted(needle.make(stream, 60, 0, 0).questions, key=len)
    short, long = questions[0], questions[-1]
    together = needle._questions(model, [short, long])
    assert len(short) < len(long)
    for q, found in zip((short, long), together, strict=True):
        np.testing.assert_allclose(needle._means(model, q[None])[0], found, atol=1e-5)


def test_agreement_is_one_where_short_inputs_are_kept(places, stream):
    plain = lpe.from_pretrained(places / "HEADLESS")
    same, other = plain.extend(max_length=64), plain.extend(max_length=64, position={"name": "interpolate"})
    found = [needle.agreement(m, plain, stream, trained=32, seed=0)["agreement"] for m in (same, other)]
    assert found[0] == pytest.approx(1.0, abs=1e-6) and found[1] < 0.9999


def test_a_text_is_read_whole_or_its_first_piece_or_all_pieces(mini, monkeypatch):
    """Three windows of two pieces of 126: the shapes of what the model is given."""
    seen = []

    def outputs(predict, params, mesh, batch):
        seen.append(batch["input_ids"].shape)
        return {"right": batch["labels"] > 0, "loss": np.zeros(batch["labels"].shape)}

    monkeypatch.setattr(mlm.evaluate, "outputs", outputs)
    cut = Windows(np.arange(3 * 252, dtype=np.int32).reshape(3, 252) % 400 + 5, np.full(3, 252), np.zeros(3, np.int32))
    given = {}
    for read in ("whole", "first", "pieces"):
        seen.clear()
        assert mlm.score(mini, cut, 254, read=read, examples=3)["count"] == 3
        given[read] = (sum(rows for rows, _ in seen), {width for _, width in seen})
    assert given == {"whole": (3, {254}), "first": (3, {128}), "pieces": (6, {128})}


def test_tokens_a_second_are_those_of_the_timed_pass(monkeypatch):
    """70 tokens of a model of 32 are two pieces of 30: what is read has 62, 32 or 64 tokens, never 70."""
    read = []
    recipe = SimpleNamespace(_replace=lambda **_: None)
    model = SimpleNamespace(recipe=recipe, encode=lambda batch: read.append(batch["input_ids"].size) or np.zeros(1))
    stream = SimpleNamespace(input=lambda length: np.zeros(length, np.int32))
    monkeypatch.setattr(bench.costs, "of", lambda *_: SimpleNamespace(memory=0))
    work = bench.Bench({"rounds": 1}, model, {}, stream, 32, 0, {})
    for how, tokens, speed in (("whole", 62, "31"), ("first", 32, "16"), ("pieces", 64, "32")):
        way = bench.Way(70, how, model, False)
        read.clear()
        bench._timed(work, [way])
        assert sum(read) == 2 * tokens  # the pass that compiles, and the timed one
        row = {"length": 70, "position": "copy", "attention": "full", "read": how, "quality": 0.5, "error": 0.1}
        row |= {**bench._planned(work, way), "seconds": [9.0, 1.0, 2.0]}
        line = page.text({"checkpoint": "x", "data": "y", "metric": "accuracy", "notes": []}, [row])
        assert f" ± 10.0 % | 2.000 | {speed} |" in line


def test_the_headline_table_has_medians_and_plans_without_weights(monkeypatch):
    """A plan of 5.5 GB for a pass with a billion weights of 4 bytes leaves 1.5 GB."""
    monkeypatch.setattr(e001_headline.costs, "of", lambda *_: costs.Cost(10**9, 5_500_000_000, 0, 0.0))
    setting = e001_headline.setting(True)
    plan = e001_headline.planned(setting, {"name": "full"}, 512)
    assert plan == 1_500_000_000
    row = {"attention": "dense", "length": 512, "plan": plan, "load_before": 1.0, "memory": 2 * 10**9}
    found = {"rows": [row | {"seconds": [8.0, 2.0, 4.0], "cpu": [3.0, 20.0, 5.0]}], "speeches": {"512": 1}}
    found["settings"] = {"checkpoint": "x", "n": 128, "weights": 4 * 10**9}
    assert "| dense | 512 | 1 | 4.00 | 5.00 | 128 | 2.00 | 1.50 |" in e001_headline.table(found).splitlines()


@pytest.fixture(scope="module")
def places(tmp_path_factory, mini):
    """Folders and files by the names that the flags below have: bert-mini cut to a layer and 32 positions, and texts."""
    folder = tmp_path_factory.mktemp("places")
    cfg = dataclasses.replace(mini.config, num_hidden_layers=1, max_position_embeddings=32)
    weights = {**mini.params, "layers": jax.tree.map(lambda x: x[:1], mini.params["layers"])}
    weights["position"] = {"table": mini.params["position"]["table"][:32]}
    cut = models.Model(weights, mini.recipe._replace(config=cfg), mini.companions)
    cut.save_pretrained(folder / "MODEL")
    bare = {k: v for k, v in weights.items() if k != "mlm_head"}
    models.Model(bare, cut.recipe._replace(heads=()), mini.companions).save_pretrained(folder / "HEADLESS")
    speech = sources.documents({"source": "sotu", "documents": 1})["heldout"][0].text
    (folder / "TEXT.txt").write_text(speech[:20_000], encoding="utf-8")
    (folder / "SHORT.txt").write_text("a few words, soon over. ", encoding="utf-8")
    return folder


def run(places, folder, **changes):
    given = {"--checkpoint": "MODEL", "--data": "TEXT.txt", "--process": "false", "--memory": "8GB", **FLAGS, **changes}
    paths = {k: str(places / v) if v and (places / v).exists() else v for k, v in given.items()}
    measure.main(["measure", f"--workdir={folder}", *(f"{k}={v}" for k, v in paths.items() if v is not None)])


def test_a_table_is_made_once_and_nothing_runs_that_does_not_fit(places, tmp_path, monkeypatch, capsys):
    """At 16 tokens copied rows are the model's own; at 64 the plan is larger than at 32."""
    monkeypatch.setattr(measure.cli, "setup", lambda: None)
    encoded = []
    encode = models.Model.encode
    monkeypatch.setattr(models.Model, "encode", lambda m, b: encoded.append(b["input_ids"].shape) or encode(m, b))
    memory = costs.of(lpe.from_pretrained(places / "MODEL").recipe._replace(heads=()), 32).memory
    limit = {"--memory": f"{memory / 1e6:.6f}MB"}
    run(places, tmp_path, **limit)
    rows = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text(encoding="utf-8").splitlines()]
    by = {(r["kind"], r["length"], r["position"], r["read"]): r for r in rows}
    assert by["quality", 16, "copy", "whole"]["quality"] == by["quality", 16, "learned", "whole"]["quality"] > 0.02
    assert by["quality", 64, "learned", "first"]["count"] == by["quality", 64, "learned", "pieces"]["count"] == 6
    assert ("quality", 64, "copy", "whole") not in by and ("time", 64, "copy", "whole") not in by
    assert len(by["time", 64, "learned", "pieces"]["seconds"]) == 2
    assert sorted(set(encoded)) == [(1, 16), (1, 32)] and encoded.count((1, 32)) == 3 * (1 + 2)
    page = (tmp_path / "report.md").read_text(encoding="utf-8")
    plan = by["plan", 64, "copy", "whole"]["plan"]
    assert plan > memory and f"| 64 | copy | full | 1 × 62 | does not fit: compiled {plan / 1e6:.1f} MB |" in page
    assert "| 64 | learned | full | 1 × 32 (truncated) |" in page and "| 64 | learned | full | 2 × 32 |" in page
    assert (tmp_path / "measure.png").stat().st_size > 5000 and "copy" in capsys.readouterr().out
    before = (tmp_path / "results.jsonl").read_text(encoding="utf-8")
    monkeypatch.setattr(mlm, "score", None)
    monkeypatch.setattr(bench, "_timed", lambda work, left: [[]] if left else [])
    (tmp_path / "results.jsonl").write_text(before + '{"kind": "qual', encoding="utf-8")
    run(places, tmp_path, **limit)
    assert (tmp_path / "results.jsonl").read_text(encoding="utf-8") == before
    with pytest.raises(SystemExit, match="lpe: .* holds a run of another config"):
        run(places, tmp_path, **limit, **{"--examples": "7"})


def test_figures_are_never_those_of_a_former_checkpoint_or_text(places, tmp_path, monkeypatch):
    """And below the trained length a method that does not go so low is left out; of one window there is no error."""
    monkeypatch.setattr(measure.cli, "setup", lambda: None)
    said = []
    monkeypatch.setattr(measure.log, "warning", lambda line, *words: said.append(line % words))
    folder, source, data = tmp_path / "run", tmp_path / "model", tmp_path / "some.txt"
    shutil.copytree(places / "MODEL", source)
    speech = (places / "TEXT.txt").read_text(encoding="utf-8")[:700]
    data.write_text(speech, encoding="utf-8")
    given = {"--checkpoint": str(source), "--data": str(data), "--lengths": "16", "--positions": "copy,interpolate"}
    run(places, folder, **given, **{"--rounds": "1"})
    assert len(said) == 1 and said[0].startswith("16 tokens, below the trained length: interpolate is left out")
    kept = (folder / "results.jsonl").read_text(encoding="utf-8")
    assert {json.loads(line)["position"] for line in kept.splitlines()} == {"learned", "copy"}
    report = (folder / "report.md").read_text(encoding="utf-8")
    assert report.count("% (one window, so no error)") == 2 and "One window has no standard error" in report

    def refused() -> str:
        with pytest.raises(SystemExit) as stopped:
            run(places, folder, **given, **{"--rounds": "1"})
        assert (folder / "results.jsonl").read_text(encoding="utf-8") == kept
        assert str(stopped.value).endswith(f"give another --workdir, or delete {folder}")
        return str(stopped.value)

    data.write_text(speech.replace("the", "one"), encoding="utf-8")
    assert f"the content of --data={data} has changed since {folder} was measured" in refused()
    data.write_text(speech, encoding="utf-8")
    model = lpe.from_pretrained(places / "MODEL")
    weights = {**model.params, "position": {"table": model.params["position"]["table"].at[3, 5].add(1e-3)}}
    dataclasses.replace(model, params=weights).save_pretrained(source, overwrite=True)
    assert f"the content of --checkpoint={source} has changed since {folder} was measured" in refused()
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({k: v for k, v in config.items() if k != "content"}), encoding="utf-8")
    assert "does not say what content of checkpoint and data its figures are of" in refused()


def test_without_a_head_needles_are_looked_for(places, tmp_path, monkeypatch):
    monkeypatch.setattr(measure.cli, "setup", lambda: None)
    needles = {"--checkpoint": "HEADLESS", "--lengths": "94", "--positions": "interpolate", "--examples": "50"}
    run(places, tmp_path, **needles, **{"--rounds": "1"})
    rows = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text(encoding="utf-8").splitlines()]
    quality = {r["read"]: r for r in rows if r["kind"] == "quality"}
    assert {r["count"] for r in quality.values()} == {50} and set(quality) == {"first", "pieces", "whole"}
    assert quality["whole"]["agreement"] < 0.9999 and "agreement" not in quality["pieces"]
    page = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "| read as | needle, top-1 of 50 | agreement |" in page and "50 questions, seed 0" in page
    assert len({line.count("|") for line in page.splitlines() if line.startswith("|")}) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"--checkpoint": None}, "--checkpoint missing"),
        ({"--checkpoint": "no/where/at/all"}, "is no folder, no hub id"),
        ({"--checkpoint": "HEADLESS", "--task": "mlm"}, "has no mlm head"),
        ({"--checkpoint": "HEADLESS"}, "--examples=6, allowed are whole numbers from 50, in multiples of it"),
        ({"--checkpoint": "HEADLESS", "--examples": "50", "--lengths": "8"}, "no room for a key sentence"),
        ({"--data": "no/such/text.txt"}, "data 'no/such/text.txt' is no file"),
        ({"--data": "SHORT.txt"}, "tokens, and an input of 16 needs 14"),
        ({"--lengths": "64,many"}, "--lengths=64,many, allowed are whole numbers with commas"),
        ({"--lengths": "16,4000"}, "--lengths=4000: the held-out part of --data="),
        ({"--checkpoint": "HEADLESS", "--examples": "50", "--lengths": "94,9999"}, "tokens, and an input of 9999 needs 9997"),
        ({"--lengths": "16", "--positions": "copy,logn"}, "tells no places apart"),
        ({"--lengths": "2"}, "--lengths=2, allowed are whole numbers from 3"),
        (
            {"--lengths": "1025", "--positions": "hierarchical", "--task": "needle", "--examples": "50"},
            "max_length=1025, allowed are whole numbers from 1 to 1024",
        ),
        (
            {"--positions": "copy,learned"},
            "max_length=64, allowed are whole numbers from 1 to 32 with this table; leave it out",
        ),
        ({"--positions": "coppy"}, "did you mean 'copy'"),
        ({"--attentions": "windw"}, "did you mean 'window'"),
        ({"--task": "needles"}, "--task='needles' is not known; did you mean 'needle'"),
        ({"--rounds": "0"}, "--rounds=0, allowed are whole numbers from 1"),
        ({"--examples": "0"}, "--examples=0, allowed are whole numbers from 1"),
        ({"--memory": "lots"}, "--memory='lots'"),
        ({"--dtype": "int8"}, "dtype='int8' is not known"),
        ({"--lenghts": "3"}, "unknown flag --lenghts; did you mean --lengths? --help lists all flags"),
        ({"--foo": "3"}, "unknown flag --foo; --help lists all flags"),
    ],
)
def test_wrong_input_ends_with_one_message(changes, message, places, tmp_path, monkeypatch):
    monkeypatch.setattr(measure.cli, "setup", lambda: None)
    with pytest.raises(SystemExit) as stopped:
        run(places, tmp_path / "out", **changes)
    assert str(stopped.value).startswith("lpe: ") and message in str(stopped.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.heavy
def test_the_headline_run_shrunk(tmp_path, monkeypatch):
    monkeypatch.setattr(e001_headline.cli, "setup", lambda: None)
    command = ["e001", "--small", f"--out={tmp_path}"]
    e001_headline.main(command)
    found = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    rows = {r["attention"]: r for r in found["rows"]}
    assert list(rows) == ["window 128", "blocks of 128", "dense"] and "seconds" not in rows["dense"]
    assert rows["dense"]["plan"] > found["settings"]["dense"]
    for r in (rows["window 128"], rows["blocks of 128"]):
        assert len(r["seconds"]) == len(r["cpu"]) == 3 and min(r["cpu"]) > 0 and r["memory"] > 10**6 and r["norm"] > 0
    assert rows["window 128"]["norm"] != rows["blocks of 128"]["norm"]
    assert found["check"]["blocks"] == 4 and found["check"]["apart"] <= 1e-5 < found["check"]["largest"]
    assert found["command"] == "python -m experiments.e001_headline " + " ".join(command[1:])
    monkeypatch.setattr(process, "alone", None)  # all is there: the same command measures nothing
    e001_headline.main(command)
    with pytest.raises(ValueError, match="blocks of 128 of one pass differ from the untouched model by"):
        wrong = e001_headline.setting(True)
        monkeypatch.setattr(e001_headline.lpe, "from_pretrained", _interpolated(lpe.from_pretrained))
        e001_headline.blocks(wrong, np.arange(256) % 400)
    assert workdir.commit() == found["versions"]["commit"]


def _interpolated(load):
    """A from_pretrained that gives other positions than it is asked for."""
    return lambda source, position=None, **options: load(
        source, position=position and {"name": "interpolate", "max_length": 256}, **options
    )
