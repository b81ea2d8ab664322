"""metrics.jsonl: one JSON object a line, appended as the run goes, cut back to the saved step when a run resumes."""

import json
from pathlib import Path

from lpe import sharding, workdir


class Log:
    """The rows of one run, on disk and in memory. A row has "kind" ("train" or "eval") and "step".

    Of several processes the first one writes; each has the rows in memory.
    """

    def __init__(self, path: Path, last_step: int):
        self.path = path
        self.rows = [r for r in read(path) if r["step"] <= last_step]
        if sharding.leads():
            workdir.write(path, "".join(json.dumps(r) + "\n" for r in self.rows))

    def add(self, row: dict) -> None:
        self.rows.append(row)
        if sharding.leads():
            with self.path.open("a", encoding="utf-8") as f:
                f.write(json.dumps(row) + "\n")

    def evaluated(self, step: int) -> bool:
        return any(r["kind"] == "eval" and r["step"] == step for r in self.rows)


def read(path: Path) -> list[dict]:
    """The rows of a file; a last line that a killed run left unfinished is not one."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            rows.append(json.loads(line))
        except ValueError:
            break
    return rows
