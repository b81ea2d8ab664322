"""python -m lpe.main --config=configs/hier.py: runs a config. Flags, logging and nothing else."""

import contextlib
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import jax
from absl import app, flags
from absl import logging as absl_logging
from ml_collections import config_flags

from lpe import report, settings, train

CONFIG = config_flags.DEFINE_config_file("config", None, "The config: configs/hier.py or configs/hier.py:length=2048.")
WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run; an earlier run of the same config there is resumed.")


def parse(argv: list[str]) -> list[str]:
    """absl's flags, with one line for a key that the config does not have."""
    try:
        return flags.FLAGS(argv)
    except AttributeError:
        keys = [a.removeprefix("--config.").partition("=")[0] for a in argv if a.startswith("--config.")]
        sys.exit(f"lpe: {settings.explain(keys)}")
    except flags.Error as e:
        sys.exit(f"lpe: {str(e).strip().splitlines()[-1].strip()}")


def setup() -> None:
    """Quiet libraries, lpe's own log on the terminal, and compilations kept between runs."""
    absl_logging.set_verbosity(absl_logging.WARNING)  # Orbax reports every step of a save through it
    logging.getLogger("orbax").setLevel(logging.ERROR)
    logging.getLogger("lpe").setLevel(logging.INFO)
    logging.getLogger("lpe").addHandler(logging.StreamHandler())
    logging.getLogger("lpe").propagate = False
    cache = os.environ.get("JAX_COMPILATION_CACHE_DIR", str(Path.home() / ".cache/lpe/xla"))
    jax.config.update("jax_compilation_cache_dir", cache)


@contextlib.contextmanager
def errors() -> Iterator[None]:
    """What a user can mend ends the program with one message, without a traceback."""
    try:
        yield
    except OSError as e:
        sys.exit(f"lpe: {str(e).strip().splitlines()[-1].strip()}")
    except (ValueError, FloatingPointError) as e:
        sys.exit(f"lpe: {e}")


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        sys.exit(f"lpe: unknown arguments: {' '.join(argv[1:])}")
    setup()
    if CONFIG.value is None:
        sys.exit("lpe: give a config, as in python -m lpe.main --config=configs/hier.py")
    with errors():
        folder = train.run(CONFIG.value.to_dict(), Path(WORKDIR.value) if WORKDIR.value else None)
    print(report.text(folder))


if __name__ == "__main__":
    app.run(main, flags_parser=parse)
