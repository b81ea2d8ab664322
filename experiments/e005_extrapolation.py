"""Position methods trained at 128 tokens and read at 128 … 1,024: which of them extrapolate.

    python -m experiments.e005_extrapolation --out=experiments/results/e005_extrapolation --runs=FOLDER
    python -m experiments.e005_extrapolation --small                        # one method, two lengths, a minute

It runs configs/extrapolation.py first: bert-mini with its table replaced by each method, equal training at 128 tokens, three
seeds; then rope's models tuned at 512 tokens. FOLDER keeps the models; stopped at any point, the same command goes on.

Hypotheses, with their sources:
  1. seeds/002 §3.2: beyond n a BERT falls "to a random level, as off a cliff", even where the last row is repeated, for
     attention is distributed otherwise in long inputs.
  2. seeds/002 §7.1: RoPE extrapolates well, since its angles only go on; but directly it fails at long distances, where
     attention becomes "abnormally sparse or chaotic". Su Jianlin (kexue.fm/archives/8823) instead: it becomes diffuse.
  3. seeds/002 §6.3: the product is largest at distance 0 and falls smoothly with distance (RoFormer's §3.4.3: a bound).
  4. seeds/002 §7.2: PI is stable and needs few steps of tuning, but near tokens are told apart less well; NTK-aware scaling
     keeps that; YaRN is almost without loss. seeds/001 §1: NTK reaches 4n, linear interpolation 2n.
  5. Press et al. 2021 (arXiv 2108.12409): trained short, ALiBi reads long; T5's bias does partly, sinusoidal does not.
  6. METHODS.md §2: the code of seeds/001 §3.2 moves frequencies the wrong way; it should be worse than no change at all.

What is read: 24 windows of 8 × 126 held-out tokens, masked once, joined 1, 2, 4 or 8 pieces to an input, so that all lengths
and arms have the same tokens and masks. Inputs are thus 128, 254, 506 and 1,010 tokens; factors are 2, 4, 8, and 4 where scaled
positions are read at 128. "pieces" is the reference of every length: the same model at 128.
  accuracy   at masked places; also by place in the input
  shuffled   the same at 128 with positions in random order. The gate: at least 15 points above it (lpe/assets/README.md)
  attention  entropy of its rows, and mean probability of a pair by distance (e005_attention.py), on fewer windows
± is the standard error over seeds; differences are paired by seed.

Result; the figures are in table.md. After 300 steps t5, alibi and sinusoidal fail the gate: t5's biases move by at most the
rate a step, alibi knows no direction, and sinusoidal's vectors (norm 8) are five times as long as the word embeddings.
So 5 stays open, but for this: with ALiBi beside the table (learned + alibi) copied rows lose 5 to 7 points, without it 34 to
48. Transformer-XL's positions lose nothing at any length, NEZHA's a point, Shaw's 4.
  1. Holds beyond n, with two differences. Places within n keep most of their accuracy in one long input (random rows, last
     row repeated), and new rows end near what a model without positions scores, 12 %; only a repeated row ends at chance.
     Copied and hierarchical rows spoil the places within n too: one vector then stands, or nearly, in several places.
  2. RoPE as it is loses half a point at 2n and 4 at 8n, most of it in the second half. Its attention is neither sparse nor
     chaotic: entropy grows with the length and keeps its share of the largest possible (.73 to .76). logN changes the
     entropy, not the accuracy.
  3. Refuted as worded: random equal vectors score more at the next distance about every other time, and vectors drawn apart
     score nothing at any. Of 16 trained heads 2 or 3 see their own place most; attention is at distances 1 to 3, and flat from
     4 on.
  4. Without tuning PI fails, also at 2n; NTK loses nothing up to 4n and 1.4 points at 8n, YaRN 2.7. PI's loss is the article's
     near tokens: heads that look one place away look s places away with it (the tables by distance). 60 steps at 512 do not
     mend it; NTK, YaRN and RoPE as it is end alike, above their own pieces of 128.
  6. Refuted as put: on rope the printed code loses 2.6 points at 8n, more than the formula (1.4) and less than no change
     (3.9). It raises frequencies, the lowest most, where scaling lowers them. Sinusoidal fails the gate and shows nothing.
Cost: three quarters of an hour of training, a quarter of tuning, half an hour of reading, on two cores that others used too.
"""

import dataclasses
import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from absl import flags

import lpe
from configs import extrapolation
from experiments import e005_attention, e005_report, record, sweep
from experiments.e005_report import OWN, TUNED
from lpe import cli, metrics, workdir
from lpe.data import sources
from lpe.data.windows import Layout
from lpe.measuring import mlm as reader
from lpe.tasks import mlm

