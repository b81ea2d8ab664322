"""Experiment 001: a checkpoint of 512 positions reads 262,144 tokens of real text in one pass, on a CPU.

    python -m experiments.e001_headline           # about 12 minutes on two idle cores; stopped, it goes on where it was
    python -m experiments.e001_headline --small --out=FOLDER   # the embedded bert-mini, 512 tokens, under a minute

Hypothesis (seeds/001; Su Jianlin, kexue.fm/archives/7947): n rows give n² positions. With MiniLM's 512 rows hierarchical
positions reach 262,144, and where attention is windowed time and memory grow in proportion to length, so that all of them are
read in one pass in less than 4 GB above the weights.

Text: State of the Union speeches in sequence, [CLS] before the first and [SEP] behind the last. Attention: a window of 512,
blocks of 512 (chunked), and dense until its compiled plan exceeds 8 GB. Batch 1, float32, the feed-forward part 512 tokens at
a time. Every row of the table is a process of its own:
  seconds      median of the passes after the first one, which compiles; of the longest input there is the first one alone
  CPU seconds  the same, of all threads together, which other work on the machine changes less
  peak         highest resident size above that of the process with the model loaded, compilation included
  plan         what the compiler plans for the pass as one program, the weights taken away

What was computed is checked too: with `copy` positions, which begin again with every block, blocks of 512 (raw tokens, without
special ones of their own) of the one long pass equal the untouched model run on each of these blocks alone, to 1e-5.
"""

import logging
import os
import sys
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

import lpe
from experiments import record
from lpe import build, cli, costs, stepwise
from lpe.data import sources
from lpe.measuring import process, text
from lpe.planning import feasible
from tests import assets

TOLERANCE = 1e-5
ROUNDS = ((16, 3), (64, 1))  # passes after the first, up to so many times the trained length; beyond, the first alone
log = logging.getLogger("lpe.e001")


class Setting(NamedTuple):
    """n: positions of the checkpoint. dense: bytes of the largest plan of dense attention that is run. batch: of the check."""

    checkpoint: str
    name: str
    n: int
    lengths: tuple[int, ...]
    dense: int
    batch: int = 8


def setting(small: bool) -> Setting:
    if small:
        return Setting("bert-mini", "bert-mini", 128, (512,), 10**6)
    path = str(assets.path("minilm"))
    return Setting(path, assets.PACKAGES["minilm"][0], 512, (512, 2048, 8192, 32768, 262144), 8 * 10**9)


def patterns(n: int) -> dict[str, dict[str, Any]]:
    return {
        f"window {n}": {"name": "window", "attention_window": n},
        f"blocks of {n}": {"name": "chunked", "chunk_size": n},
        "dense": {"name": "full"},
    }


def planned(s: Setting, attention: dict[str, Any], length: int) -> int:
    """Bytes above the weights that the compiler plans for one pass."""
    own = feasible.own_recipe(s.checkpoint, chunk_size=s.n)
    recipe = own._replace(position=build.positions({"name": "hierarchical"}), attention=build.attention(attention))
    cost = costs.of(recipe, length)
    return cost.memory - 4 * cost.parameters


def row(s: Setting, pattern: str, length: int, ids: np.ndarray) -> dict[str, Any]:
    """One line of the table; without times where a dense pass would take too much."""
    attention = patterns(s.n)[pattern]
    plan = planned(s, attention, length)
    out: dict[str, Any] = {"attention": pattern, "length": length, "plan": plan, "load_before": os.getloadavg()[0]}
    if pattern == "dense" and plan > s.dense:
        return out
    rounds = next((r for most, r in ROUNDS if length <= most * s.n), 0)
    title = f"{pattern}, {length:,} tokens"
    found = process.alone(
        process.Spec(s.checkpoint, [{"name": "hierarchical"}], attention, s.n, rounds=rounds, title=title), ids
    )
    if not found.finite:
        raise FloatingPointError(f"{title}: outputs are not finite")
    return out | {"seconds": found.seconds, "cpu": found.cpu, "memory": found.memory, "norm": found.norm}


