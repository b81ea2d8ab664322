"""Copies what the README shows of a run: `python -m experiments.figures RUN_FOLDER [NAME]` fills experiments/results/NAME."""

import json
import shutil
import sys
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


def main(run: Path, name: str = "") -> None:
    target = RESULTS / (name or json.loads((run / "config.json").read_text(encoding="utf-8"))["name"])
    target.mkdir(parents=True, exist_ok=True)
    for file in ("config.json", "versions.json", "report.md"):
        text = (run / file).read_text(encoding="utf-8").replace(str(Path.home()), "~")
        (target / file).write_text(text, encoding="utf-8")
    for picture in run.glob("*.png"):
        shutil.copy(picture, target / picture.name)
    for log in run.glob("*/metrics.jsonl"):
        (target / log.parent.name).mkdir(exist_ok=True)
        shutil.copy(log, target / log.parent.name / log.name)
    print(f"{target}: {', '.join(sorted(p.name for p in target.iterdir()))}")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    main(Path(sys.argv[1]), *sys.argv[2:])