FLAGS = flags.FlagValues()  # apart from those of other scripts, which tests import beside this one
OUT = flags.DEFINE_string("out", "runs/e005_extrapolation", "A folder for the results, to go on in.", flag_values=FLAGS)
RUNS = flags.DEFINE_string("runs", "runs/extrapolation", "A folder for the models, to go on in.", flag_values=FLAGS)
SMALL = flags.DEFINE_bool("small", False, "One method, two readings, two lengths, one window.", flag_values=FLAGS)
N, PIECES, EVAL_SEED = 128, 8, 5
SHORT_FACTOR = 4  # of scaled positions that are read at N
REPEATED, PRINTED = "last row repeated", "NTK by the code of seeds/001"
log = logging.getLogger("lpe.e005")

Position = dict | list[dict]


class Size(NamedTuple):
    """argument: of the config. joins: pieces in an input. windows: for accuracy. attended: for attention. batch: windows at a
    time."""

    argument: str
    joins: tuple[int, ...]
    windows: int
    attended: int
    batch: int


SIZES = {False: Size("", (1, 2, 4, 8), 24, 2, 4), True: Size("debug", (1, 2), 1, 1, 1)}


class Masked(NamedTuple):
    """hidden i32[W, pieces, piece], places and labels i32[W, pieces, M]; places are within the piece."""

    hidden: np.ndarray
    places: np.ndarray
    labels: np.ndarray


def masked(model: lpe.Model, count: int) -> Masked:
    """`count` windows spread over the held-out speeches."""
    lay = Layout(PIECES, N - 2)
    docs = sources.documents({"source": "sotu"})["heldout"]
    cut = reader.windows(model, docs, PIECES * N, "sotu").take(count)
    rngs = [np.random.default_rng([EVAL_SEED, i]) for i in range(count)]
    found = [mlm.mask(t, lay.content, lay, reader.RATE, model.tokenizer, r) for t, r in zip(cut.tokens, rngs, strict=True)]
    hidden, places, labels = (np.stack(x) for x in zip(*found, strict=True))
    return Masked(hidden.reshape(count, *lay), places, labels)


def joined(text: Masked, join: int, tokenizer, *, shuffled: bool = False) -> dict[str, np.ndarray]:
    """The windows as inputs of `join` pieces each: input_ids [I, T], places and labels [I, join · M]."""
    size, offsets = text.hidden.shape[2], np.arange(PIECES)[:, None] % join * text.hidden.shape[2]
    rows = text.hidden.reshape(-1, join * size)
    out = {
        "input_ids": np.stack([mlm.frame(row, len(row), tokenizer)[0] for row in rows]),
        "places": (text.places + offsets + 1).reshape(len(rows), -1),  # behind [CLS]
        "labels": text.labels.reshape(len(rows), -1),
    }
    if shuffled:
        rng = np.random.default_rng(EVAL_SEED)
        out["position_ids"] = rng.permuted(np.tile(np.arange(join * size + 2, dtype=np.int32), (len(rows), 1)), axis=1)
    return out


def readings(arm: str, join: int) -> dict[str, Position | None]:
    """What an arm's models are read with at a length, by name; None is what they were trained with."""
    length = N * (join if join > 1 else SHORT_FACTOR)
    rope: dict[str, Position] = {name: {"name": name, "max_length": length} for name in e005_report.SCALED}
    if join == 1:
        return {OWN: None} | (rope if arm == "rope" else {})
    rows = {name: {"name": name, "max_length": length} for name in ("copy", "hierarchical", "random")}
    found: dict[str, dict[str, Position]] = {
        "rope": {
            **rope,
            "rope_dynamic": {"name": "rope_dynamic"},
            "rope + logn": [{"name": "rope"}, {"name": "logn"}],
            PRINTED: {"name": "rope", "rope_theta": printed_base(32, join)},
        },
        "sinusoidal": {
            "sinusoidal_ntk": {"name": "sinusoidal_ntk", "max_length": length},
            PRINTED: {"name": "sinusoidal", "base": printed_base(128, join)},
        },
        "learned": {**rows, REPEATED: rows["random"]},
        "learned + alibi": {"copy + alibi": [rows["copy"], {"name": "alibi"}]},
    }
    return {OWN: None, **found.get(arm, {})}


def printed_base(size: int, s: float) -> float:
    """What the code of seeds/001 §3.2 amounts to: log(base) / (d · s^(2/(d − 2))) in place of log(base) / d, d = `size`."""
    return 10_000.0 ** (s ** -(2 / (size - 2)))


def read_with(model: lpe.Model, name: str, position: Position | None) -> lpe.Model:
    """The model as it is read."""
    if position is None:
        return model
    longer = model.extend(position=position)
    if name != REPEATED:
        return longer
    table = longer.params["position"]["table"]
    rows = {"table": table.at[N:].set(table[N - 1])}
    return dataclasses.replace(longer, params={**longer.params, "position": rows})


