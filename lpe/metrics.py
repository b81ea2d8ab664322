"""metrics.jsonl: one JSON object a line, appended as the run goes, cut back to the saved step when a run resumes."""

import json
from pathlib import Path
from typing import Any

from lpe import sharding, workdir


class Log:
    """The rows of one run, on disk and in memory. A row has "kind" ("train" or "eval") and "step".

    Of several processes the first one writes; each has the rows in memory. A context: it ends when all is written.

    Args:
      path: metrics.jsonl.
      last_step: rows of later steps are cut off; a resumed run makes them again.
      tensorboard: also writes event files, into the folder "tensorboard" beside it.
    """

    def __init__(self, path: Path, last_step: int, *, tensorboard: bool = False):
        self.path = path
        self.rows = [r for r in read(path) if r["step"] <= last_step]
        self._board: Any = None
        if sharding.leads():
            workdir.write(path, "".join(json.dumps(r) + "\n" for r in self.rows))
            if tensorboard:
                self._board = _board()(str(path.parent / "tensorboard"), purge_step=last_step + 1 if last_step >= 0 else None)

    def __enter__(self) -> "Log":
        return self

    def __exit__(self, *_) -> None:
        if self._board is not None:
            self._board.close()

    def add(self, row: dict) -> None:
        """Appends a row; its numbers become TensorBoard's scalars, as train/loss or eval/VIEW/accuracy."""
        self.rows.append(row)
        if sharding.leads():
            with self.path.open("a", encoding="utf-8") as f:
                f.write(json.dumps(row) + "\n")
        if self._board is not None:
            group = "/".join([row["kind"], *([row["view"]] if "view" in row else [])])
            for name, value in row.items():
                if isinstance(value, float):
                    self._board.add_scalar(f"{group}/{name}", value, row["step"])

    def evaluated(self, step: int) -> bool:
        return any(r["kind"] == "eval" and r["step"] == step for r in self.rows)


def _board():
    try:
        from tensorboardX import SummaryWriter
    except ImportError as e:
        raise ValueError("tensorboard=True needs the package tensorboardX: pip install tensorboardX") from e
    return SummaryWriter


def read(path: Path) -> list[dict]:
    """The rows of a file; a last line that a killed run left unfinished is not one."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            rows.append(json.loads(line))
        except ValueError:
            break
    return rows
