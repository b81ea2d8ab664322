"""Extends a checkpoint, verifies what that keeps, and saves it as an ordinary Hugging Face folder, or not at all.

    python -m lpe.convert --from=DIR_OR_HUB_ID --position=hierarchical --alpha=0.4 --max_length=2048 --to=DIR
    python -m lpe.convert --from=DIR_OR_HUB_ID --max_length=4096 --attention=window --global_tokens=cls --to=DIR

Every option of a position method and of an attention pattern is a flag of its name. The report is printed, and kept in the
folder as verify.json. The program ends with 1, and writes nothing, where a promise does not hold.
"""

import json
import logging
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from absl import flags

from lpe import build, cli, registry, saving, stock
from lpe.checkpoint import beside, files, native
from lpe.checkpoint.folder import expanded, find
from lpe.model import from_pretrained
from lpe.verification import findings, rereading, verify

READERS = {"safetensors": "transformers' {}", "msgpack": "Flax{} of transformers 4, where it has one,"}
METHODS = {"position": "positions", "attention": "attention"}  # flag → package of methods
log = logging.getLogger(__name__)


def flag_values() -> flags.FlagValues:
    """The flags of this command, fresh and apart from those of other commands."""
    own = flags.FlagValues()

    def text(name: str, about: str, default: str | None = None) -> None:
        flags.DEFINE_string(name, default, about, flag_values=own)

    text("from", "The checkpoint: a folder, a hub id, or bert-mini.")
    text("to", "The folder to write; it must not exist, or be empty.")
    text(
        "position", 'A position method, as hierarchical, or JSON, as [{"name": "rope"}, {"name": "logn"}]. Default: as extend.'
    )
    text("attention", "An attention pattern, as window, or JSON. Default: what is there.")
    text("format", "stock, for transformers; or lpe, lpe's own folder, for models that no stock class expresses.", "stock")
    text("weights", "safetensors, or msgpack (flax_model.msgpack).", "safetensors")
    text("dtype", "Of the file: float32, float16 or bfloat16.", "float32")
    text("max_shard_size", "More than that comes in several files.", "5GB")
    flags.DEFINE_bool("overwrite", False, "Replace what is in the folder, once the new one is whole.", flag_values=own)
    flags.DEFINE_list("ignore", [], "Beginnings of the names of tensors to leave out of the checkpoint.", flag_values=own)
    about = "Tokens of the longest input that is run. Default: all."
    flags.DEFINE_integer("verify_length", None, about, lower_bound=1, flag_values=own)
    about = "For parameters drawn anew, and for the inputs of the report."
    flags.DEFINE_integer("seed", 0, about, lower_bound=0, flag_values=own)
    flags.DEFINE_bool("help", False, "This text.", flag_values=own)
    for name in options():
        text(name, f"Of {', '.join(owners(name))}.")
    return own


def options() -> dict[str, list[str]]:
    """Options of methods that are flags, with the packages whose methods have them; what is a flag already is left out."""
    found: dict[str, list[str]] = {}
    for package in METHODS.values():
        for name in registry.options(package):
            if name != "seed":
                found.setdefault(name, []).append(package)
    return found


def owners(option: str) -> list[str]:
    """The methods that have an option."""
    return [m for p in options()[option] for m in registry.names(p) if registry.takes(p, {"name": m}, option)]


def value(name: str, text: str) -> Any:
    """A flag's text as a number, True, False, null or list, else as it stands. Raises ValueError for a list that is broken."""
    try:
        return json.loads({"True": "true", "False": "false", "None": "null"}.get(text, text))
    except ValueError as e:
        if text.startswith(("[", "{")):
            raise ValueError(f"--{name}={text} is no JSON: {e}") from e
        return text


