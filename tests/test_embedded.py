"""What the package brings along: bert-mini uses order, saw no held-out speech, and is small."""

import json

import jax
import numpy as np

from lpe import assets, build
from lpe.data import sources

MINI = assets.CHECKPOINTS["bert-mini"]


def test_bert_mini_passes_the_gate(mini):
    """Held-out accuracy at 128 at least 15 points above the same model with shuffled positions."""
    task = build.task({"name": "mlm", "length": 128}, build.network(mini.recipe))
    examples = task.prepare(sources.documents({"source": "sotu"})["heldout"], mini.tokenizer)
    predict = jax.jit(task.predict)
    pieces = np.concatenate([row[:real] for row, real in zip(examples.tokens, examples.real, strict=True)])
    accuracy = {}
    print(f"the most frequent piece is {np.bincount(pieces).max() / pieces.size:.1%} of the held-out tokens")
    for view in ("pieces", "shuffled"):
        batches = task.dataset(examples, mini.tokenizer, view, 64, limit=256)
        got = task.score((b, jax.device_get(predict(mini.params, b))) for b in batches)
        accuracy[view] = got["accuracy"]
        print(f"{view}: {got['accuracy']:.1%} of {got['count']} places")
    assert accuracy["pieces"] > accuracy["shuffled"] + 0.15
    logged = [json.loads(line) for line in (MINI / "training/metrics.jsonl").read_text().splitlines()]
    last = {r["view"]: r for r in logged if r["kind"] == "eval"}
    for view, value in accuracy.items():
        assert abs(value - last[view]["accuracy"]) < 0.03, f"{view}: not the model of the committed log"


def test_it_is_small_and_an_ordinary_folder(mini):
    files = {p.name: p.stat().st_size for p in MINI.rglob("*") if p.is_file()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "metrics.jsonl"} <= set(files)
    assert sum(files.values()) < 16e6 and assets.TEXTS["sotu"].stat().st_size < 4e6
    assert mini.config.max_position_embeddings == 128


def test_the_tokenizer_is_a_function_of_the_training_speeches_alone(mini):
    from experiments.make_bert_mini import tokenizer

    assert set(tokenizer().get_vocab()) == set(mini.tokenizer.get_vocab())  # the library numbers the pieces anew each time


def test_its_position_rows_were_all_trained(mini):
    from lpe.positions import table_report

    report = table_report(np.asarray(mini.params["position"]["table"]))
    assert report.trained == 128
