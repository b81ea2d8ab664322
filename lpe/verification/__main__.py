"""Verifies a folder against the checkpoint that it was extended from, both as they lie on the disk.

    python -m lpe.verification --before=DIR_OR_HUB_ID --after=DIR [--tuned] [--json=PATH]

Ends with 1 where a promise does not hold. `lpe.convert` does the same before it writes.
"""

import sys

from absl import flags

from lpe import cli
from lpe.model import from_pretrained
from lpe.verification.checks import verify


def flag_values() -> flags.FlagValues:
    """The flags of this command, fresh and apart from those of other commands."""
    own = flags.FlagValues()
    flags.DEFINE_string("before", None, "The checkpoint as it was: a folder, a hub id, or bert-mini.", flag_values=own)
    flags.DEFINE_string("after", None, "What was made of it.", flag_values=own)
    flags.DEFINE_integer("length", None, "Tokens of the longest input that is run.", lower_bound=1, flag_values=own)
    flags.DEFINE_integer("seed", 0, "Of the inputs.", lower_bound=0, flag_values=own)
    flags.DEFINE_bool("tuned", False, "It was trained since, or rounded: differing weights break no promise.", flag_values=own)
    flags.DEFINE_string("json", None, "A file for the report as JSON.", flag_values=own)
    flags.DEFINE_bool("help", False, "This text.", flag_values=own)
    return own


def main(argv: list[str]) -> None:
    """The command: flags, messages and nothing else."""
    example = "python -m lpe.verification --before=bert-mini --after=DIR"
    given = cli.given(flag_values(), argv, __doc__ or "", ("before", "after"), example)
    with cli.errors():
        models = [from_pretrained(given[name]) for name in ("before", "after")]
        report = verify(*models, **{k: given[k] for k in ("length", "seed", "tuned")})
        print(report)
        if given["json"]:
            report.save(given["json"])
    if not report.ok:
        sys.exit(1)


if __name__ == "__main__":
    main(sys.argv)
