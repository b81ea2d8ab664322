"""What experiments share: their flags, and what those with a results.json keep beside its rows."""

import json
import platform
import shlex
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jax
from absl import flags

from lpe import cli, workdir

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("jax", "jaxlib", "numpy", "optax", "tokenizers", "transformers")


class Asked(NamedTuple):
    """small: of seconds, on what is embedded. out: the folder of results.json and table.md."""

    small: bool
    out: Path
    command: str


def given(values: flags.FlagValues, argv: list[str], about: str | None) -> dict[str, Any]:
    """The flags of an experiment by name; logging is set up. --help prints `about`. Ends with a line where they are wrong."""
    if "help" not in values:
        flags.DEFINE_bool("help", False, "This text.", flag_values=values)
    return cli.given(values, argv, about or "", (), "")


def asked(argv: list[str], module: str, about: str | None) -> Asked:
    """The same for a command with --small and --out alone."""
    values = flags.FlagValues()
    flags.DEFINE_bool("small", False, "A short run on small inputs; needs --out.", flag_values=values)
    flags.DEFINE_string("out", None, "Folder of results.json and table.md. Default: experiments/results.", flag_values=values)
    found = given(values, argv, about)
    small, out = bool(found["small"]), found["out"]
    if small and out is None:
        raise SystemExit("lpe: --small needs --out, a folder of its own")
    command = shlex.join(["python", "-m", f"experiments.{module}", *argv[1:]])
    return Asked(small, Path(out or RESULTS / module), command)


def opened(out: Path, settings: dict[str, Any], command: str, **rest: Any) -> dict[str, Any]:
    """What results.json in `out` holds, or a new one: command, settings, versions, rows and `rest`.

    Raises:
      ValueError: it is there, and of other settings.
    """
    file = out / "results.json"
    if not file.exists():
        out.mkdir(parents=True, exist_ok=True)
        return {"command": command, "settings": settings, "versions": versions(), "rows": [], **rest}
    found = json.loads(file.read_text(encoding="utf-8"))
    if found["settings"] != settings:
        raise ValueError(f"{file} is of other settings; give another --out, or remove it")
    return found


def keep(out: Path, found: dict[str, Any], table: str) -> None:
    """Writes results.json and table.md, each whole or not at all."""
    workdir.write(out / "results.json", json.dumps(found, indent=1) + "\n")
    workdir.write(out / "table.md", table)


def versions() -> dict[str, str]:
    return {
        **{p: version(p) for p in PACKAGES}, "python": platform.python_version(), "machine": platform.machine(),
        "devices": f"{jax.device_count()} {jax.devices()[0].device_kind}", "commit": workdir.commit(),
    }  # fmt: skip
