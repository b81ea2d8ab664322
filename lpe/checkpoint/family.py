"""What a family's table file says: how Hugging Face writes its config.json and its tensors."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from lpe.checkpoint.mapping import Row
from lpe.models.bert import BertConfig

HEADS = {  # head → how the name of its class ends; the first one there names a model
    "mlm": "ForMaskedLM",
    "classifier": "ForSequenceClassification",
    "tagger": "ForTokenClassification",
    "qa": "ForQuestionAnswering",
}


def no_fields(raw: Mapping[str, Any]) -> dict[str, Any]:
    return {}


def full_attention(raw: Mapping[str, Any], heads: tuple[str, ...], source: str) -> dict[str, Any]:
    """The attention pattern that the weights were trained with, as in Recipe.attention."""
    return {"name": "full"}


def full_attention_fields(spec: Mapping[str, Any], layers: int, heads: tuple[str, ...]) -> dict[str, Any] | None:
    """Fields of config.json that say an attention pattern, less its options at their defaults; None: no such model is stock."""
    return {} if spec == {"name": "full"} else None


def no_note(spec: Mapping[str, Any], heads: tuple[str, ...]) -> str:
    """What a user of the stock class must do to have this attention pattern, in words."""
    return ""


def learned(raw: Mapping[str, Any], source: str) -> dict[str, Any]:
    """The position method that the weights were trained with, as in Recipe.position."""
    return {"name": "learned"}


class Family(NamedTuple):
    """One family. Read forwards it imports, read backwards it exports.

    classes: what the names of its classes begin with.
    encoder, pooler, heads: rows of the table, heads by name. A classifier whose rows have a pooler brings its own.
    gated: rows in place of those of the same parameter, where the feed-forward part is gated.
    words: whether its vocab.txt holds words of a segmenter too, and not word pieces alone (RoFormer).
    base_class: how the name of the class without a head ends.
    prefix: of the encoder's tensors where a head is beside it; old_prefixes are read too.
    decoder_bias: a second name of mlm_head/bias, and the one that counts where both are there.
    dropped: beginnings of the names of tensors that lpe has no use for.
    refused: beginnings of the names of heads that lpe cannot compute, and why.
    computed: tensors that follow from the config; they are compared, not read.
    copies: second names of tensors.
    aliases: (regular expression, replacement) of names that tensors also have.
    renamed: config.json's name of a field, ours. old_names: further ones that are read, and not written.
    absent: fields of ours that its config.json does not have.
    defaults: of transformers, where they are not BERT's, by our names.
    fixed: fields of this family alone that change the computation, with the only value that lpe computes.
    carried: fields of this family alone that do not change what the encoder computes.
    own: fields that `fields`, `attention` and `position` read.
    fields: (config.json by our names) -> further fields of BertConfig; raises ValueError for a value that has no meaning.
    unlike: (config) -> what stock classes do not compute of it, in words; "" where they compute all.
    reserved_rows: of the position table; None: pad_token_id + 1.
    attention, attention_fields, attention_words: the pattern; its fields in config.json; what stock classes have.
    attention_note: what remains to be done by the caller of a stock class.
    becomes: families whose classes compute the same encoder with other attention patterns.
    position, position_fields, position_words: likewise; position_fields (specs, max_length) is None where a table is written.
    """

    classes: str
    encoder: tuple[Row, ...]
    pooler: tuple[Row, ...] = ()
    heads: Mapping[str, tuple[Row, ...]] = {}
    gated: tuple[Row, ...] = ()
    words: bool = False
    base_class: str = "Model"
    prefix: str = ""
    old_prefixes: tuple[str, ...] = ()
    decoder_bias: str = ""
    dropped: tuple[str, ...] = ()
    refused: Mapping[str, str] = {}
    computed: Mapping[str, Callable[[BertConfig], np.ndarray]] = {}
    copies: Mapping[str, str] = {}
    aliases: tuple[tuple[str, str], ...] = ()
    renamed: Mapping[str, str] = {}
    old_names: Mapping[str, str] = {}
    absent: frozenset[str] = frozenset()
    defaults: Mapping[str, Any] = {}
    fixed: Mapping[str, Any] = {}
    carried: frozenset[str] = frozenset()
    own: frozenset[str] = frozenset()
    fields: Callable[[Mapping[str, Any]], dict[str, Any]] = no_fields
    unlike: Callable[[BertConfig], str] = lambda cfg: ""
    reserved_rows: int | None = 0
    attention: Callable = full_attention
    attention_fields: Callable = full_attention_fields
    attention_words: str = "full attention"
    attention_note: Callable[[Mapping[str, Any], tuple[str, ...]], str] = no_note
    becomes: tuple[str, ...] = ()
    position: Callable = learned
    position_fields: Callable | None = None
    position_words: str = "a table"

    @property
    def rows(self) -> list[Row]:
        """All rows, of every head."""
        return [*self.encoder, *self.gated, *self.pooler, *(row for rows in self.heads.values() for row in rows)]
