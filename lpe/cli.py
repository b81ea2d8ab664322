"""What every command of lpe shares: its log, its cache of compilations, and one line in place of a traceback."""

import contextlib
import difflib
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
from absl import flags
from absl import logging as absl_logging


def setup() -> None:
    """Quiet libraries, lpe's own log on the terminal, and compilations kept between runs."""
    absl_logging.set_verbosity(absl_logging.FATAL)  # Orbax reports every step of a save through it, and errors that it raises
    logging.getLogger("orbax").setLevel(logging.ERROR)
    sys.unraisablehook = silence
    logging.getLogger("lpe").setLevel(logging.INFO)
    logging.getLogger("lpe").addHandler(logging.StreamHandler())
    logging.getLogger("lpe").propagate = False
    cache = os.environ.get("JAX_COMPILATION_CACHE_DIR", str(Path.home() / ".cache/lpe/xla"))
    jax.config.update("jax_compilation_cache_dir", cache)


def silence(what: "sys.UnraisableHookArgs") -> None:
    """Leaves out what Orbax's threads print after an array that they could not read or write; the error itself is raised."""
    if str(what.exc_value) != "Event loop is closed":
        sys.__unraisablehook__(what)


@contextlib.contextmanager
def errors() -> Iterator[None]:
    """What a user can mend ends the program with one message, without a traceback."""
    try:
        yield
    except OSError as e:
        sys.exit(f"lpe: {str(e).strip().splitlines()[-1].strip()}")
    except (ValueError, FloatingPointError) as e:
        sys.exit(f"lpe: {e}")


def parse(values: Callable[[list[str]], list[str]], argv: list[str]) -> list[str]:
    """What is left of a command line after its flags. A wrong flag ends the program with one line.

    Args:
      values: absl's flags.FLAGS, or a command's own flags.FlagValues, so that two commands may have flags of one name.
    """
    try:
        return values(argv)
    except flags.UnrecognizedFlagError as e:
        near = difflib.get_close_matches(e.flagname, list(values) if isinstance(values, flags.FlagValues) else [], 1)
        sys.exit(f"lpe: unknown flag --{e.flagname}; {f'did you mean --{near[0]}? ' if near else ''}--help lists all flags")
    except flags.Error as e:
        sys.exit(f"lpe: {str(e).strip().splitlines()[-1].strip()}")


def given(values: flags.FlagValues, argv: list[str], about: str, needed: Sequence[str], example: str) -> dict[str, Any]:
    """The flags of a command line by name. What is wrong ends the program with one line, and --help with the page.

    Args:
      values: the command's own, with a flag `help`.
      about: the command's docstring. needed: flags without a default. example: a command that has them.
    """
    if rest := parse(values, argv)[1:]:
        sys.exit(f"lpe: unknown arguments: {' '.join(rest)}")
    found = values.flag_values_dict()
    if found.pop("help"):
        print(f"{about}\n{values.get_help()}")
        sys.exit(0)
    for name, x in found.items():
        if values[name].present and (x in ("", []) or str(x).startswith("--")):
            sys.exit(f"lpe: --{name} needs a value, as --{name}=VALUE")
    if missing := [f"--{name}" for name in needed if found[name] is None]:
        sys.exit(f"lpe: {', '.join(missing)} missing, as in {example}")
    setup()
    return found
