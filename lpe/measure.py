"""What is an own checkpoint worth at a length? Quality without training, time and memory, method by method, on an own text.

    python -m lpe.measure --checkpoint=DIR_OR_HUB_ID --data=PATH --lengths=512,2048,8192

Quality is accuracy at masked places where the checkpoint has an MLM head (lpe.measuring.mlm), else needle retrieval and the
agreement with the untouched model (lpe.measuring.needle); --task takes one of the two. Masked places are those of the
held-out part of the text alone: of one text its last tenth, of several documents every tenth (of fewer than ten the last), or
what the source itself holds out. Needles are looked for in all of it. Beside the methods stands the untouched checkpoint, which
reads the same text cut after its own length, and all of it in pieces of that. At lengths that it reads whole, methods that do
not go so low are left out.

Memory is what the compiler plans for a forward pass of one text, and with --process what a fresh process takes at most above
the loaded model. What is planned to take more than --memory is listed and never run. Times are medians of --rounds rounds after
compilation, in which all methods of a length run in turn. A stopped command goes on where it was, unless the content of
checkpoint or text has changed: its folder keeps a fingerprint of both.
"""

import logging
import sys
from pathlib import Path
from typing import Any

from absl import flags

from lpe import cli, plan, registry, report, workdir
from lpe import model as models
from lpe.data import reading, sources
from lpe.data.windows import Windows
from lpe.measuring import bench, content, mlm, needle, text
from lpe.measuring.bench import Bench, Way
from lpe.planning import feasible
from lpe.positions import checks

POSITIONS, ATTENTIONS = ("hierarchical", "copy", "interpolate"), ("full", "window")
TASKS = ("mlm", "needle")
HELD_OUT = "With an MLM head the held-out part alone is read, of one text its last tenth; --task=needle reads all of it."
log = logging.getLogger("lpe.measure")  # __name__ is __main__ in a command


def flag_values() -> flags.FlagValues:
    """The flags of this command, fresh and apart from those of other commands."""
    own = flags.FlagValues()
    flags.DEFINE_string("checkpoint", None, "A folder, a hub id, or bert-mini.", flag_values=own)
    flags.DEFINE_string("data", None, f"A text as the README's page of data says, or sotu. {HELD_OUT}", flag_values=own)
    flags.DEFINE_list("lengths", None, "Tokens of an input, several with commas.", flag_values=own)
    flags.DEFINE_list("positions", list(POSITIONS), "Position methods.", flag_values=own)
    flags.DEFINE_list("attentions", list(ATTENTIONS), "Attention patterns.", flag_values=own)
    flags.DEFINE_string("task", None, "mlm or needle. Default: mlm where there is a head for it.", flag_values=own)
    flags.DEFINE_integer("examples", None, "Windows (100), or questions (50, or a multiple).", flag_values=own)
    flags.DEFINE_integer("rounds", 3, "Each time is the median of so many.", flag_values=own)
    flags.DEFINE_integer("seed", 0, "Of the needles and the short texts.", flag_values=own)
    flags.DEFINE_string("memory", "8GB", "What one pass may take, as 16GB, 512MB or 1.5GiB.", flag_values=own)
    flags.DEFINE_bool("process", True, "Also measure the memory of a fresh process for every line.", flag_values=own)
    flags.DEFINE_string("dtype", "float32", "Of the computation: float32 or bfloat16.", flag_values=own)
    flags.DEFINE_integer("chunk_size", 0, "Tokens at a time of the feed-forward part; 0 for all.", flag_values=own)
    flags.DEFINE_string("workdir", None, "Folder of the results. Default: runs/measure-HASH.", flag_values=own)
    flags.DEFINE_bool("help", False, "This text.", flag_values=own)
    return own


def check(config: dict[str, Any], lengths: list[int]) -> dict[str, Any]:
    """`config` with its defaults. Raises ValueError for a flag outside its range."""
    for length in lengths:
        if not reading.SPECIALS < length <= checks.LARGEST:
            raise ValueError(f"--lengths={length}, allowed are whole numbers from {reading.SPECIALS + 1} to {checks.LARGEST}")
    if config["task"] not in (None, *TASKS):
        raise ValueError(f"--task={config['task']!r} is not known{registry.nearest(config['task'], list(TASKS))}")
    for name, low in (("rounds", 1), ("seed", 0)):
        if config[name] < low:
            raise ValueError(f"--{name}={config[name]}, allowed are whole numbers from {low}")
    sources.check({"source": config["data"]})
    return config


