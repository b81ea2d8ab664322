"""What was written is read again and held against the model that it was written from."""

from pathlib import Path
from typing import Any

import numpy as np

from lpe import build, params, stock
from lpe.checkpoint import beside, config, files, native
from lpe.model import Model, from_pretrained
from lpe.verification import comparison
from lpe.verification.findings import Check

TEXT = "A licence, 2 cafés and an (unusual) word: floccinaucinihilipilification."
LICENCE = ("license", "licence")  # what the names of fields about it begin with
TOLERANCE = 1e-5  # of outputs in float32: a table in place of a rule may round the last bit differently


def checks(model: Model, folder: Path, dtype: str, longest: int, seed: int) -> list[Check]:
    """Weights, outputs, tokenizer, lengths and licence of a folder that `model` was saved to.

    Args:
      folder: as saved, with the files that travelled.
      dtype: of the file.
      longest: tokens of the longest input that is run.
    """
    inner = beside.inside(folder)
    again = from_pretrained(inner, dtype=model.recipe.dtype, chunk_size=model.recipe.chunk_size)
    found = [_weights(model, again, dtype), _outputs(model, again, dtype, longest, seed)]
    if model.tokenizer is not None:
        found.append(_tokenizer(model, again))
    return [*found, _lengths(model, again, folder, inner), _licence(model, again, folder)]


def _weights(model: Model, again: Model, dtype: str) -> Check:
    """All parameters bit for bit, rounded to the file's dtype; a table that was built, vector by vector."""
    mine, theirs = (params.flatten(m.params) for m in (model, again))
    if "position/table" in theirs and model.recipe.position != again.recipe.position:
        r = model.config.reserved_rows
        mine["position/table"] = model.position_table()[r:]
        theirs["position/table"] = theirs["position/table"][again.config.reserved_rows :]
    count, new = len(mine), sorted(theirs.keys() - mine.keys())
    mine |= {k: mine.get(k.replace("pattern/", "").replace("_global", ""), np.zeros(0)) for k in new}
    wrong = [k for k in mine if k not in theirs or not _rounded_equal(mine[k], theirs[k], dtype)]
    text = f"{count} parameters read as they were written" + ("" if dtype == "float32" else f", rounded to {dtype}")
    if wrong:
        text = f"{len(wrong)} of {count} parameters are not read as they were written, the first {wrong[0]}"
    more = [f"copies of the local projections, for the stock class: {', '.join(new)}"] if new and not wrong else []
    if not native.is_whole(again.companions.raw):
        more += stock.notes(build.network(model.recipe), again.recipe.family)
    return Check("written", text, "all, bit for bit", not wrong, tuple(more), {"wrong": wrong, "new": new})


def _tokenizer(model: Model, again: Model) -> Check:
    """The same ids of a text, by the tokenizer that the folder is opened with."""
    a, b = (None if m.tokenizer is None else m.tokenizer(TEXT)["input_ids"] for m in (model, again))
    text = (
        f"{len(a or ())} ids of a text as before" if a == b else f"gives other ids: {(b or [])[:5]} in place of {(a or [])[:5]}"
    )
    return Check("tokenizer", text, "the same ids", a == b)


def _licence(model: Model, again: Model, folder: Path) -> Check:
    """Fields of config.json and files of the source, byte for byte."""
    before, after = model.companions.raw, again.companions.raw
    fields = [k for k in before if k.lower().startswith(LICENCE)]
    source = model.companions.folder
    names = [] if source is None else [n for n in beside.sort(source).travel if beside.is_paper(n)]
    root = None if source is None else beside.layout(source).root
    lost = [k for k in fields if after.get(k) != before[k]]
    lost += [n for n in names if root and not ((folder / n).is_file() and (folder / n).read_bytes() == (root / n).read_bytes())]
    there = ", ".join([*(f"{k}: {before[k]}" for k in fields), *names])
    text = f"lost or changed: {', '.join(lost)}" if lost else there or "the source names none"
    return Check("papers", text, "as in the source", not lost, data={"lost": lost, "there": [*fields, *names]})


def _rounded_equal(mine, theirs, dtype: str) -> bool:
    a, b = np.asarray(mine), np.asarray(theirs)
    return a.shape == b.shape and np.array_equal(a.astype(files.DTYPES[dtype]).astype(np.float32), b)


def _outputs(model: Model, again: Model, dtype: str, longest: int, seed: int) -> Check:
    heads = [h for h in comparison.OUTPUTS if comparison.has(model, h) and comparison.has(again, h)]
    top = comparison.affordable([model, again], longest, rows=3)
    worst, lengths = comparison.differences(model, again, heads, top, seed)
    text = (
        ", ".join(f"{h} {comparison.number(x)}" for h, x in worst.items())
        + f" (inputs of {', '.join(f'{k:,}' for k in lengths)} tokens)"
    )
    ok = all(x <= TOLERANCE for x in worst.values()) if dtype == "float32" else None
    return Check(
        "read again", text, f"at most {TOLERANCE:g}" if ok is not None else f"rounded to {dtype}", ok, data={"largest": worst}
    )


def _lengths(model: Model, again: Model, folder: Path, inner: Path) -> Check:
    """Who reads the folder shall find one length everywhere."""
    found: dict[str, Any] = {"lpe": again.max_length}
    if (path := inner / "tokenizer_config.json").is_file():
        found["the tokenizer's model_max_length"] = files.read_json(path).get("model_max_length")
    for path in inner.glob(beside.LENGTHS) if beside.layout(inner).modules else ():
        found["sentence-transformers' max_seq_length"] = files.read_json(path).get("max_seq_length")
    if config.FAMILIES[again.recipe.family].position_fields is None and build.plain(again.recipe):
        found["config.json's rows less the reserved"] = again.config.max_position_embeddings - again.config.reserved_rows
    wrong = {k: v for k, v in found.items() if v != model.max_length}
    if model.max_length is None:
        return Check("lengths", "no limit", data={"found": found})
    text = f"{model.max_length:,} tokens, as say {', '.join(found)}"
    if wrong:
        text = f"{model.max_length:,} tokens, but {', '.join(f'{k} says {v}' for k, v in wrong.items())}"
    return Check("lengths", text, "one everywhere", not wrong, data={"found": found})