def accuracy(model: lpe.Model, batch: dict[str, np.ndarray], windows: int, per_batch: int) -> dict[str, Any]:
    """right: of each window; places: [[right, count], …] by 64 places of the input."""
    total, keys, guess = len(batch["input_ids"]), ("input_ids", "position_ids"), []
    step = per_batch * total // windows
    for at in range(0, total, step):
        scores = model.mlm_logits({k: batch[k][at : at + step] for k in keys if k in batch})
        guess.append(np.take_along_axis(np.asarray(scores.argmax(-1)), batch["places"][at : at + step], axis=1))
    right = np.concatenate(guess) == batch["labels"]
    places = np.zeros((-(-batch["input_ids"].shape[1] // 64), 2), int)
    np.add.at(places, batch["places"] // 64, np.stack([right, np.ones_like(right)], -1).astype(int))
    return {"right": right.reshape(windows, -1).sum(1).tolist(), "count": right.size // windows, "places": places.tolist()}


def attention(model: lpe.Model, ids: np.ndarray, windows: int) -> dict[str, Any]:
    """entropy by layer, in nats; weight: mean probability of a pair by distance; of the heads, falls: those whose weight never
    rises, peaks: those whose weight is greatest there."""
    found = e005_attention.attended(model, [{"input_ids": part} for part in np.split(ids, windows)])
    there = ~np.isnan(found.weight_LNR[0, 0])
    weight = found.weight_LNR[..., there]
    return {
        "entropy": found.entropy_LN.mean(1).round(4).tolist(),
        "weight": [float(f"{x:.4g}") for x in weight.mean((0, 1))],
        "falls": int((np.diff(weight, axis=-1) <= 0).all(-1).sum()),
        "peaks": np.bincount(weight.argmax(-1).ravel(), minlength=weight.shape[-1]).tolist(),
    }


def evaluate(arm: str, model: lpe.Model, text: Masked, size: Size, done: set[tuple]) -> Iterator[dict]:
    """A row for each reading, length and measure that is not done."""
    few = Masked(*(x[: size.attended] for x in text))
    for join in size.joins:
        ways = [(name, position, False) for name, position in readings(arm, join).items()][: 2 if size.argument else None]
        ways += [("shuffled", None, True)] if join == 1 else []
        limit = model.max_length
        for name, position, shuffled in ways:
            if position is None and limit is not None and N * join > limit:
                continue
            for measure in ("accuracy", "attention"):
                key = (measure, name, join)
                if key in done or (measure == "attention" and (shuffled or arm.endswith(TUNED))):
                    continue
                longer = read_with(model, name, position)
                if measure == "accuracy":
                    batch = joined(text, join, model.tokenizer, shuffled=shuffled)
                    found = accuracy(longer, batch, len(text.hidden), size.batch)
                else:
                    ids = joined(few, join, model.tokenizer)["input_ids"]
                    found = attention(longer, ids, len(few.hidden))
                yield {"measure": measure, "read": name, "join": join, **found}


def trained(runs: Path, size: Size) -> Iterator[tuple[str, int, Path]]:
    """Arm, seed and folder of every model, trained where it is not there; those tuned at 512 last."""
    file, first = extrapolation.__file__, runs / "trained"
    for folder, argument in ((first, size.argument), (runs / "tuned", f"tune={first}," + size.argument)):
        config = extrapolation.get_config(argument.strip(",")).to_dict()
        sweep.run(file, config, folder)
        for what, _ in sweep.listed(file, config):
            name = what["label"] if folder == first else f"{what['label']}, {TUNED}"
            path = folder / f"{workdir.slug(what['label'])}.{what['repeat']}" / workdir.slug(config["name"]) / "model"
            yield name, what["repeat"], path


def run(out: Path, runs: Path, *, small: bool) -> Path:
    """All that is not done yet; results.jsonl grows by a line a measure, table.md and the plot are made at the end."""
    size = SIZES[small]
    command = f"python -m experiments.e005_extrapolation{' --small' if small else ''}"
    arguments = {"training": size.argument, "tuning": f"tune=TRAINED,{size.argument}".strip(",")}
    about = {k: extrapolation.get_config(x).to_dict() for k, x in arguments.items()} | {"size": size._asdict()}
    about |= {"name": "e005_extrapolation", "command": command, "mesh": {}, "sharding_rules": {}, "save": {}}
    workdir.open(about, out)
    file = out / "results.jsonl"
    rows = metrics.read(file)
    workdir.write(file, "".join(map(line, rows)))  # without a half-written line
    text = masked(lpe.from_pretrained("bert-mini"), size.windows)
    for arm, seed, folder in trained(runs, size):
        model = lpe.from_pretrained(folder)
        what = {"arm": arm, "seed": seed}
        done = {(r["measure"], r["read"], r["join"]) for r in rows if what.items() <= r.items()}
        for row in evaluate(arm, model, text, size, done):
            rows.append({**what, **row})
            with file.open("a", encoding="utf-8") as f:
                f.write(line(rows[-1]))
        log.info("%s, seed %d: read", arm, seed)
    e005_report.write(out, rows, command)
    return out


def line(row: dict) -> str:
    return json.dumps(row, ensure_ascii=False) + "\n"


def start(argv: list[str]) -> None:
    record.given(FLAGS, argv, __doc__)
    with cli.errors():
        print(run(Path(OUT.value), Path(RUNS.value).expanduser(), small=SMALL.value) / "table.md")


if __name__ == "__main__":
    start(sys.argv)
