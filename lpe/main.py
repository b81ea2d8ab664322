"""python -m lpe.main --config=configs/hier.py: runs a config. Flags, logging and nothing else."""

import logging
import sys
from pathlib import Path

import jax
from absl import app, flags
from ml_collections import config_flags

from lpe import cli, report, settings, sharding, train
from lpe.cli import errors, setup

CONFIG = config_flags.DEFINE_config_file("config", None, "The config: configs/hier.py or configs/hier.py:length=2048.")
WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run; an earlier run of the same config there is resumed.")
MULTIHOST = flags.DEFINE_bool("multihost", False, "One of several hosts: start the same command on each. TPU VMs need no more.")
COORDINATOR = flags.DEFINE_string("coordinator_address", None, "With --multihost elsewhere: host:port of process 0.")
PROCESSES = flags.DEFINE_integer("num_processes", None, "With --multihost elsewhere: how many processes there are.")
PROCESS = flags.DEFINE_integer("process_id", None, "With --multihost elsewhere: the number of this one, from 0.")


def parse(argv: list[str]) -> list[str]:
    """absl's flags, with one line for a key that the config does not have."""
    try:
        return cli.parse(flags.FLAGS, argv)
    except AttributeError:
        keys = [a.removeprefix("--config.").partition("=")[0] for a in argv if a.startswith("--config.")]
        sys.exit(f"lpe: {settings.explain(keys)}")


def join() -> None:
    """Makes this process one of several, before JAX looks for its devices."""
    others = (COORDINATOR.value, PROCESSES.value, PROCESS.value)
    if not MULTIHOST.value:
        if others != (None, None, None):
            sys.exit("lpe: --coordinator_address, --num_processes and --process_id belong to --multihost; add that flag")
        return
    try:
        jax.distributed.initialize(*others)
    except (ValueError, RuntimeError) as e:
        sys.exit(
            f"lpe: --multihost: {str(e).strip().splitlines()[0]}; a TPU VM needs no other flag, elsewhere give "
            "--coordinator_address=HOST:PORT --num_processes=N --process_id=I"
        )
    if not sharding.leads():
        logging.getLogger("lpe").setLevel(logging.WARNING)  # the first process speaks for all


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        sys.exit(f"lpe: unknown arguments: {' '.join(argv[1:])}")
    setup()
    if CONFIG.value is None:
        sys.exit("lpe: give a config, as in python -m lpe.main --config=configs/hier.py")
    join()
    with errors():
        folder = train.run(CONFIG.value.to_dict(), Path(WORKDIR.value) if WORKDIR.value else None)
    if sharding.leads():
        print(report.text(folder))


if __name__ == "__main__":
    app.run(main, flags_parser=parse)
