"""What a folder of measurements was measured on: fingerprints of checkpoint and text, since both may change under one name."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from lpe import workdir
from lpe.data.document import Document
from lpe.model import Model

KEY = "content"  # of config.json
READ = ("checkpoint", "data")  # the flags that name what is read


def of(model: Model, docs: Mapping[str, list[Document]]) -> dict[str, str]:
    """A fingerprint for each of READ: of weights, config.json and tokenizer, and of the texts by split."""
    return {"checkpoint": _checkpoint(model), "data": _data(docs)}


def _checkpoint(model: Model) -> str:
    found = hashlib.blake2b(json.dumps(model.companions.raw, sort_keys=True).encode(), digest_size=16)
    for path, leaf in jax.tree_util.tree_leaves_with_path(model.params):
        values = np.ascontiguousarray(leaf)
        found.update(f"{jax.tree_util.keystr(path)} {values.dtype} {values.shape}".encode())
        found.update(values.view(np.uint8).data if values.size else b"")
    if model.tokenizer is not None:
        backend = model.tokenizer.backend_tokenizer.to_str() if model.tokenizer.is_fast else ""
        found.update(f"{backend} {sorted(model.tokenizer.get_vocab().items())}".encode())
    return found.hexdigest()


def _data(docs: Mapping[str, list[Document]]) -> str:
    found = hashlib.blake2b(digest_size=16)
    for split, each in docs.items():
        for doc in each:
            raw = doc.text.encode()
            found.update(f"{split} {len(raw)} ".encode() + raw)
    return found.hexdigest()


def check(config: Mapping[str, Any], folder: Path) -> None:
    """Lets a run go on in `folder` where nothing is there yet, or what is there was measured on the same content.

    Raises:
      ValueError: the folder holds a run of another config, or figures of another checkpoint or text under the same name.
    """
    if not (folder / "config.json").is_file():
        return
    workdir.same(config, folder, {KEY: True})
    then = json.loads((folder / "config.json").read_text(encoding="utf-8")).get(KEY)
    out = f"give another --workdir, or delete {folder}"
    if then is None:
        raise ValueError(f"{folder} does not say what content of checkpoint and data its figures are of; {out}")
    if changed := [f"--{name}={config[name]}" for name in READ if then.get(name) != config[KEY][name]]:
        raise ValueError(
            f"the content of {' and '.join(changed)} has changed since {folder} was measured, so the figures there are of the "
            f"former one; {out}"
        )
