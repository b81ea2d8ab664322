"""python -m lpe.main --config=configs/hier.py: runs a config. Flags, logging and nothing else."""

import logging as pylogging
import os
import sys
from pathlib import Path

import jax
from absl import app, flags, logging
from ml_collections import config_flags

from lpe import report, train

CONFIG = config_flags.DEFINE_config_file("config", None, "The config, as configs/hier.py or configs/hier.py:length=2048.", lock_config=True)  # fmt: skip
WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run; an earlier run of the same config there is resumed.")


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"unknown arguments: {' '.join(argv[1:])}")
    for chatty in ("orbax", "jax", "matplotlib"):
        pylogging.getLogger(chatty).setLevel(pylogging.WARNING)
    logging.set_verbosity(logging.WARNING)
    jax.config.update("jax_compilation_cache_dir", os.environ.get("JAX_COMPILATION_CACHE_DIR", str(Path.home() / ".cache/lpe/xla")))  # fmt: skip
    try:
        folder = train.run(CONFIG.value.to_dict(), Path(WORKDIR.value) if WORKDIR.value else None)
    except (ValueError, FileNotFoundError, FloatingPointError) as e:
        logging.debug("stopped", exc_info=True)
        sys.exit(f"lpe: {e}")
    print(report.text(folder))


if __name__ == "__main__":
    flags.mark_flag_as_required("config")
    app.run(main)
