"""The README's page of families, from the tests' own figures: which heads, which positions, the largest difference found.

    python -m experiments.families             # runs the tests of parity (5 minutes), then writes the page
    python -m experiments.families --page      # from the figures of the last run

A test of parity says what it found by record_property("parity", {"family", "head", "error"}); pytest writes these to a file.
"""

import json
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

from lpe import build
from lpe.checkpoint import config, load

ROOT = Path(__file__).parent.parent
FIGURES = Path(__file__).parent / "results" / "families" / "figures.json"
BEGIN, END = "<!-- made by python -m experiments.families -->\n", "<!-- end -->\n"
# Rows besides those of config.FAMILIES: title, model_type, what it is held to. transformers on torch where nothing is said.
TITLES = {
    "bert": "BERT", "roberta": "RoBERTa", "xlm-roberta": "XLM-R", "longformer": "Longformer", "big_bird": "BigBird",
    "distilbert": "DistilBERT", "electra": "ELECTRA", "albert": "ALBERT", "nezha": "NEZHA", "roformer": "RoFormer",
    "roformer_v2": "RoFormer v2", "nomic_bert": "NomicBERT", "nomic_original": "NomicBERT, original format",
    "modernbert": "ModernBERT", "t5": "T5 encoder", "mt5": "mT5 encoder",
}  # fmt: skip
TYPES = {"roformer_v2": "roformer", "nomic_original": "nomic_bert"}
SMALL = {"num_hidden_layers": 3, "max_position_embeddings": 512}  # a config.json that says no more
HELD_TO = {
    "nezha": "transformers 4.57", "roformer_v2": "the publisher's package, 0.4.3", "big_bird": "transformers, with hf_compat",
}  # fmt: skip


def measure() -> list[dict[str, Any]]:
    """The largest difference of each family and head, over all tests of parity that say one; they must all pass."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-m", "", "tests/parity", f"--junitxml={report}"]
        subprocess.run(command, check=True, cwd=ROOT)
        found = [json.loads(p.attrib["value"]) for p in ET.parse(report).iter("property") if p.attrib["name"] == "parity"]
    worst: dict[tuple[str, str], float] = {}
    for f in found:
        key = f["family"], f["head"]
        worst[key] = max(worst.get(key, 0.0), f["error"])
    return [{"family": f, "head": h, "error": e} for (f, h), e in sorted(worst.items())]


def page(figures: list[dict[str, Any]]) -> str:
    """The table, one row a family."""
    lines = [
        "| family | `model_type` | heads | positions | attention | largest difference | longer by | then | held to |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for key, title in TITLES.items():
        own = [f for f in figures if f["family"] == key]
        name = TYPES.get(key, key)
        heads = ", ".join(h for h in config.FAMILIES[name].heads if any(f["head"] == h for f in own)) or "–"
        position, attention = _trained_with(name)
        lines.append(
            f"| {title} | `{name}` | {heads} | {position} | {attention} | {_worst(own, extended=False)} | {_longer_by(name)} "
            f"| {_worst(own, extended=True)} | {HELD_TO.get(key, 'transformers')} |"
        )
    return "\n".join(lines) + "\n"


def _worst(own: list[dict[str, Any]], *, extended: bool) -> str:
    errors = [f["error"] for f in own if (f["head"] == "extended") == extended]
    return f"{max(errors):.1e}" if errors else "–"


def _trained_with(name: str) -> tuple[str, str]:
    """The methods that a family's weights were trained with."""
    position = build.positions(load.position(name, SMALL, name))[0]
    return f"`{dict(position)['name']}`", f"`{load.attention(name, SMALL, (), name)['name']}`"


def _longer_by(name: str) -> str:
    """How models of the family reach longer texts."""
    if config.FAMILIES[name].position_fields is None:
        return "a longer table"
    method = load.position(name, SMALL, name)["name"]
    return "a rotary scaling" if method in ("rope", "by_layer") else "no limit"


def main(arguments: list[str]) -> None:
    if arguments not in ([], ["--page"]):
        sys.exit(__doc__)
    if not arguments:
        FIGURES.parent.mkdir(parents=True, exist_ok=True)
        FIGURES.write_text(json.dumps(measure(), indent=1) + "\n", encoding="utf-8")
    readme = ROOT / "README.md"
    before, _, rest = readme.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    table = page(json.loads(FIGURES.read_text(encoding="utf-8")))
    readme.write_text(before + BEGIN + "\n" + table + "\n" + END + after, encoding="utf-8")
    print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
