"""Where a checkpoint is, and the tokenizer that lies in it."""

import logging
from pathlib import Path

from lpe import assets
from lpe.checkpoint import beside, files
from lpe.checkpoint.beside import BESIDE, TOKENIZERS
from lpe.checkpoint.config import FAMILIES
from lpe.checkpoint.family import Family

EMBEDDED = ", ".join(assets.CHECKPOINTS)
log = logging.getLogger(__name__)
SMALL = ["*.json", "tokenizer*", "vocab*", "merges.txt", "sentencepiece*", "spiece.model"]
SMALL += ["README*", "LICENSE*", "NOTICE*", "[0-9]*_*/*"]  # the last are sentence-transformers' modules


def find(source: str | Path) -> Path:
    """The folder of a checkpoint: an embedded name, a folder, or a hub id (fetched into the hub's own cache).

    Raises:
      FileNotFoundError: none of them, or the hub is out of reach.
    """
    if str(source) in assets.CHECKPOINTS:
        return assets.CHECKPOINTS[str(source)]
    if not str(source):
        raise FileNotFoundError(f"checkpoint '' is empty; give a folder, a hub id (owner/name or name) or one of {EMBEDDED}")
    path = expanded(source)
    if path.is_dir():
        return beside.inside(path)
    if path.exists() or path.is_absolute() or str(source).startswith((".", "~")) or str(source).count("/") > 1:
        raise FileNotFoundError(
            f"checkpoint {str(source)!r} is no folder, no hub id (owner/name or name) and none of {EMBEDDED}"
        )
    return _fetch(str(source))


def expanded(path: str | Path) -> Path:
    """`path` with ~ replaced. Raises FileNotFoundError for a user that there is not."""
    try:
        return Path(path).expanduser()
    except RuntimeError as e:
        raise FileNotFoundError(f"{path}: {e}; write the folder in full") from e


def _fetch(hub_id: str) -> Path:
    """The hub's snapshot with its weights in one format only, the first of files.READERS that it has."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        for weights in files.READERS:
            stem, suffix = weights.rsplit(".", 1)
            names = [weights, f"{weights}.index.json"]
            folder = Path(snapshot_download(hub_id, allow_patterns=[*SMALL, *names, f"{stem}-*.{suffix}"]))
            if any((folder / n).is_file() for n in names):
                return folder
            if (inner := beside.inside(folder)) != folder:
                return inner
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as e:
        raise FileNotFoundError(
            f"checkpoint {hub_id!r} is no folder here and could not be fetched from the hub ({type(e).__name__}); "
            f"give a folder with config.json and {files.WEIGHTS}, a hub id, or one that comes with lpe: {EMBEDDED}"
        ) from e
    raise FileNotFoundError(f"checkpoint {hub_id!r} has no weights that lpe reads ({', '.join(files.READERS)})")


def read_tokenizer(folder: Path):
    """The folder's tokenizer without any maximum, or None, with a warning where files are there that do not say enough.

    Neither its model_max_length nor a truncation or padding kept in tokenizer.json touches a text: the length is checked at the
    model's door, where nothing is cut.

    Raises:
      ValueError: a file of the tokenizer is damaged or a git-lfs pointer.
    """
    there = [folder / f for f in TOKENIZERS if (folder / f).is_file()]
    if not there:
        return None
    for path in (*there, *(folder / f for f in BESIDE if (folder / f).is_file())):
        files.refuse_pointer(path)
        if path.suffix == ".json":
            files.read_json(path)
    raw = files.read_config(folder) if any((folder / n).is_file() for n in files.CONFIGS) else {}
    family = FAMILIES[raw["model_type"]] if raw.get("model_type") in list(FAMILIES) else None
    tokenizer = _open(folder, there[0].name, raw, family)
    if tokenizer is not None:
        if family is not None and "type_vocab_size" in family.absent:  # a model without token types takes none
            tokenizer.model_input_names = [n for n in tokenizer.model_input_names if n != "token_type_ids"]
        tokenizer.model_max_length = int(1e30)
        if tokenizer.is_fast:
            tokenizer.backend_tokenizer.no_truncation()
            tokenizer.backend_tokenizer.no_padding()
    return tokenizer


def tokenizer_class(family: str) -> str | None:
    """The class that transformers opens a vocabulary with by the family's model_type."""
    from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING_NAMES

    return TOKENIZER_MAPPING_NAMES.get(family)


def _open(folder: Path, first: str, raw: dict, family: Family | None):
    from transformers import CONFIG_MAPPING, AutoConfig, AutoTokenizer, BertTokenizer

    path = folder / "tokenizer_config.json"
    own = files.read_json(path) if path.is_file() else {}
    if first == "vocab.txt" and not {"do_lower_case", "tokenizer_class"} & set(own):
        log.warning(
            "%s: vocab.txt does not say whether its texts are lower-cased or how they are split, so there is no tokenizer; "
            'put {"tokenizer_class": "BertTokenizer", "do_lower_case": …} into tokenizer_config.json, or make the ids yourself',
            folder,
        )
        return None
    known = {}  # the family alone decides; the model's own values are read by config, which takes a null where these do not
    if family is not None:
        name = raw["model_type"] if raw["model_type"] in CONFIG_MAPPING else "bert"  # NEZHA, which transformers no longer has
        known["config"] = AutoConfig.for_model(name, tokenizer_class=raw.get("tokenizer_class"))
    words = family is not None and family.words
    try:
        if first == "vocab.txt" and "tokenizer_class" not in own and not words:
            return BertTokenizer.from_pretrained(folder)
        tokenizer = AutoTokenizer.from_pretrained(folder, **known)
        if hasattr(tokenizer, "__setstate__") and words and tokenizer.is_fast:
            tokenizer.__setstate__(tokenizer.__dict__)  # transformers 5.24 forgets the segmenter, but in this method
        return tokenizer
    except (ValueError, ImportError, OSError, KeyError, TypeError) as e:
        log.warning("%s: transformers makes no tokenizer of these files, so there is none: %s", folder, str(e).splitlines()[0])
        return None
