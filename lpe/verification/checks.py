"""What an extended model keeps of the one it was made of, measured, and held against what its methods promise."""

import math

import jax
import numpy as np

from lpe import build, params, registry
from lpe.model import Model
from lpe.positions import base
from lpe.positions.report import OUTLIER, table_report
from lpe.verification import comparison, provenance
from lpe.verification.comparison import Outputs
from lpe.verification.findings import Check, Report
from lpe.verification.pair import Pair, pair_of

SHOWN = 8  # ranges of positions in the printed report
LICENCE = ("license", "licence")  # what the names of fields about it begin with
SIDES = ("left", "right")


def verify(before: Model, after: Model, *, length: int | None = None, seed: int = 0, tuned: bool = False) -> Report:
    """Compares a model with the one that it was extended from, and holds each result against the promise there is.

    Args:
      before: as it was loaded. after: what `extend` made of it, perhaps saved and loaded again.
      length: tokens of the longest input that is run. Default: all positions of `after`, or four times the trained ones
        where there is no limit; halved until memory and time of this machine allow it, which the report says.
      seed: of the inputs, drawn from the vocabulary.
      tuned: `after` was trained since, or saved in 16 bit: differing weights, and what follows from them, break no promise.

    Raises:
      ValueError: no models, models that have nothing to compare, or a length that `after` does not offer.
    """
    pair = pair_of(before, after, tuned)
    limit = pair.new.position.max_length
    if length is not None and (isinstance(length, bool) or not isinstance(length, (int, np.integer)) or length < 1):
        raise ValueError(f"verify: length={length!r}, allowed are whole numbers from 1")
    if length is not None and limit is not None and length > limit:
        raise ValueError(f"verify: length={length}, allowed are 1 to {limit}, the positions of `after`; leave it out for all")
    longest = _longest(pair, length, seed)
    runs = comparison.lengths(after, pair.n, longest.data["checked"])
    found = [
        _methods(pair), _lengths(pair), _weights(pair), _short(pair, seed), *_positions(pair), longest,
        *(_padding(pair, runs, side, seed) for side in SIDES), _batch(pair, runs, seed), _size(pair), _licence(pair),
    ]  # fmt: skip
    name = before.companions.source or before.recipe.family
    return Report(f"verify: {name}, extended{' and tuned' if tuned else ''}", tuple(found))


def _methods(p: Pair) -> Check:
    old, new = p.old.position, p.new.position
    fits = (not old.specs and not new.specs) or bool(old.specs.keys() & new.specs.keys())
    needed = base.hooks(old) != base.hooks(new) or not fits
    words = {
        k: [build.names(m.recipe), dict(m.recipe.attention)["name"]] for k, m in (("before", p.before), ("after", p.after))
    }
    text = " → ".join(f"{a} with attention {b!r}" for a, b in words.values())
    use = (
        "the weights were not trained with these positions and need training"
        if needed
        else "of the kind that the weights were trained with"
    )
    specs = [
        {"position": [dict(s) for s in m.recipe.position], "attention": dict(m.recipe.attention)} for m in (p.before, p.after)
    ]
    return Check("methods", text, more=(use,), data={"before": specs[0], "after": specs[1], "needs_training": needed})


def _lengths(p: Pair) -> Check:
    a, b = p.old.position.max_length, p.new.position.max_length
    text = " → ".join("no limit" if x is None else f"{x:,} tokens" for x in (a, b))
    return Check("max_length", text, data={"before": a, "after": b, "trained": p.n})


def _weights(p: Pair) -> Check:
    """All parameters that both have, but for those of positions where the method is another."""
    a, b = (params.flatten(m.params) for m in (p.before, p.after))
    shared = sorted(k for k in a.keys() & b.keys() if p.same or not k.startswith("position/"))
    other = [k for k in shared if a[k].shape != b[k].shape]
    worst = {k: comparison.largest(np.asarray(a[k]), np.asarray(b[k])) for k in shared if k not in other}
    moved = sorted((k for k, x in worst.items() if x != 0.0), key=lambda k: -math.inf if math.isnan(worst[k]) else -worst[k])
    text = f"{len(shared)} parameters of both are equal"
    if other or moved:
        largest = f" by up to {worst[moved[0]]:.1e} ({moved[0]})" if moved else f" in shape ({other[0]})"
        text = f"{len(other + moved)} of {len(shared)} parameters of both differ{largest}"
    lost, made = sorted(a.keys() - b.keys()), sorted(b.keys() - a.keys())
    more = tuple(f"{word}: {', '.join(names)}" for word, names in (("left out", lost), ("new", made)) if names)
    data = {
        "shared": len(shared),
        "differ": other + moved,
        "largest": max(worst.values(), default=0.0),
        "lost": lost,
        "new": made,
    }
    if p.tuned:
        return Check("weights", text, "tuned since", None, more, data)
    return Check("weights", text, "equal, but for positions", not other + moved, more, data)


