"""Which method for this length, memory and checkpoint? A decision guide from measurements.

    python -m lpe.plan --from=DIR_OR_HUB_ID --length=32768 --memory=16GB

Every position method and attention pattern that the checkpoint can have without training is compiled at this length, batch 1.
Of the checkpoint config.json alone is read. Memory is what the compiler plans for one pass (arguments, outputs, temporaries);
FLOPs are those of the matrix products; time is FLOPs over the rate that this model reaches at its trained length on this
machine, so an estimate. Accuracy is what the project measured on its own small model without training, at the nearest factor.

Recommended is, of those that fit, reach the length and need no training, the best of these accuracies, ties by time; blocks
that never meet, which is reading in pieces, only where nothing else fits. The program ends with 1 where nothing fits.
"""

import json
import logging
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
from absl import flags

from lpe import build, cli, costs, registry
from lpe.planning import advice, articles, feasible, known
from lpe.planning.feasible import Feasible
from lpe.positions import checks

UNITS = {f"{prefix}{end}": base**power for end, base in (("B", 1000), ("iB", 1024)) for power, prefix in enumerate("KMGT", 1)}
DEVICES = ("cpu", "gpu", "tpu")
log = logging.getLogger("lpe.plan")  # __name__ is __main__ in a command


def flag_values() -> flags.FlagValues:
    """The flags of this command, fresh and apart from those of other commands."""
    own = flags.FlagValues()
    flags.DEFINE_string("from", None, "The checkpoint: a folder, a hub id, or bert-mini.", flag_values=own)
    flags.DEFINE_integer("length", None, "Tokens that it shall read.", flag_values=own)
    flags.DEFINE_string("memory", None, "What one pass may take, as 16GB, 512MB or 1.5GiB.", flag_values=own)
    flags.DEFINE_string("device", None, "cpu, gpu or tpu, of this machine. Default: JAX's own.", flag_values=own)
    flags.DEFINE_list("positions", None, "Position methods. Default: all that need no training.", flag_values=own)
    flags.DEFINE_list("attentions", None, "Attention patterns. Default: full, window, chunked, bigbird.", flag_values=own)
    flags.DEFINE_bool("train", False, "Plan a pass with gradient, recomputed (remat full), not inference.", flag_values=own)
    flags.DEFINE_string("dtype", "float32", "Of the computation: float32 or bfloat16.", flag_values=own)
    flags.DEFINE_integer("chunk_size", 0, "Tokens at a time of the feed-forward part; 0 for all.", flag_values=own)
    flags.DEFINE_bool("claims", True, "Also list what an article says and measurements contradict.", flag_values=own)
    flags.DEFINE_string("json", None, "A file for the same as JSON.", flag_values=own)
    flags.DEFINE_bool("help", False, "This text.", flag_values=own)
    return own


def size(text: str) -> int:
    """Bytes of 16GB, 512MB, 1.5GiB. Raises ValueError for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([A-Za-z]+)", text.strip())
    units = {u.lower(): x for u, x in UNITS.items()}
    if not match or match[2].lower() not in units or not (found := int(float(match[1]) * units[match[2].lower()])):
        raise ValueError(f"--memory={text!r}, allowed is a number above 0 with one of {', '.join(UNITS)}, as 16GB or 1.5GiB")
    return found


def settle(device: str | None) -> str:
    """The platform to plan on, made JAX's default. Raises ValueError for one that is not here."""
    if device is None:
        return jax.default_backend()
    if device not in DEVICES:
        raise ValueError(f"--device={device!r} is not known{registry.nearest(device, list(DEVICES))}")
    try:
        jax.config.update("jax_default_device", jax.devices(device)[0])
    except RuntimeError as e:
        raise ValueError(
            f"--device={device}: JAX finds none here, it has {jax.default_backend()}; a plan is compiled and timed on the "
            "machine that it is for, so run it there"
        ) from e
    return device


