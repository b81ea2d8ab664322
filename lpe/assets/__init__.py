"""What the package brings along: a small English BERT and a text in the public domain. See README.md beside this file."""

from pathlib import Path

_HERE = Path(__file__).parent
CHECKPOINTS = {"bert-mini": _HERE / "bert-mini"}
KNOWN_RESULTS = _HERE / "known_results.json"  # by experiments/known_results.py, from experiments/results
TEXTS = {"sotu": _HERE / "sotu.jsonl.xz"}