def _short(p: Pair, seed: int) -> Check:
    """The largest difference of outputs on inputs within the trained positions."""
    heads = [h for h in comparison.OUTPUTS if comparison.has(p.before, h) and comparison.has(p.after, h)]
    top = comparison.affordable([p.before, p.after], p.rows, rows=3)
    worst, lengths = comparison.differences(p.before, p.after, heads, top, seed)
    text = ", ".join(f"{h} {comparison.number(x)}" for h, x in worst.items())
    text += f" (inputs of {', '.join(f'{k:,}' for k in lengths)} tokens)"
    if top < p.rows:
        text += f"; longer ones, up to {p.rows:,}, do not fit this machine"
    data = {"largest": worst, "lengths": lengths}
    patterns = [registry.without_defaults("attention", dict(m.recipe.attention)) for m in (p.before, p.after)]
    rest = [m.recipe._replace(config=p.before.config, heads=(), position=(), attention=()) for m in (p.before, p.after)]
    reason = ""
    if patterns[0] != patterns[1]:
        reason = "another attention pattern"
    elif p.longer:
        reason = "a longer table does not say how it was made"
    elif not p.keeps:
        reason = f"position {build.names(p.after.recipe)} gives short inputs other vectors"
    elif rest[0] != rest[1]:
        reason = "another dtype or chunk_size"
    elif p.tuned:
        reason = "tuned since"
    if reason:
        return Check("short inputs", text, reason, None, data=data)
    return Check("short inputs", text, "0.0", all(x == 0.0 for x in worst.values()), data=data)


def _positions(p: Pair) -> list[Check]:
    """Vectors of positions: where they come from, whether they are finite, what the method says, and the table's rows."""
    cfg, limit = p.after.config, p.new.position.max_length
    m = min(provenance.LIMIT if limit is None else limit, provenance.LIMIT)
    part = "" if limit == m else f" (of {'no limit' if limit is None else f'{limit:,}'}; those after were not looked at)"
    if "embed" not in base.hooks(p.new.position):
        return [Check("provenance", "no vectors: positions act within attention", data={"positions": 0})]
    table, r = p.before.params.get("position", {}).get("table"), p.before.config.reserved_rows
    rows = np.zeros((0, cfg.embedding_width)) if table is None else np.asarray(table)[r:]
    parts = provenance.vectors(p.new.position, p.after.params.get("position", {}), cfg.embedding_width, m, m)
    source, bad = provenance.trace(parts, rows)
    text = "all finite" if not len(bad) else f"{len(bad):,} not finite, the first at position {bad[0]:,}"
    finite = Check("vectors", f"{m:,} positions{part}: {text}", "finite", not len(bad), data={"positions": m, "bad": len(bad)})
    if table is None:
        return [Check("provenance", "before has no table: all vectors are computed", data={"positions": m}), finite]
    table = np.asarray(table)
    found = provenance.ranges(source)
    kept = int((source >= 0).sum())
    shown = [str(x) for x in found[: SHOWN if len(found) <= SHOWN else SHOWN - 1]]
    shown += [f"and {len(found) - len(shown):,} more ranges" for _ in range(len(found) > len(shown))]
    data = {"positions": m, "repeat_a_row": kept, "new": m - kept, "ranges": provenance.as_data(found)}
    text = f"{m:,} positions: {kept:,} repeat a row of the table bit for bit, {m - kept:,} are new"
    return [Check("provenance", text, more=tuple(shown), data=data), finite, *_claims(p, table), _trained(p, table)]


def _claims(p: Pair, table: np.ndarray) -> list[Check]:
    """What the method says of its table and of short inputs, held against bits."""
    r, checks = p.before.config.reserved_rows, []
    own, rows = p.after.params.get("position", {}).get("table"), p.new.position.rows
    if own is not None and r:
        kept = np.array_equal(np.asarray(own)[:r], table[:r])
        checks.append(_said(p, "reserved rows", f"{r} {'kept' if kept else 'changed'}", "kept", kept))
    if own is not None and rows is not None and not p.same and not p.longer:
        claimed = np.flatnonzero((rows >= 0) & (rows < len(table)))
        wrong = claimed[(np.asarray(own)[claimed] != table[rows[claimed]]).any(axis=1)]
        beyond = int((rows >= len(table)).sum())
        ok = not len(wrong) and not beyond
        text = f"{len(claimed):,} of its {len(rows):,} rows are the table's"
        text = (
            text if ok else f"{len(wrong) + beyond:,} of {len(claimed):,} are not the table's, the first row {[*wrong, -1][0]}"
        )
        checks.append(_said(p, "method's rows", text, "as it says", ok))
    if p.keeps and not p.same:
        pairs = [(p.old.position, p.before), (p.new.position, p.after)]
        width = p.before.config.embedding_width
        parts = (provenance.vectors(f, m.params["position"], width, p.rows, p.rows) for f, m in pairs)
        a, b = (np.concatenate([*x]) for x in parts)
        wrong = np.flatnonzero((a != b).any(axis=1))
        text = (
            f"positions {provenance.span(0, p.rows)} {'as before' if not len(wrong) else f'differ, the first at {wrong[0]:,}'}"
        )
        checks.append(_said(p, "short vectors", text, "as before, bit for bit", not len(wrong)))
    return checks