def plan(
    source: str,
    length: int,
    memory: int,
    *,
    positions: Sequence[str] | None = None,
    attentions: Sequence[str] | None = None,
    device: str | None = None,
    train: bool = False,
    dtype: str = "float32",
    chunk_size: int = 0,
    claims: bool = True,
) -> dict[str, Any]:
    """The plan as plain data; see the module.

    Args:
      source: the checkpoint.
      length: tokens.
      memory: bytes.
      claims: whether to measure what an article claims.

    Raises:
      FileNotFoundError: no such checkpoint. ValueError: what is asked for is wrong, or reached by no method.
    """
    if not 1 <= length <= checks.LARGEST:
        raise ValueError(f"--length={length}, allowed are whole numbers from 1 to {checks.LARGEST}")
    for package, names in (("positions", positions or ()), ("attention", attentions or ())):
        for name in names:
            registry.load(package, name)
    if dtype not in build.DTYPES:
        raise ValueError(f"--dtype={dtype!r} is not known{registry.nearest(dtype, sorted(build.DTYPES))}")
    if chunk_size < 0:
        raise ValueError(f"--chunk_size={chunk_size}, allowed are whole numbers from 0 (no chunks)")
    platform = settle(device)
    own = feasible.own_recipe(source, dtype=dtype, chunk_size=chunk_size, remat="full" if train else "none")
    ways = feasible.combinations(own, length, positions, attentions)
    speed = costs.speed(own, ways.trained)
    rows = advice.ranked(_rows(ways, length, memory, "train" if train else "forward", speed.rate * speed.share))
    found = {
        "from": source,
        "length": length,
        "memory": memory,
        "device": platform,
        "device_kind": jax.devices(platform)[0].device_kind,
        "pass": "train" if train else "forward",
        "dtype": dtype,
        "chunk_size": chunk_size,
        "trained": ways.trained,
        "factor": length / ways.trained,
        "speed": speed._asdict(),
        "combinations": rows,
        "refused": [{"which": which, "why": why} for which, why in ways.refused],
        "left_out": ways.left,
        "untouched": known.nearest(known.results()["untouched"], length / ways.trained),
    }
    found |= advice.recommendation(found, own)
    found["claims"] = [c._asdict() for c in articles.contradicted(rows, length, ways.trained, own)] if claims else []
    return found


def _rows(ways: Feasible, length: int, memory: int, what: str, speed: float) -> list[dict[str, Any]]:
    """What each combination costs and is known to be worth."""
    rows, entries = [], known.results()["zero_shot"]
    for number, way in enumerate(ways.found, 1):
        cost = costs.of(way.recipe, length, what)
        names = f"{way.position['name']}, {way.attention['name']}"
        message = "[%d/%d] %s: %s, compiled in %.1f s"
        log.info(message, number, len(ways.found), names, advice.size(cost.memory), cost.compiled)
        worth = known.quality(entries, way.position, way.attention, ways.trained, length / ways.trained)
        rows.append(
            {
                "position": way.position,
                "attention": way.attention,
                "own_attention": way.recipe.attention == ways.own.attention,
                "parameters": cost.parameters,
                "memory": cost.memory,
                "fits": cost.memory <= memory,
                "flops": cost.flops,
                "seconds": cost.flops / speed,
                "zero_shot": worth,
                "needs_training": way.trains,
                "in_pieces": getattr(registry.load("attention", way.attention["name"]), "IN_PIECES", False),
                "same_on_short_inputs": way.keeps,
            }
        )
    return rows


def main(argv: list[str]) -> None:
    """The command. Ends with 1 where nothing fits or something is wrong."""
    example = "python -m lpe.plan --from=bert-mini --length=1024 --memory=16GB"
    given = cli.given(flag_values(), argv, __doc__ or "", ("from", "length", "memory"), example)
    path = given.pop("json")
    with cli.errors():
        if path and not Path(path).parent.is_dir():
            raise ValueError(f"--json={path}: there is no folder {Path(path).parent}; make it, or name another file")
        found = plan(given.pop("from"), given.pop("length"), size(given.pop("memory")), **given)
        print(advice.text(found))
        if path:
            Path(path).write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if found["recommended"] is None:
        sys.exit(1)


if __name__ == "__main__":
    main(sys.argv)
