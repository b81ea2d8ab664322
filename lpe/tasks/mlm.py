"""Masked language modelling (Devlin et al. 2018, §3.1): 15 % of the tokens, of which 80 % [MASK], 10 % random, 10 % kept.

One window of text, masked once, can be read in several views, so that lengths are compared on equal tokens and masks:
  full      one input of the whole length
  pieces    the same tokens and masks as several inputs of the trained length
  first     only the first of these pieces: the text truncated
  shuffled  the pieces with their positions in random order: what a model scores that uses no order

With documents="pack", a row holds several short windows, each with its own [CLS] and [SEP]; its views are
  full      the packed row, with segment_ids
  unpacked  the same windows and masks, one per row
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import grain
import jax.numpy as jnp
import numpy as np
from jax import Array

from lpe.data import batching, reading, windows
from lpe.data.windows import Layout, Packed, Windows
from lpe.models import heads, layers
from lpe.tasks import base
from lpe.tasks.base import UNUSED, Task, View

DOCUMENTS = ("chunk", "truncate", "pack")
EVAL_SEED = 20_210
ABOUT = (
    "Accuracy at the masked places of held-out text ± standard error (windows as the unit of sampling; ? with a single "
    "window). All rows have the same windows and masks, truncated ones those of the first piece. An input is [CLS], text, "
    "[SEP]."
)


def make(
    cfg,
    encode: Callable,
    *,
    length: int,
    mask_rate: float = 0.15,
    train_mask_rate: float | None = None,
    documents: str = "chunk",
    chunk_size: int = 0,
) -> Task:
    """The MLM task.

    Args:
      cfg: the model's config.
      encode: (params, batch, *, key) -> ([B, T, D], Tokens).
      length: tokens of an input, [CLS] and [SEP] included; beyond the trained rows it is divided for the other views.
      mask_rate: share of the tokens to predict, in (0, 1).
      train_mask_rate: the same for training, where it differs (Wettig et al., arXiv 2202.08005: 0.4 can beat 0.15).
      documents: what becomes of documents that are longer or shorter than an input: "chunk", consecutive windows of each;
        "truncate", only the first one; "pack", chunk with several short windows in a row.
      chunk_size: masked places at a time of the MLM head, to save memory; 0 for all at once.

    Raises:
      ValueError: a value outside its range.
    """
    base.check_length(length)
    train_rate = mask_rate if train_mask_rate is None else train_mask_rate
    for name, rate in (("mask_rate", mask_rate), ("train_mask_rate", train_rate)):
        if not isinstance(rate, float) or not 0.0 < rate < 1.0:
            raise ValueError(f"task.{name}={rate!r}, allowed are 0 < {name} < 1; BERT's is 0.15")
    base.check_choice("documents", documents, DOCUMENTS)
    if type(chunk_size) is not int or chunk_size < 0:
        raise ValueError(f"task.chunk_size={chunk_size!r}, allowed are whole numbers from 0 (no chunks)")
    pack = documents == "pack"
    lay = windows.layout(length, length if pack else cfg.max_position_embeddings - cfg.reserved_rows)

    def by_place(params: dict, batch: dict[str, Array], key: Array | None) -> tuple[Array, Array]:
        x_BTD, _ = encode(params, batch, key=key)
        x_BMD = jnp.take_along_axis(x_BTD, batch["places"][..., None], axis=1)
        scored = lambda x, labels: base.by_place(heads.mlm_logits(params, cfg, x), labels)  # noqa: E731
        return layers.in_chunks(scored, (x_BMD, batch["labels"]), chunk_size)

    def loss(params: dict, batch: dict[str, Array], key: Array | None):
        return base.mean(*by_place(params, batch, key), batch["labels"])

    def predict(params: dict, batch: dict[str, Array]) -> dict[str, Array]:
        each, right = by_place(params, batch, None)
        return {"right": right, "loss": each}

    def prepare(docs, tokenizer) -> Windows | Packed:
        cut = windows.cut(docs, tokenizer, lay.content, first=documents == "truncate")
        return windows.packed(cut, lay.content) if pack else cut

    def dataset(
        cut: Windows | Packed, tokenizer, view: str, batch_size: int, *, seed: int = 0, limit: int | None = None, multiple_of=1
    ):  # fmt: skip
        if limit is not None:
            cut = cut.take(limit)
        rate = train_rate if limit is None else mask_rate
        if isinstance(cut, Packed):
            read = packed_reader(cut, lay, view, rate, tokenizer)
        else:
            read = partial(example, cut, lay, view, rate, tokenizer)
        ds = grain.MapDataset.source(range(cut.examples)).seed(seed if limit is None else EVAL_SEED)
        if limit is None:
            ds = batching.endless(ds)
        return ds.random_map(lambda i, rng: read(i, rng)).batch(batch_size, batch_fn=join)

    return Task(
        {}, ("mlm",), (), (), _views(lay, pack), prepare, dataset, loss, predict, score,
        partial(base.check_tokenizer, vocab_size=cfg.vocab_size, needs=("cls_token", "sep_token", "mask_token")),
        ("accuracy",), "masked places", "windows", ABOUT,
    )  # fmt: skip


def _views(lay: Layout, pack: bool) -> dict[str, View]:
    whole, piece = lay.content + windows.SPECIALS, lay.piece + windows.SPECIALS
    if pack:
        return {"full": View(f"1 × {whole}, packed", whole), "unpacked": View(f"1 × {whole}, unpacked", whole)}
    return {
        "full": View(f"1 × {whole}", whole),
        "pieces": View(f"{lay.pieces} × {piece}", piece),
        "first": View(f"1 × {piece} (truncated)", piece),
        "shuffled": View(f"{lay.pieces} × {piece}, positions shuffled", piece),
    }


def chosen(rate: float, size: int) -> int:
    """How many of `size` tokens are predicted."""
    return max(1, round(rate * size))


def mask(tokens: np.ndarray, real: int, lay: Layout, rate: float, tokenizer, rng: np.random.Generator):
    """Chooses, piece by piece, round(rate · real tokens) places, at least 1, and hides them.

    Args:
      tokens: i32[content], `real` of them real.

    Returns:
      hidden i32[content], places i32[pieces, M] within the piece, labels i32[pieces, M] with -100 where a slot is unused.
    """
    slots = chosen(rate, lay.piece)
    places = np.zeros((lay.pieces, slots), np.int32)
    labels = np.full((lay.pieces, slots), UNUSED, np.int32)
    hidden = tokens.copy()
    for p in range(lay.pieces):
        inside = min(max(real - p * lay.piece, 0), lay.piece)
        count = min(chosen(rate, inside), slots) if inside else 0
        at = np.sort(rng.permutation(inside)[:count])
        places[p, :count], labels[p, :count] = at, tokens[p * lay.piece + at]
        action = rng.random(count)
        drawn = rng.integers(0, len(tokenizer), count)
        new = np.where(action < 0.8, tokenizer.mask_token_id, np.where(action < 0.9, drawn, labels[p, :count]))
        hidden[p * lay.piece + at] = new
    return hidden, places, labels


def example(cut: Windows, lay: Layout, view: str, rate: float, tokenizer, i: int, rng: np.random.Generator) -> dict:
    """Window i in a view, as arrays with a leading axis of inputs; the masks depend on `rng` only, not on the view."""
    real = int(cut.real[i])
    hidden, places, labels = mask(cut.tokens[i], real, lay, rate, tokenizer, rng)
    if view == "full":
        parts, offsets = hidden[None], np.arange(lay.pieces)[:, None] * lay.piece
        places, labels, sizes = (places + offsets).reshape(1, -1), labels.reshape(1, -1), [real]
    else:
        parts = hidden.reshape(lay.pieces, lay.piece)
        sizes = [min(max(real - p * lay.piece, 0), lay.piece) for p in range(lay.pieces)]
        if view == "first":
            parts, places, labels, sizes = parts[:1], places[:1], labels[:1], sizes[:1]
    rows = [frame(part, size, tokenizer) for part, size in zip(parts, sizes, strict=True)]
    out = {
        "input_ids": np.stack([r[0] for r in rows]),
        "attention_mask": np.stack([r[1] for r in rows]),
        "places": places + 1,  # behind [CLS]
        "labels": labels,
        "example": np.full(len(rows), i, np.int32),
    }
    if view == "shuffled":
        out["position_ids"] = np.stack([rng.permutation(lay.piece + windows.SPECIALS) for _ in rows]).astype(np.int32)
    return out


def packed_reader(cut: Packed, lay: Layout, view: str, rate: float, tokenizer) -> Callable:
    """(row, rng) -> that packed row, or its windows one per row; every row has the shapes that the fullest one needs."""
    slots = max(sum(chosen(rate, int(cut.windows.real[w])) for w in row) for row in cut.rows)
    inputs, width = max(map(len, cut.rows)), lay.content + windows.SPECIALS

    def read(i: int, rng: np.random.Generator) -> dict:
        parts = []
        for w in cut.rows[i]:
            size = int(cut.windows.real[w])
            hidden, places, labels = mask(cut.windows.tokens[w], size, lay, rate, tokenizer, rng)
            ids, real = frame(hidden, size, tokenizer)
            parts.append((ids, real, places[0] + 1, labels[0]))
        if view == "unpacked":
            ids, real, places, labels = (np.stack(x) for x in zip(*parts, strict=True))
            out = {"input_ids": ids, "attention_mask": real, "places": places, "labels": labels}
            empty = {"input_ids": tokenizer.pad_token_id or 0, "attention_mask": 0, "places": 0, "labels": UNUSED}
            out = {k: _filled(v, 0, inputs, empty[k]) for k, v in out.items()}
        else:
            sizes = [int(real.sum()) for _, real, _, _ in parts]
            starts = np.cumsum([0, *sizes[:-1]])
            used = [labels != UNUSED for *_, labels in parts]
            row = {
                "input_ids": np.concatenate([ids[:n] for (ids, *_), n in zip(parts, sizes, strict=True)]),
                "segment_ids": np.repeat(np.arange(1, len(parts) + 1, dtype=np.int32), sizes),
                "places": np.concatenate([p[u] + s for (_, _, p, _), u, s in zip(parts, used, starts, strict=True)]),
                "labels": np.concatenate([n[u] for (*_, n), u in zip(parts, used, strict=True)]),
            }
            fill = {"input_ids": (width, tokenizer.pad_token_id or 0), "segment_ids": (width, 0), "places": (slots, 0)}
            out = {k: _filled(v[None], 1, *fill.get(k, (slots, UNUSED))).astype(np.int32) for k, v in row.items()}
            out["attention_mask"] = (out["segment_ids"] > 0).astype(np.int32)
        return {**out, "example": np.full(len(out["labels"]), i, np.int32)}

    return read


def _filled(x: np.ndarray, axis: int, size: int, value: int) -> np.ndarray:
    widths = [(0, size - n if a == axis else 0) for a, n in enumerate(x.shape)]
    return np.pad(x, widths, constant_values=value)


def frame(part: np.ndarray, size: int, tokenizer) -> tuple[np.ndarray, np.ndarray]:
    """[CLS] part [SEP] and padding, with its attention mask."""
    ids, pad = reading.frame(part[:size], tokenizer), (0, len(part) - size)
    return np.pad(ids, pad, constant_values=tokenizer.pad_token_id or 0), np.pad(np.ones(len(ids), np.int32), pad)


def join(examples: Sequence[dict]) -> dict[str, np.ndarray]:
    """One batch: the inputs of all examples below each other."""
    return {k: np.concatenate([e[k] for e in examples]) for k in examples[0]}


def score(results: Iterable[tuple[dict, dict]]) -> dict:
    """Accuracy and loss at the masked places, and by place.

    accuracy_se is the standard error with whole windows as the unit of sampling (a window's places are not independent); None
    with fewer than two windows. Raises FloatingPointError for a loss that is not finite.
    by_place: [[right, count], …] per place in the input; by_unit: [[window, right, count], …]; loss_by_unit: the sum of the
    losses of each of these windows, in nats.
    """
    right, count = np.zeros(0), np.zeros(0)
    by_window: dict[int, np.ndarray] = {}
    losses = 0.0
    for batch, out in results:
        used = batch["labels"] != UNUSED
        size = max(len(count), int(batch["places"].max()) + 1)
        right, count = np.pad(right, (0, size - len(right))), np.pad(count, (0, size - len(count)))
        np.add.at(count, batch["places"][used], 1)
        np.add.at(right, batch["places"][used], out["right"][used])
        sums = np.where(used, out["loss"], 0.0).sum(axis=1)
        base.check_finite(sums, batch["example"])
        losses += float(out["loss"][used].sum())
        for w, r, u, x in zip(batch["example"], out["right"] & used, used, sums, strict=True):
            by_window[int(w)] = by_window.get(int(w), np.zeros(3)) + (r.sum(), u.sum(), x)
    per = np.stack(list(by_window.values()))
    accuracy, se = base.ratio(per[:, 0], per[:, 1])
    return {
        "accuracy": accuracy,
        "accuracy_se": se,
        "loss": losses / float(count.sum()),
        "count": int(count.sum()),
        "by_unit": [[w, int(r), int(c)] for w, (r, c, _) in sorted(by_window.items())],
        "loss_by_unit": [float(x) for _, (*_, x) in sorted(by_window.items())],
        "by_place": np.stack([right, count], 1).astype(int).tolist(),
    }