def blocks(s: Setting, ids: np.ndarray) -> dict[str, Any]:
    """The largest difference between blocks of one long pass and the untouched model on each block.

    Raises:
      ValueError: it is above TOLERANCE.
    """
    plain = lpe.from_pretrained(s.checkpoint)
    long = lpe.from_pretrained(
        s.checkpoint, chunk_size=s.n, position={"name": "copy"}, attention={"name": "chunked", "chunk_size": s.n}
    )
    with tqdm(desc=f"check, one pass of {len(ids):,}", total=plain.config.num_hidden_layers, unit="layer") as bar:
        whole = np.asarray(stepwise.encode(long, {"input_ids": ids[None]}, process.shown(bar)))[0]
    pieces, apart = ids.reshape(-1, s.n), 0.0
    for i in tqdm(range(0, len(pieces), s.batch), desc=f"check, blocks of {s.n}", unit="batch"):
        part = np.asarray(plain.encode({"input_ids": pieces[i : i + s.batch]}))
        apart = max(apart, float(np.abs(part.reshape(-1, part.shape[-1]) - whole[i * s.n :][: part.shape[0] * s.n]).max()))
    if not apart <= TOLERANCE:
        raise ValueError(f"blocks of {s.n} of one pass differ from the untouched model by {apart:.1e}, above {TOLERANCE}")
    return {"length": len(ids), "blocks": len(pieces), "largest": float(np.abs(whole).max()), "apart": apart}


def table(found: dict[str, Any]) -> str:
    """The results as Markdown."""
    gb = lambda x: "–" if x is None else f"{x / 1e9:.2f}"  # noqa: E731
    heads = ("attention", "tokens", "speeches", "seconds", "CPU seconds", "tokens/s", "peak, GB", "plan, GB")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for r in found["rows"]:
        took = median(r["seconds"]) if "seconds" in r else None
        busy = f"{median(r['cpu']):,.2f}" if "cpu" in r else "–"
        cells = (f"{took:,.2f}", busy, f"{r['length'] / took:,.0f}", gb(r["memory"])) if took else ("not run", "–", "–", "–")
        speeches = found["speeches"][str(r["length"])]
        lines.append(f"| {r['attention']} | {r['length']:,} | {speeches} | {' | '.join(cells)} | {gb(r['plan'])} |")
    c, s = found.get("check"), found["settings"]
    lines += [
        "",
        f"{s['checkpoint']}, hierarchical positions; peak and plan are above the weights ({s['weights'] / 1e6:.1f} MB).",
    ]
    loads = [r["load_before"] for r in found["rows"] if "seconds" in r]
    lines.append(
        f"Load average of the machine before a row: {min(loads):.1f} to {max(loads):.1f}; other work makes times longer."
    )
    if c:
        lines.append(
            f"Blocks of {s['n']} of one pass over {c['length']:,} tokens, with `copy` positions, and the untouched model on "
            f"each of the {c['blocks']}: the largest difference is {c['apart']:.1e}, of values up to {c['largest']:.1f}."
        )
    return "\n".join(lines) + "\n"


def run(s: Setting, out: Path, command: str) -> dict[str, Any]:
    """Measures what results.json in `out` does not have yet; rows are written as each is there."""
    weights = 4 * costs.of(feasible.own_recipe(s.checkpoint), 8).parameters
    about = {"checkpoint": s.name, "n": s.n, "lengths": list(s.lengths), "dense": s.dense, "weights": weights}
    found = record.opened(out, about, command, speeches={})
    model = lpe.from_pretrained(s.checkpoint)
    docs = sources.documents({"source": "sotu"})
    stream = text.Sequence([d for split in sources.SPLITS for d in docs[split]], model.tokenizer, model.config.vocab_size)
    for length in s.lengths:
        stream.check(length, "sotu")
        found["speeches"][str(length)] = stream.documents(length)
    done = {(r["attention"], r["length"]) for r in found["rows"]}

    def keep() -> None:
        found["rows"].sort(key=lambda r: (list(patterns(s.n)).index(r["attention"]), r["length"]))
        record.keep(out, found, table(found))

    for length in s.lengths:
        for pattern in patterns(s.n):
            if (pattern, length) not in done:
                found["rows"].append(row(s, pattern, length, stream.input(length)))
                keep()
    if "check" not in found:
        found["check"] = blocks(s, stream.input(s.lengths[-1]))
    keep()
    return found


def main(argv: list[str]) -> None:
    """The command. Ends with 1 where something is wrong."""
    small, out, command = record.asked(argv, "e001_headline", __doc__)
    with cli.errors():
        found = run(setting(small), out, command)
    print(table(found))


if __name__ == "__main__":
    main(sys.argv)
