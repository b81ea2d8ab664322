"""Experiment 003: every method that needs no training, at 1, 2, 4 and 8 times the trained length.

    python -m tests.assets && python -m experiments.get_brown
    python -m experiments.e003_zero_shot        # about three hours on two cores that others used too; stopped, it goes on
    python -m experiments.e003_zero_shot --small --out=FOLDER   # bert-mini and speeches, seconds

Hypotheses (METHODS.md §1, one set of 50 questions, other documents): on MiniLM, which has an outlying row 0, needles are found
  at 1,024 tokens: truncated .32; hierarchical α=.4 .12, α=.1 .64; with reference row 1 .54, and a pinned row 0 .44; naive .02;
                   copy .58, without row 0 .54; interpolated .52, pinned .60; random rows .46
  at 2,048 tokens: α=.4 .10; reference row 1 and pinned row 0 .36; copy without row 0 .32; interpolated and pinned .52
so that 1. the default is below truncation, 2. reference row 1 mends it, 3. pinned interpolation is the best with dense
attention; and (results/zero_shot, speeches) 4. with a window of n copies alone keep what reading in pieces has.

Read: the Brown corpus, which none of this was found on. Measured by lpe.measuring, as `python -m lpe.measure` does:
  MiniLM (n = 512, no head)  needle: share of questions whose own document of 50 is the nearest; agreement: cosine with the
                             untouched model on texts of 128 tokens
  bert-mini (n = 128)        accuracy at masked places of held-out documents
A set is 50 questions, or WINDOWS windows; sets are done one after the other over all ways, so that a stopped run is whole.
With dense attention FAR limits what is read at 4 n and 8 n, where MiniLM takes seconds a document. At n all methods but the
naive one give the trained table itself, which their tests show, so only that one is read there. ± is the standard error over
sets of questions (of a single set, over its questions), or windows; documents are the same for all ways of a length, so
differences are surer than two such errors say. Texts of other lengths are others: compare within a length.

Result; the figures are in table.md.
  1. Not seen on these texts: MiniLM's default is above truncation at 2n and near it at 4n and 8n.
  2. In all three lengths reference row 1 with a pinned row 0 finds more than the default; on bert-mini it finds less.
  3. Not seen: with dense attention α = 0.1, random rows, copies and every interpolation find about as many as reading in pieces
     at 2n; at 4n interpolation and random rows still do; at 8n interpolation falls below copies. On bert-mini interpolation
     ends at chance, and random rows are the best, far below pieces.
  4. Copies with a window do: on bert-mini within .6 points of reading in pieces at every length, on MiniLM within the errors.
     Not alone: with a window `hierarchical` with α = 0.1 is within .8 points too.
  Agreement on short texts is 1 for what keeps the first n rows, .79 for interpolation at 8n, .04 for the naive form.
"""

import json
import logging
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from absl import flags

import lpe
from experiments import e003_report, get_brown, record
from lpe import cli, metrics, workdir
from lpe.data import sources, windows
from lpe.data.windows import Windows
from lpe.measuring import mlm, needle, text
from lpe.model import Model
from tests import assets

OUT = Path(__file__).parent / "results" / "e003_zero_shot"
SETS, WINDOWS = 5, 20  # of an MLM head
METHODS: dict[str, dict[str, Any]] = {
    "hierarchical": {"name": "hierarchical"},
    "hierarchical r=1 c=1": {"name": "hierarchical", "reference_row": 1, "pin_rows": 1},
    "copy": {"name": "copy"},
    "interpolate": {"name": "interpolate"},
    "copy c=1": {"name": "copy", "pin_rows": 1},
    "random": {"name": "random"},
    "hierarchical α=0.1": {"name": "hierarchical", "alpha": 0.1},
    "hierarchical r=1": {"name": "hierarchical", "reference_row": 1},
    "hierarchical_naive": {"name": "hierarchical_naive"},
    "interpolate pi c=1": {"name": "interpolate", "align": "pi", "pin_rows": 1},
    "grouped": {"name": "grouped"},
    "preserve_short": {"name": "preserve_short"},
}
FAR = {
    1: ("hierarchical_naive",),
    4: (*tuple(METHODS)[:6], "interpolate pi c=1"),
    8: tuple(METHODS)[:4],
}  # with dense attention
log = logging.getLogger("lpe.e003")


class Case(NamedTuple):
    """A checkpoint. sets: how many at each multiple of n. methods: with dense attention; windowed: with windows too."""

    source: str
    sets: dict[int, int]
    methods: tuple[str, ...]
    windowed: tuple[str, ...]


class Way(NamedTuple):
    """How a text is read: the arm's name, its attention, and `read` of lpe.measuring."""

    arm: str
    attention: str
    read: str
    model: Model


