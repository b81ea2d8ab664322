"""What the package brings along: a small English BERT and a text in the public domain. See README.md beside this file."""

from pathlib import Path

_HERE = Path(__file__).parent
CHECKPOINTS = {"bert-mini": _HERE / "bert-mini"}
TEXTS = {"sotu": _HERE / "sotu.jsonl.xz"}
