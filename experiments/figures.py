"""Copies what the README shows of a run: `python -m experiments.figures RUN_FOLDER` fills experiments/results/NAME."""

import json
import shutil
import sys
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


def main(run: Path) -> None:
    target = RESULTS / json.loads((run / "config.json").read_text(encoding="utf-8"))["name"]
    target.mkdir(parents=True, exist_ok=True)
    for name in ("config.json", "versions.json", "report.md", "curve.png", "places.png"):
        shutil.copy(run / name, target / name)
    for log in run.glob("*/metrics.jsonl"):
        (target / log.parent.name).mkdir(exist_ok=True)
        shutil.copy(log, target / log.parent.name / log.name)
    print(f"{target}: {', '.join(sorted(p.name for p in target.iterdir()))}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