def cases(small: bool) -> dict[str, Case]:
    every = tuple(METHODS)
    if small:
        return {"bert-mini": Case("bert-mini", {2: 1}, ("copy",), ("copy",))}
    sets = {1: 3, 2: 3, 4: 1, 8: 1}
    return {
        "minilm": Case(str(assets.path("minilm")), sets, every, every[:4]),
        "bert-mini": Case("bert-mini", dict.fromkeys(sets, SETS), every, every),
    }


def ways(model: Model, case: Case, factor: int) -> list[Way]:
    """What is read at `factor` times the trained length n, the untouched model first."""
    n = model.config.max_position_embeddings - model.config.reserved_rows
    out = [Way("untouched", "full", read, model) for read in (("whole",) if factor == 1 else ("first", "pieces"))]
    dense = FAR.get(factor, case.methods)
    window = {"name": "window", "attention_window": n, "global_tokens": "cls"}
    for name, position in METHODS.items():
        for attention in ({"name": "full"}, window):
            if name in (dense if attention["name"] == "full" else case.windowed if factor > 1 else ()):
                longer = model.extend(position={**position, "max_length": factor * n}, attention=attention)
                out.append(Way(name, attention["name"], "whole", longer))
    return out


class Bench(NamedTuple):
    """A checkpoint with its texts: windows of held-out documents by length, or all documents in sequence."""

    model: Model
    n: int
    cut: dict[int, Windows]
    stream: text.Sequence | None

    def measure(self, way: Way, length: int, number: int) -> dict[str, Any]:
        """Set `number` at a length: quality, its error and count; of needles the agreement on short texts too."""
        if self.stream is None:
            cut = self.cut[length].take(SETS * WINDOWS)
            own = np.arange(cut.examples)[number::SETS]
            cut = cut._replace(tokens=cut.tokens[own], real=cut.real[own], document=cut.document[own])
            return mlm.score(way.model, cut, length, read=way.read, examples=WINDOWS)
        lay = windows.layout(length, self.n)
        found = needle.score(way.model, self.stream, lay, read=way.read, seed=number, examples=needle.CANDIDATES)
        if way.model is self.model or number:
            return found
        return found | needle.agreement(way.model, self.model, self.stream, trained=self.n, seed=number)


def bench(case: Case, source: str, documents: int) -> Bench:
    model, docs = lpe.from_pretrained(case.source), sources.documents({"source": source, "documents": documents})
    n = model.config.max_position_embeddings - model.config.reserved_rows
    if "mlm" in model.recipe.heads:
        return Bench(model, n, {f * n: mlm.windows(model, docs["heldout"], f * n, source) for f in case.sets}, None)
    every = [d for split in sources.SPLITS for d in docs[split]]
    return Bench(model, n, {}, text.Sequence(every, model.tokenizer, model.config.vocab_size))


def run(out: Path, *, small: bool) -> Path:
    """All that is not done yet: results.jsonl, table.md and zero_shot.png in `out`."""
    if not small:
        get_brown.main()
    source = "sotu" if small else str(get_brown.TEXTS)
    settings = {"small": small, "windows": WINDOWS, "methods": METHODS, "sets": {k: c.sets for k, c in cases(small).items()}}
    workdir.open({"name": "e003_zero_shot", **settings, "mesh": {}, "sharding_rules": {}, "save": {}}, out)
    file = out / "results.jsonl"
    rows = metrics.read(file)
    workdir.write(file, "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows))  # without a half-written line
    for name, case in cases(small).items():
        made = bench(case, source, 2 if small else 0)
        every = {f: ways(made.model, case, f) for f in case.sets}
        for number in range(max(case.sets.values())):
            for factor, todo in every.items():
                for way in todo if number < case.sets[factor] else ():
                    key = {"checkpoint": name, "length": factor * made.n, "arm": way.arm, "attention": way.attention}
                    key |= {"read": way.read, "set": number}
                    if any(key.items() <= r.items() for r in rows):
                        continue
                    log.info("%s", ", ".join(map(str, key.values())))
                    rows.append(key | made.measure(way, factor * made.n, number))
                    with file.open("a", encoding="utf-8") as f:
                        f.write(json.dumps(rows[-1], ensure_ascii=False) + "\n")
            e003_report.write(out, rows)
    return out


def start(argv: list[str]) -> None:
    """The command. Ends with 1 where something is wrong."""
    values = flags.FlagValues()
    flags.DEFINE_string("out", str(OUT), "A folder for the results, to go on in.", flag_values=values)
    flags.DEFINE_bool("small", False, "bert-mini alone, on speeches.", flag_values=values)
    v = record.given(values, argv, __doc__)
    small, out = bool(v["small"]), Path(v["out"])
    if small and out == OUT:
        sys.exit("lpe: --small needs --out, a folder of its own")
    with cli.errors():
        print(run(out, small=small) / "table.md")


if __name__ == "__main__":
    start(sys.argv)