def specs(given: Mapping[str, str | None]) -> dict[str, Any]:
    """{"position": …, "attention": …} as extend takes them, from flags; a flag that no method given takes is an error.

    Raises:
      ValueError: an option without its method, or one that the method does not have.
    """
    left = {k: value(k, v) for k, v in given.items() if k not in METHODS and v is not None}
    found: dict[str, Any] = {}
    for flag, package in METHODS.items():
        if (text := given[flag]) is None:
            continue
        spec = value(flag, text)
        several = spec if isinstance(spec, list) else [{"name": spec} if isinstance(spec, str) else spec]
        for one in several:
            if not isinstance(one, dict):
                raise ValueError(
                    f"--{flag}={text}, allowed is a name, {{'name': …, options}} as JSON, or for positions a list of such"
                )
        mine = {k for one in several for k in left if k != "max_length" and registry.takes(package, one, k)}
        several = [{**one, **{k: left[k] for k in mine if registry.takes(package, one, k)}} for one in several]
        left = {k: v for k, v in left.items() if k not in mine}
        found[flag] = several if isinstance(spec, list) else several[0]
    if "max_length" in left:
        found["max_length"] = left.pop("max_length")
    for name in left:
        flags_ = [flag for flag, package in METHODS.items() if package in options()[name]]
        given_ = [f"--{flag}={given[flag]} does not take it; " for flag in flags_ if given[flag] is not None]
        raise ValueError(
            f"--{name}={given[name]}: {''.join(given_)}it is an option of {', '.join(owners(name))}: name one of these by "
            f"{' or '.join(f'--{flag}' for flag in flags_)}"
        )
    return found


def convert(
    source: str,
    target: Path,
    change: Mapping[str, Any],
    *,
    ignore: tuple[str, ...] = (),
    seed: int = 0,
    verify_length: int | None = None,
    **options,
) -> findings.Report:
    """Extends, verifies and saves; the report.

    Args:
      change: arguments of Model.extend. verify_length: of verify's `length`. options: of Model.save_pretrained.

    Raises:
      ValueError: as extend, verify and save_pretrained say; or a promise does not hold, and nothing is written.
    """
    saving.check(target, find(source), **options)
    before = from_pretrained(source, ignore=ignore, seed=seed)
    after = before.extend(**change, seed=seed) if change else before
    if options["format"] == "stock":
        stock.check(build.network(after.recipe))
    log.info("verifying …")
    report = _held(verify(before, after, length=verify_length, seed=seed))
    log.info("writing …")
    longest = next(c.data["checked"] for c in report.checks if "checked" in c.data)

    def inspect(folder: Path) -> None:
        """Reads what was written, and holds it against the model."""
        nonlocal report
        again = rereading.checks(after, folder, options["dtype"], longest, seed)
        report = _held(findings.Report(report.title, (*report.checks, *again)))
        report.save(folder / beside.REPORT)

    saving.save(after, target, inspect=inspect, **options)
    return report


def _held(report: findings.Report) -> findings.Report:
    """The report. Raises ValueError, with all of it, where a promise does not hold."""
    if not report.ok:
        raise ValueError(f"a promise does not hold, so nothing is written\n\n{report}")
    return report


def summary(target: Path, weights: str, names: beside.Files) -> str:
    """What lies in the folder now, who opens it, and what became of the files beside the checkpoint."""
    raw = files.read_config(beside.inside(target))
    size = sum(p.stat().st_size for p in target.rglob("*") if p.is_file())
    who = f"{READERS[weights].format(raw['architectures'][0])} and lpe.from_pretrained"
    lines = [f"{target}: {size / 1e6:.1f} MB, for {'lpe.from_pretrained alone' if native.is_whole(raw) else who}"]
    left = [name for name in names.left if name not in files.READERS]
    for words, listed in (("came along", names.travel), ("not copied", left)):
        lines += [f"{words}: {', '.join(listed)}"] if listed else []
    return "\n".join(lines)


def main(argv: list[str]) -> None:
    """The command: flags, messages and nothing else."""
    example = "python -m lpe.convert --from=bert-mini --max_length=384 --to=long"
    given = cli.given(flag_values(), argv, __doc__ or "", ("from", "to"), example)
    stop = signal.signal(signal.SIGTERM, lambda *_: sys.exit("lpe: asked to stop; nothing was written"))
    with cli.errors():
        source, target = given.pop("from"), expanded(given.pop("to")).resolve()
        change = specs({k: given.pop(k) for k in (*METHODS, *options())})
        names = beside.sort(find(source))
        ignore = tuple(given.pop("ignore"))
        report = convert(source, target, change, ignore=ignore, **given)
        signal.signal(signal.SIGTERM, stop)
        print(f"{report}\n\n{summary(target, given['weights'], names)}")


if __name__ == "__main__":
    main(sys.argv)
