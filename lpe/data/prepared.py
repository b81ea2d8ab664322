"""Data sets that TFDS has prepared on disk as array_record; TensorFlow and the network are not needed."""

import os
from typing import Any

from lpe.data.document import SPLIT, Document, Fields, from_row

PREFIX = "tfds:"


def find(source: str, data_dir: str) -> Any:
    """The TFDS builder of "tfds:NAME", "tfds:NAME/config" or "tfds:NAME/config:1.0.0", read from disk alone.

    tfds.builder would run the data set's own code, which asks a server for what is not on disk, and retries.

    Raises:
      FileNotFoundError: not prepared there; it says how to prepare it.
      ValueError: prepared in another format.
    """
    from tensorflow_datasets.core import constants, read_only_builder, registered

    name = source.removeprefix(PREFIX)
    folder = os.path.expanduser(data_dir or constants.DATA_DIR)  # may be gs://…
    how = (
        "On a machine with network (and with TensorFlow, where archives are to be unpacked):\n"
        f"  python -c \"import tensorflow_datasets as tfds; tfds.builder('{name}', data_dir='{folder}', "
        "file_format='array_record').download_and_prepare()\"\n"
        f"Then copy {folder}/{name.split('/')[0]} here, or name another parent folder with data.data_dir"
    )
    try:
        builder = read_only_builder.builder_from_files(name, data_dir=folder)
    except registered.DatasetNotFoundError as e:
        raise FileNotFoundError(f"data {source!r} is not prepared in {folder}. {how}") from e
    formats = {f.value for f in builder.info.available_file_formats()}
    if "array_record" not in formats:
        raise ValueError(
            f"data {source!r} is prepared as {', '.join(sorted(formats))} in {builder.data_dir}; without TensorFlow, lpe reads "
            f"array_record only. Prepare it anew, in another data_dir. {how}"
        )
    return builder


def read(builder: Any, source: str, split: str, fields: Fields) -> list[Document]:
    """The documents of one split, in the order of the files. Raises ValueError by place, as document.from_row."""
    features = builder.info.features
    rows = builder.as_data_source(split=split, file_format="array_record")
    names = {n: f.names for n, f in features.items() if hasattr(f, "names")}  # of classes, also of sequences of them
    plain = ({n: v for n, v in row.items() if n != SPLIT} for row in rows)
    return [from_row(row, f"{source}, {split}[{i}]", fields, names) for i, row in enumerate(plain)]