def _said(p: Pair, name: str, text: str, promise: str, ok: bool) -> Check:
    return Check(
        name, text, "tuned since" if p.tuned and not ok else promise, None if p.tuned and not ok else ok, data={"holds": ok}
    )


def _trained(p: Pair, table: np.ndarray) -> Check:
    """Which rows of the source were ever trained, and whether others are read."""
    about = table_report(table, p.before.config.reserved_rows, p.before.config.initializer_range)
    said = str(about).splitlines()
    used = min([about.positions, *(k for s in p.after.recipe.position if (k := dict(s).get("trained_rows")) is not None)])
    if p.keeps and p.new.position.max_length is not None:
        used = min(used, p.new.position.max_length)
    reads = "table" in p.new.position.specs
    beyond = max(0, used - about.trained) if about.trained and reads else 0
    text = said[1].partition(":")[2].strip()
    more = [said[3].partition(" (")[0].replace("outliers:       ", f"outliers beyond {OUTLIER:g} times the median norm: ")]
    if beyond:
        more.insert(0, f"rows {provenance.span(about.trained, used)} are read although they look untrained")
    data = {
        "trained": about.trained, "positions": about.positions, "untrained_rows_read": beyond, "median_norm": about.median,
        "outliers": [list(x) for x in about.outliers],
    }  # fmt: skip
    return Check("trained rows", text, more=tuple(more), data=data)


def _longest(p: Pair, length: int | None, seed: int) -> Check:
    limit = p.new.position.max_length
    wanted = length or limit or 4 * p.n
    checked = wanted if length else comparison.affordable([p.after], wanted, rows=1)
    x = Outputs(p.after).alone(checked, seed)
    short = comparison.batch(p.after, [comparison.Row(k := min(checked, p.n))], k, seed)
    scores = {h: f(p.after, short) for h, (f, needs) in comparison.OUTPUTS.items() if needs and comparison.has(p.after, h)}
    bad = {h: int((~np.isfinite(np.asarray(y))).sum()) for h, y in {"hidden states": x, **scores}.items()}
    wrong = [f"{count:,} values of {h} not finite" for h, count in bad.items() if count]
    text = f"checked at {checked:,} of {wanted:,} tokens: {', '.join(wrong) or 'all finite'}"
    more = [f"scores of {', '.join(scores)} at {k:,} tokens"] if scores else []
    if checked < wanted:
        more.append("more did not fit this machine's memory or a minute's work; give length= to try")
    data = {"checked": checked, "wanted": wanted, "finite": not wrong}
    return Check("full length", text, "finite outputs", not wrong, tuple(more), data)


def _padding(p: Pair, runs: list[int], side: str, seed: int) -> Check:
    worst = {total: comparison.padding(p.after, total, side, seed) for total in runs}
    text = ", ".join(f"{comparison.number(x)} ({comparison.unpadded(k):,} tokens in {k:,} places)" for k, x in worst.items())
    pattern = dict(p.after.recipe.attention)["name"]
    reason = "" if "padding_invariant" in p.new.pattern.claims else f"attention {pattern!r} claims none"
    return _within(p, f"padding {side}", text, worst, reason)


def _batch(p: Pair, runs: list[int], seed: int) -> Check:
    worst = {total: comparison.among_others(p.after, total, seed) for total in runs}
    text = ", ".join(f"{comparison.number(x)} (3 rows of {k:,} places)" for k, x in worst.items())
    return _within(p, "batch", text, worst)


def _within(p: Pair, name: str, text: str, worst: dict[int, float], reason: str = "") -> Check:
    bound, data = comparison.TOLERANCE[p.after.recipe.dtype], {"largest": worst}
    if reason:
        return Check(name, text, reason, None, data=data)
    return Check(name, text, f"at most {bound:g}", all(x <= bound for x in worst.values()), data=data)


def _size(p: Pair) -> Check:
    counts = [params.count(m.params) for m in (p.before, p.after)]
    sizes = [sum(x.nbytes for x in jax.tree.leaves(m.params)) for m in (p.before, p.after)]
    text = " → ".join(f"{k:,} parameters, {b / 1e6:,.1f} MB" for k, b in zip(counts, sizes, strict=True))
    cfg = p.after.config
    same = f"{cfg.num_hidden_layers} layers and {cfg.vocab_size:,} word pieces, as before"
    return Check("size", text, more=(same,), data={"parameters": counts, "bytes": sizes})


def _licence(p: Pair) -> Check:
    a, b = (m.companions.raw for m in (p.before, p.after))
    fields = [k for k in a if k.lower().startswith(LICENCE)]
    lost = [k for k in fields if k not in b or b[k] != a[k]]
    if not fields:
        return Check("licence", "config.json has no such field", data={"fields": {}, "lost": []})
    text = ", ".join(f"{k}: {a[k]}" for k in fields)
    text += f"; lost or changed: {', '.join(lost)}" if lost else "; carried over"
    return Check("licence", text, "carried over", not lost, data={"fields": {k: a[k] for k in fields}, "lost": lost})
