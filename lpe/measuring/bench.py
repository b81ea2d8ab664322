"""Methods by length on one checkpoint and text: what is measured of each, kept line by line, and the page made of it."""

import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax

from lpe import costs, metrics, workdir
from lpe.data import windows
from lpe.data.reading import SPECIALS
from lpe.data.windows import Layout, Windows
from lpe.measuring import mlm, needle, page, process, text
from lpe.model import Model

KINDS = ("plan", "quality", "time", "process")
log = logging.getLogger(__name__)


class Way(NamedTuple):
    """One way to read a text of `length`: a method on the whole, or the untouched model on its first part or on pieces."""

    length: int
    read: str
    model: Model
    untouched: bool

    @property
    def key(self) -> dict[str, Any]:
        position, attention = [dict(s)["name"] for s in self.model.recipe.position], dict(self.model.recipe.attention)["name"]
        return {
            "length": self.length, "position": " + ".join(position), "attention": attention, "read": self.read,
            "untouched": self.untouched,
        }  # fmt: skip


class Bench(NamedTuple):
    """What a command works with. config: its flags but for lengths and methods. docs: by split. trained: n.

    cuts: for accuracy at masked places, the windows of every length.
    """

    config: dict[str, Any]
    model: Model
    docs: dict[str, list]
    stream: text.Sequence
    trained: int
    memory: int
    cuts: dict[int, Windows]

    def layout(self, length: int) -> Layout:
        return windows.layout(length, self.trained)

    def inputs(self, way: Way) -> list[int]:
        """The lengths of the inputs that a text is read as."""
        lay = self.layout(way.length)
        if way.read == "whole":
            return [lay.content + SPECIALS]
        return [lay.piece + SPECIALS] * (1 if way.read == "first" else lay.pieces)


class Results:
    """results.jsonl: a line for what was measured of a way (`kind` is one of KINDS), added as it is there."""

    def __init__(self, file: Path):
        self.file = file
        if file.exists():
            workdir.write(file, "".join(json.dumps(r) + "\n" for r in metrics.read(file)))  # without a half-written line
        self.rows = metrics.read(file) if file.exists() else []

    def of(self, way: Way, kind: str) -> dict | None:
        return next((r for r in self.rows if r["kind"] == kind and way.key.items() <= r.items()), None)

    def once(self, way: Way, kind: str, make: Callable[[], dict]) -> dict:
        """What is there, else what `make` gives, kept."""
        if (there := self.of(way, kind)) is None:
            there = {"kind": kind, **way.key, **make()}
            with self.file.open("a", encoding="utf-8") as f:
                f.write(json.dumps(there) + "\n")
            self.rows.append(there)
        return there


def measure(bench: Bench, todo: list[Way], out: Results) -> None:
    """Measures the ways of one length that are not there yet."""
    length, config = todo[0].length, bench.config
    run = [w for w in todo if out.once(w, "plan", lambda w=w: _planned(bench, w))["plan"] <= bench.memory]
    for number, way in enumerate(run, 1):
        log.info("%s tokens, [%d/%d] %s", f"{length:,}", number, len(run), ", ".join(map(str, list(way.key.values())[1:4])))
        out.once(way, "quality", lambda w=way: _quality(bench, w))
    left = [w for w in run if out.of(w, "time") is None]
    for way, seconds in zip(left, _timed(bench, left), strict=True):
        out.once(way, "time", lambda w=way, s=seconds: {"seconds": s, "beside": len(left)})
    for way in run if config["process"] else ():
        out.once(way, "process", lambda w=way: {"process": _process(bench, w)})


def _planned(bench: Bench, way: Way) -> dict:
    inputs = bench.inputs(way)
    memory = costs.of(way.model.recipe._replace(heads=()), inputs[0]).memory
    return {"plan": memory, "inputs": len(inputs), "tokens": sum(inputs)}


def _quality(bench: Bench, way: Way) -> dict:
    config = bench.config
    if config["task"] == "mlm":
        return mlm.score(way.model, bench.cuts[way.length], way.length, read=way.read, examples=config["examples"])
    lay, seed = bench.layout(way.length), config["seed"]
    found = needle.score(way.model, bench.stream, lay, read=way.read, seed=seed, examples=config["examples"])
    if way.untouched:
        return found
    return found | needle.agreement(way.model, bench.model, bench.stream, trained=bench.trained, seed=seed)


def _timed(bench: Bench, left: list[Way]) -> list[list[float]]:
    """Seconds of every round, for each way; in a round they run in turn."""
    taken: list[list[float]] = [[] for _ in left]
    for number in range(1 + bench.config["rounds"]):
        for way, seconds in zip(left, taken, strict=True):
            inputs = [bench.stream.input(n)[None] for n in bench.inputs(way)]
            start = time.perf_counter()
            for ids in inputs:
                jax.block_until_ready(way.model.encode({"input_ids": ids}))
            if number:  # the first compiles
                seconds.append(time.perf_counter() - start)
    return taken


def _process(bench: Bench, way: Way) -> int | None:
    recipe, config = way.model.recipe, bench.config
    position, attention = ([], {}) if way.untouched else ([dict(s) for s in recipe.position], dict(recipe.attention))
    spec = process.Spec(config["checkpoint"], position, attention, config["chunk_size"], config["dtype"], rounds=0)
    return process.alone(spec, bench.stream.input(bench.inputs(way)[0])).memory


def write(bench: Bench, todo: list[Way], out: Results, folder: Path) -> None:
    """report.md and measure.png of these ways."""
    rows = []
    for way in todo:
        kinds = [r for k in KINDS if (r := out.of(way, k))]
        rows.append({k: v for r in kinds for k, v in r.items() if k != "kind"})
    measured = [r for r in rows if "quality" in r]
    about = {
        "checkpoint": bench.config["checkpoint"], "data": bench.config["data"],
        "metric": measured[0]["metric"] if measured else "quality", "notes": _notes(bench, todo, measured),
    }  # fmt: skip
    workdir.write(folder / "report.md", page.text(about, rows))
    page.plot(folder / "measure.png", about, rows)


def _notes(bench: Bench, todo: list[Way], rows: list[dict]) -> list[str]:
    c = bench.config
    counts = ", ".join(f"{n:,}" for n in dict.fromkeys(r["count"] for r in rows))
    unit = _held_out(bench.docs) if c["task"] == "mlm" else f"questions, seed {c['seed']}"
    alone = any(r["error"] is None for r in rows)
    few = "One window has no standard error; more text, a smaller length or more --examples make more. " if alone else ""
    patterns = dict.fromkeys(str(dict(w.model.recipe.attention)) for w in todo)
    agreement = (
        ["agreement: mean cosine of short texts' embeddings with the untouched model's."] if c["task"] == "needle" else []
    )
    return [
        f"Without training; trained length {bench.trained:,}; {c['dtype']}, batch 1, {jax.default_backend()}. Quality ± "
        f"standard error over {counts} {unit}. {few}Attention: {', '.join(patterns)}; `learned` positions are the checkpoint "
        "as it is.",
        "",
        f"seconds: forward pass of one text, median of {c['rounds']}. plan: memory that the compiler plans for the longest "
        f"input, weights included, {c['memory']} allowed. process: highest resident size of a fresh process above that with "
        "the model loaded, compilation included. " + "".join(agreement),
    ]


def _held_out(docs: dict[str, list]) -> str:
    held, every = (sum(len(d.text) for s in splits for d in docs[s]) for splits in (("heldout",), tuple(docs)))
    return f"window(s) of the held-out part of the text, {held:,} of its {every:,} characters"