def prepare(config: dict[str, Any], lengths: list[int]) -> Bench:
    """Loads the checkpoint and the text; settles task and examples.

    Raises:
      FileNotFoundError: no such checkpoint or text. ValueError: what does not go together, before anything is measured.
    """
    memory = plan.size(config["memory"])
    options = {"dtype": config["dtype"], "chunk_size": config["chunk_size"]}
    model = models.from_pretrained(config["checkpoint"], **options)
    name = config["task"] or ("mlm" if "mlm" in model.recipe.heads else "needle")
    default = 100 if name == "mlm" else needle.CANDIDATES
    examples = default if config["examples"] is None else config["examples"]
    if examples < 1 or (name == "needle" and examples % needle.CANDIDATES):
        allowed = "1" if name == "mlm" else f"{needle.CANDIDATES}, in multiples of it (the candidates of a question)"
        raise ValueError(f"--examples={examples}, allowed are whole numbers from {allowed}")
    if name == "mlm":
        mlm.task(model, max(lengths))
    docs = sources.documents({"source": config["data"]})
    every = [d for split in sources.SPLITS for d in docs[split]]
    stream = text.Sequence(every, model.tokenizer, model.config.vocab_size)
    config = {**config, "name": "measure", "task": name, "examples": examples}
    work = Bench(config, model, docs, stream, feasible.trained_length(model.recipe), memory, {})
    return work._replace(cuts=room(work, lengths))


def room(work: Bench, lengths: list[int]) -> dict[int, Windows]:
    """The windows of every length that accuracy is measured on; none for needles.

    Raises:
      ValueError: the text, or the part of it that is read, is too short for a length; or a length for a needle.
    """
    config, what = work.config, f"--data={work.config['data']}"
    cuts = {n: mlm.windows(work.model, work.docs["heldout"], n, what) for n in lengths} if config["task"] == "mlm" else {}
    for length in lengths:
        work.stream.check(length, what)
    if config["task"] == "needle":
        work.stream.check(needle.short(work.trained), what)
        for number in range(config["examples"] // needle.CANDIDATES):
            needle.make(work.stream, work.layout(min(lengths)).content, config["seed"], number)
    return cuts


def ways(work: Bench, length: int, positions: list[str], attentions: list[str]) -> list[Way]:
    """The methods at a length, and the untouched checkpoint: whole where it reads so far, else cut and in pieces.

    Raises:
      ValueError: a method that is unknown, does not reach the length or does not go with an attention pattern, by name. What
        goes with the trained length but not with one below it is left out, with a warning.
    """
    own = work.model.recipe._replace(heads=())
    found = feasible.tried(own, length, positions, attentions)
    refused = found.refused
    if length < work.trained:  # a method that only makes longer is no mistake here
        always = {which for which, _ in feasible.tried(own, work.trained, positions, attentions).refused}
        refused = [(which, why) for which, why in found.refused if which in always]
    if refused:
        which, why = refused[0]
        raise ValueError(
            f"--lengths={length}: {which}: {why}; leave it out of --positions or --attentions, or take another length"
        )
    for which, why in found.refused:
        log.warning("%s tokens, below the trained length: %s is left out: %s", f"{length:,}", which, why)
    reads = ("whole",) if length <= work.trained else ("first", "pieces")
    untouched = [Way(length, read, work.model, True) for read in reads]
    return untouched + [
        Way(length, "whole", work.model.extend(position=w.position, attention=w.attention), False) for w in found.found
    ]


def main(argv: list[str]) -> None:
    """The command. Ends with 1 where something is wrong."""
    example = "python -m lpe.measure --checkpoint=bert-mini --data=sotu --lengths=128,256"
    given = cli.given(flag_values(), argv, __doc__ or "", ("checkpoint", "data", "lengths"), example)
    positions, attentions, folder = given.pop("positions"), given.pop("attentions"), given.pop("workdir")
    with cli.errors():
        lengths = whole(given.pop("lengths"))
        found = run(given, lengths, positions, attentions, Path(folder) if folder else None)
    print(report.text(found))


def whole(words: list[str]) -> list[int]:
    """--lengths as numbers, each once, in order. Raises ValueError."""
    if not words or not all(w.strip().isdecimal() for w in words):
        raise ValueError(f"--lengths={','.join(words)}, allowed are whole numbers with commas, as 512,2048")
    return sorted({int(w) for w in words})


def run(
    config: dict[str, Any], lengths: list[int], positions: list[str], attentions: list[str], folder: Path | None = None
) -> Path:
    """Measures and writes; returns the folder with config.json, versions.json, results.jsonl, report.md and measure.png.

    Raises:
      FileNotFoundError, ValueError: as check, prepare and ways, before anything is measured; or a folder of another config,
        or of the same with other content of checkpoint or text.
    """
    work = prepare(check(config, lengths), lengths)
    every = [ways(work, length, positions, attentions) for length in lengths]
    kept = {**work.config, content.KEY: content.of(work.model, work.docs)}
    folder = folder or workdir.default(work.config)
    content.check(kept, folder)
    workdir.open(kept, folder)
    log.info("run      %s", folder)
    with workdir.lock(folder), workdir.full_disk(folder):
        out = bench.Results(folder / "results.jsonl")
        for todo in every:
            bench.measure(work, todo, out)
            bench.write(work, [w for each in every for w in each if out.of(w, "plan")], out, folder)
    return folder


if __name__ == "__main__":
    main(sys.argv)
