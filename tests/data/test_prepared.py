"""TFDS data sets as array_record, written here without network and TensorFlow; what is not prepared fails at once."""

import importlib
import subprocess
import sys

import pytest

from lpe.data import sources

tfds = importlib.import_module("tensorflow_datasets")
F = tfds.features


with tfds.core.registered.skip_registration():

    class Tiny(tfds.core.GeneratorBasedBuilder):
        """A data set as large as each test asks."""

        VERSION = tfds.core.Version("1.0.0")
        code_path = None  # TFDS looks for it with a package that it does not bring along
        splits: dict = {}

        def _info(self):
            kinds = F.ClassLabel(names=["neg", "pos"])
            features = {"text": F.Text(), "label": kinds, "tokens": F.Sequence(F.Text()), "ner": F.Sequence(kinds)}
            return tfds.core.DatasetInfo(builder=self, features=F.FeaturesDict(features))

        def _split_generators(self, dl_manager):
            return {name: self._generate_examples(name, n) for name, n in self.splits.items()}

        def _generate_examples(self, name, n):
            for i in range(n):
                label = -1 if name == "unlabelled" else i % 2
                yield i, {"text": f"{name} é {i}", "label": label, "tokens": ["ä", name], "ner": [1, 0]}


def builder(folder, splits, file_format="array_record"):
    made = Tiny(data_dir=str(folder), file_format=file_format)
    made.splits = splits
    made.download_and_prepare(download_config=tfds.download.DownloadConfig(try_download_gcs=False))


def read(folder, name="tiny", **options):
    return sources.documents({"source": f"tfds:{name}", "data_dir": str(folder), **options})


def test_text_labels_and_splits(tmp_path, caplog):
    caplog.set_level("INFO")
    builder(tmp_path, {"train": 6, "test": 2, "unlabelled": 1})
    docs = read(tmp_path)
    assert sorted(d.text for d in docs["train"]) == [f"train é {i}" for i in range(6)]
    assert {d.split for d in docs["heldout"]} == {"heldout"} and docs["heldout"][1].where == "tfds:tiny, test[1]"
    assert all(d.label == ("neg", "pos")[int(d.text[-1]) % 2] for found in docs.values() for d in found)
    assert sources.labels(docs) == ("neg", "pos") and "left out: 1 of split 'unlabelled'" in caplog.text
    docs = read(tmp_path, text="tokens", label="ner", heldout="unlabelled")
    assert docs["heldout"][0].words == ("ä", "unlabelled") and sources.tags(docs) == ("neg", "pos")
    with pytest.raises(ValueError, match=r"tfds:tiny, unlabelled\[0\]: the document has no label"):
        sources.labels(read(tmp_path, heldout="unlabelled"))
    with pytest.raises(ValueError, match=r"tfds:tiny, train\[0\]: no field 'body' among 'label', 'ner', 'text', 'tokens'"):
        read(tmp_path, text="body")
    with pytest.raises(ValueError, match="splits of its own"):
        sources.check({"source": "tfds:tiny", "data_dir": str(tmp_path), "fold": 1})


def test_no_choice_between_validation_and_test(tmp_path):
    builder(tmp_path, {"train": 2, "validation": 1, "test": 1})
    with pytest.raises(ValueError, match="has the splits test, train, validation; .* name it with data.heldout"):
        sources.check({"source": "tfds:tiny", "data_dir": str(tmp_path)})
    assert read(tmp_path, heldout="validation")["heldout"][0].text == "validation é 0"


@pytest.mark.parametrize("name", ["tiny", "imdb_reviews", "ag_news_subset", "glue/sst2", "imdb_reviews/plain_text:1.0.0"])
def test_what_is_not_prepared_asks_no_server(tmp_path, name, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a server was asked")

    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setattr("socket.getaddrinfo", refuse)
    with pytest.raises(FileNotFoundError, match=f"not prepared in {tmp_path}(?s:.*)tfds.builder\\('{name}', .*array_record"):
        sources.check({"source": f"tfds:{name}", "data_dir": str(tmp_path)})


def test_prepared_in_another_format(tmp_path):
    builder(tmp_path, {"train": 2, "test": 1}, "parquet")
    with pytest.raises(ValueError, match="is prepared as parquet in .*; without TensorFlow, lpe reads array_record only"):
        read(tmp_path)


def test_no_tensorflow(tmp_path):
    builder(tmp_path, {"train": 2, "test": 1})
    code = (
        "import sys; from lpe.data import sources; docs = sources.documents({'source': 'tfds:tiny', 'data_dir': sys.argv[1]});"
        "print(len(docs['train']), 'tensorflow' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, capture_output=True, text=True)
    assert run.stdout.split() == ["2", "False"]
