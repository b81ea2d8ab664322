"""What lpe.convert and lpe.plan print on MiniLM, as the README shows it: results/commands/.

    python -m experiments.commands

About two minutes on two cores, more on a busy machine, whose rate is in the plan.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests import assets

OUT = Path(__file__).parent / "results/commands"
EXTEND = ["lpe.convert", "--from=MINILM", "--position=hierarchical", "--alpha=0.4", "--max_length=2048", "--to=DIR"]
WINDOW = ["--attention=window", "--attention_window=512", "--global_tokens=cls"]
COMMANDS = {
    "convert": EXTEND,
    "convert_window": [*EXTEND[:-1], *WINDOW, EXTEND[-1]],
    "plan": ["lpe.plan", "--from=MINILM", "--length=32768", "--memory=16GB"],
}


def printed(arguments: list[str]) -> str:
    """The command and what it prints, in an empty folder where MINILM is the checkpoint."""
    where = str(Path(__file__).parent.parent)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "MINILM").symlink_to(assets.path("minilm"))
        command = [sys.executable, "-m", *arguments]
        done = subprocess.run(command, cwd=folder, env={**os.environ, "PYTHONPATH": where}, check=True, stdout=subprocess.PIPE)
    text = done.stdout.decode().replace(f"{Path(folder).resolve()}/", "")
    return f"$ python -m {' '.join(arguments)}\n{text}"


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    for name, arguments in COMMANDS.items():
        (OUT / f"{name}.txt").write_text(printed(arguments), encoding="utf-8")
        print(OUT / f"{name}.txt")


if __name__ == "__main__":
    main()
