"""What lies beside config.json and the weights, and travels with a model: licence, model card, sentence-transformers' files.

A sentence-transformers folder has a modules.json; its first module is the encoder, in the folder itself or in one of its own.
"""

import json
import re
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
REPORT = "verify.json"  # of lpe.convert; it is about one folder and no other
SAVED = re.compile(r"checkpoint-\d+")  # of transformers' Trainer


class Layout(NamedTuple):
    """root: the folder to give to its users; inner: where the encoder is in it, "" for itself; modules: of modules.json."""

    root: Path
    inner: str
    modules: bool


def layout(folder: Path) -> Layout:
    """Of the folder that has the encoder's config.json, or of the one above it that has the modules.json naming it."""
    for root in (folder, folder.parent):
        if (root / MODULES).is_file():
            inner = _encoder(root)
            if (root / inner).resolve() == folder.resolve():
                return Layout(root, inner, True)
    return Layout(folder, "", False)


def _encoder(root: Path) -> str:
    """The place of the first module of a modules.json. Raises ValueError for one that is damaged."""
    try:
        return str(json.loads((root / MODULES).read_text(encoding="utf-8"))[0]["path"])
    except (ValueError, LookupError, TypeError) as e:
        raise ValueError(
            f"{root / MODULES} is not sentence-transformers' list of modules, each with a path; repair it, or take it away"
        ) from e


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
        parts = name.parts
        if any(p.startswith(".") for p in parts) or (path.parent == folder and path.name in (*files.CONFIGS, REPORT)):
            continue
        old = name.name.endswith(OLD) and path.parent in (folder, at.root)
        old = old or parts[0] in EXPORTS or any(map(SAVED.fullmatch, parts))
        paper = is_paper(path.name)
        vocabulary = path.parent == folder and path.name in (*TOKENIZERS, *BESIDE)
        travels = not old and (at.modules or vocabulary or (paper and len(parts) == 1))
        (found.travel if travels else found.left).append(str(name))
    return found


def is_paper(name: str) -> bool:
    """Whether a file by its name is a licence, a model card or the like."""
    return any(Path(Path(name).name.lower()).match(p) for p in PAPERS)


def copy(folder: Path, target: Path, max_length: int | None) -> None:
    """Copies what travels from a checkpoint's `folder` into `target`, a root, where it is not there yet.

    Args:
      max_length: for sentence-transformers' max_seq_length; None leaves it.
    """
    at = layout(folder)
    for name in sort(folder).travel:
        if not (target / name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(at.root / name, target / name)
    for path in (target / at.inner).glob(LENGTHS) if at.modules and max_length is not None else ():
        write_json(path, {**files.read_json(path), "max_seq_length": max_length})


def describe_vocabulary(folder: Path, tokenizer_class: str | None, max_length: int | None) -> None:
    """Says in tokenizer_config.json what a vocabulary without a tokenizer of lpe needs to be opened as it was at its source.

    Args:
      tokenizer_class: what the source's model_type stands for, where the file names none: another one's may make no ids at all.
      max_length: model_max_length; None leaves it.
    """
    if not any((folder / name).is_file() for name in TOKENIZERS):
        return
    path = folder / "tokenizer_config.json"
    there = files.read_json(path) if path.is_file() else {}
    said = {"tokenizer_class": tokenizer_class} if tokenizer_class else {}
    write_json(path, {**said, **there, **({} if max_length is None else {"model_max_length": max_length})})
