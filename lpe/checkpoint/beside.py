"""What lies beside config.json and the weights, and travels with a model: licence, model card, sentence-transformers' files.

A sentence-transformers folder has a modules.json; its first module is the encoder, in the folder itself or in one of its own.
"""

import json
import shutil
from pathlib import Path
from typing import NamedTuple

from lpe.checkpoint import files
from lpe.checkpoint.writing import write_json

MODULES = "modules.json"
LENGTHS = "sentence_*_config.json"  # of the encoder: max_seq_length
PAPERS = ("readme*", "licen[sc]e*", "notice*", "copying*", "authors*", "citation*")
TOKENIZERS = ("tokenizer.json", "vocab.txt", "vocab.json", "tokenizer.model", "sentencepiece.bpe.model", "spiece.model")
BESIDE = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "merges.txt")
OLD = (".safetensors", ".bin", ".msgpack", ".h5", ".ot", ".onnx", ".pt", ".pth", ".ckpt", ".tflite", ".gguf", ".index.json")
EXPORTS = ("onnx", "openvino", "coreml")  # the same weights for other programs, at the old length


class Layout(NamedTuple):
    """root: the folder to give to its users; inner: where the encoder is in it, "" for itself; modules: of modules.json."""

    root: Path
    inner: str
    modules: bool


def layout(folder: Path) -> Layout:
    """Of the folder that has the encoder's config.json, or of the one above it that has the modules.json naming it."""
    for root in (folder, folder.parent):
        if (
            (root / MODULES).is_file()
            and (inner := _encoder(root)) is not None
            and (root / inner).resolve() == folder.resolve()
        ):
            return Layout(root, inner, True)
    return Layout(folder, "", False)


def _encoder(root: Path) -> str | None:
    """The place of the first module of a modules.json."""
    try:
        modules = json.loads((root / MODULES).read_text(encoding="utf-8"))
        return str(modules[0]["path"])
    except (ValueError, LookupError, TypeError):
        return None


def inside(root: Path) -> Path:
    """`root`, or the folder in it that has the encoder's config.json."""
    if any((root / name).is_file() for name in files.CONFIGS) or not (root / MODULES).is_file():
        return root
    inner = _encoder(root)
    return root / inner if inner and (root / inner).is_dir() else root


class Files(NamedTuple):
    """Paths from the root: those that travel, and those that are left out."""

    travel: list[str]
    left: list[str]


def sort(folder: Path) -> Files:
    """What becomes of each file beside config.json and the weights, which the model writes itself.

    A vocabulary travels too where the tokenizer is written as tokenizer.json: other programs read it.
    """
    at, found = layout(folder), Files([], [])
    for path in sorted(p for p in at.root.rglob("*") if p.is_file()):
        name = path.relative_to(at.root)
        if any(part in (".git", ".cache") for part in name.parts) or (path.parent == folder and path.name in files.CONFIGS):
            continue
        old = name.name.endswith(OLD) and path.parent in (folder, at.root) or name.parts[0] in EXPORTS
        paper = any(Path(path.name.lower()).match(p) for p in PAPERS)
        vocabulary = path.parent == folder and path.name in (*TOKENIZERS, *BESIDE)
        travels = not old and (at.modules or vocabulary or (paper and len(name.parts) == 1))
        (found.travel if travels else found.left).append(str(name))
    return found


def copy(folder: Path, target: Path, max_length: int | None) -> None:
    """Copies what travels from a checkpoint's `folder` into `target`, a root, where it is not there yet.

    Args:
      max_length: for sentence-transformers' max_seq_length and the tokenizer's model_max_length; None leaves them.
    """
    at = layout(folder)
    for name in sort(folder).travel:
        if not (target / name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(at.root / name, target / name)
    if max_length is None:
        return
    found = [(path, "max_seq_length") for path in (target / at.inner).glob(LENGTHS) if at.modules]
    found += [(path, "model_max_length") for path in [target / at.inner / "tokenizer_config.json"] if path.is_file()]
    for path, field in found:
        write_json(path, {**files.read_json(path), field: max_length})
