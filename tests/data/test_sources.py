"""Documents from every file, their split and labels, and errors that name file and line."""

import csv
import json
import lzma

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lpe.data import sources
from lpe.data.document import Document


def read(path, **options):
    return sources.documents({"source": str(path), **options})


def lines(path, rows):
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def both(docs):
    return docs["train"] + docs["heldout"]


def test_the_embedded_speeches_are_split_by_year():
    docs = read("sotu")
    assert (len(docs["train"]), len(docs["heldout"])) == (210, 23)
    assert not {d.text for d in docs["train"]} & {d.text for d in docs["heldout"]}
    assert read("sotu", documents=2)["heldout"] == docs["heldout"][:2]


def test_a_folder_and_a_file_of_text(tmp_path, caplog):
    for i in range(20):
        (tmp_path / f"{i:02}.txt").write_text(f"text {i}")
    (tmp_path / "notes.md").write_text("a")
    docs = read(tmp_path)
    assert [d.text for d in docs["heldout"]] == ["text 9", "text 19"] and len(docs["train"]) == 18
    assert "1 files are not .txt and were left out, as notes.md" in caplog.text
    one = tmp_path / "one.txt"
    one.write_text("word " * 1000)
    docs = read(one)
    assert docs["train"][0].text + docs["heldout"][0].text == "word " * 1000
    assert 480 <= len(docs["heldout"][0].text) <= 520


@pytest.mark.parametrize(
    ("files", "want"),
    [
        (("a/1", "a/2", "b/1"), [(None, "a"), (None, "a"), (None, "b")]),
        (("a/1", "b/c/1"), [(None, None), (None, None)]),  # not one level: no labels
        (("a/1", "2"), [(None, None), (None, None)]),
        (("train/a/1", "test/a/1"), [("test", "a"), ("train", "a")]),
        (("train/1", "heldout/1"), [("heldout", None), ("train", None)]),
    ],
)
def test_sub_folders_are_labels_or_splits(tmp_path, files, want):
    for f in files:
        (tmp_path / f"{f}.txt").parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"{f}.txt").write_text("text")
    got = sources.readers.read(tmp_path, sources.Fields())
    assert sorted((d.split or "", d.label or "") for d in got) == sorted((s or "", n or "") for s, n in want)
    if want[0][0]:
        assert [d.split for d in both(read(tmp_path))] == ["train", "heldout"]


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.xz"])
def test_json_lines_may_say_their_split(tmp_path, name):
    rows = [{"text": "a", "split": "train"}, {"text": "b", "split": "heldout"}]
    raw = "\n".join(map(json.dumps, rows)).encode()
    (tmp_path / name).write_bytes(lzma.compress(raw) if name.endswith("xz") else raw)
    docs = read(tmp_path / name)
    assert [d.text for d in docs["train"]] == ["a"] and [d.text for d in docs["heldout"]] == ["b"]


def test_which_split_is_held_out_where_there_are_several(tmp_path, caplog):
    caplog.set_level("INFO")
    path = lines(tmp_path / "a.jsonl", [{"text": s, "split": s} for s in ("train", "validation", "test")])
    with pytest.raises(ValueError, match="has the splits test, train, validation; .* name it with data.heldout"):
        read(path)
    docs = read(path, heldout="test")
    assert [(d.text, d.split) for d in both(docs)] == [("train", "train"), ("test", "heldout")]
    assert "left out: 1 of split 'validation'" in caplog.text
    with pytest.raises(ValueError, match="splits of its own .* data.fold=2 of 10 cannot be held out"):
        read(path, heldout="test", fold=2)
    with pytest.raises(ValueError, match="now 'train'"):
        read(path, heldout="train")
    with pytest.raises(ValueError, match="line 2: no split, but 1 other documents of this source have one"):
        read(lines(tmp_path / "b.jsonl", [{"text": "a", "split": "train"}, {"text": "b"}]))
    with pytest.raises(ValueError, match="has no splits; it takes data.fold"):
        read(lines(tmp_path / "c.jsonl", [{"text": "a"}, {"text": "b"}]), heldout="test")


def test_folds_are_counted_within_each_label_and_cover_every_document_once(tmp_path):
    rows = [{"text": f"{i}", "label": "ab"[i % 7 == 0]} for i in range(70)]  # b is every seventh
    path = lines(tmp_path / "a.jsonl", rows)
    held = [read(path, folds=5, fold=f)["heldout"] for f in range(5)]
    assert sorted(int(d.text) for docs in held for d in docs) == list(range(70))
    assert all([d.label for d in docs].count("b") == 2 and len(docs) == 14 for docs in held)
    assert read(path, folds=5)["heldout"] == held[4] and [d.text for d in held[0]][:3] == ["0", "1", "6"]
    with pytest.raises(ValueError, match="data.folds=5, data.fold=5"):
        read(path, folds=5, fold=5)
    with pytest.raises(ValueError, match="at most 60 of one label: too few for fold -1 of 99"):
        read(path, folds=99)


def test_a_limit_takes_from_every_label(tmp_path):
    path = lines(tmp_path / "a.jsonl", [{"text": f"{i}", "label": "abc"[i // 40]} for i in range(120)])
    docs = read(path, documents=4)
    assert [d.text for d in docs["train"]] == ["0", "1", "40", "80"] and len(docs["heldout"]) == 4
    assert sources.labels(docs) == ("a", "b", "c")


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_tables_with_newlines_in_quotes_know_their_lines(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    rows = [("label", "body"), ("x", 'two\nlines and a "quote"'), ("y", "comma, tab\t"), ("x", "long " * 40_000), ("y", "")]
    with path.open("w", newline="", encoding="utf-8-sig") as f:
        csv.writer(f, delimiter="\t" if suffix == "tsv" else ",").writerows(rows)
    before = csv.field_size_limit()
    docs = sorted(both(read(path, text="body", folds=2)), key=lambda d: d.where)
    assert [(d.label, d.text) for d in docs] == rows[1:4] and csv.field_size_limit() == before
    assert [d.where.removeprefix(f"{path}, ") for d in docs] == ["line 2", "line 4", "line 5"]
    with pytest.raises(ValueError, match=f"a.{suffix}, line 2: no field 'text' among 'label', 'body'; name .* data.text"):
        read(path)
    with pytest.raises(ValueError, match="line 2: no field 'genre' among 'label', 'body'; data.label asks for it"):
        read(path, text="body", label="genre")


def test_parquet(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"body": ["a", "b", None], "label": [0, 1, 0], "other": [0.5, 0.5, 0.5]}), path)
    with pytest.raises(ValueError, match="a.parquet, row 3: field 'body' is None; needs a string"):
        read(path, text="body")
    with pytest.raises(ValueError, match="row 1: no field 'text' among 'label'"):
        read(path)
    with pytest.raises(ValueError, match="row 1, field 'other': 0.5 is no label"):
        read(path, text="body", label="other")
    pq.write_table(pa.table({"tokens": [["a", "b"], ["c"]], "tags": [["O", "X"], ["O"]], "split": ["train", "test"]}), path)
    docs = read(path)
    assert docs["train"] == [Document("a b", f"{path}, row 1", "train", None, ("a", "b"), ("O", "X"))]
    path.write_bytes(b"text")
    with pytest.raises(ValueError, match="a.parquet is no Parquet file that can be read"):
        read(path)


@pytest.mark.parametrize("between", ["\t", " ", "   "])
def test_conll_columns(tmp_path, between):
    sentences = [[("Ann", "B"), ("works", "O")], [("here", "O")], [("Bob", "B"), ("left", "O")]]
    blocks = ["\n".join(between.join([w, "-", t]) for w, t in s) for s in sentences]
    path = tmp_path / "a.conll"
    path.write_text("\n\n".join(blocks) + "\n")
    docs = both(read(path))
    assert [d.text for d in docs] == ["Ann works", "here", "Bob left"] and docs[0].tags == ("B", "O")
    assert [d.where for d in docs] == [f"{path}, line {n}" for n in (1, 4, 6)]
    start = "-DOCSTART- -X- O\n\n"
    path.write_text(start + "\n\n".join(blocks[:2]) + "\n\n" + start + blocks[2])
    docs = both(read(path))
    assert [d.words for d in docs] == [("Ann", "works", "here"), ("Bob", "left")]
    assert [d.where for d in docs] == [f"{path}, line {n}" for n in (3, 10)]
    path.write_text(blocks[0] + "\nAnn\n")
    with pytest.raises(ValueError, match="a.conll, line 3: 1 columns, but 3 are expected: word first, tag last"):
        read(path)
    path.write_text("Ann\t\n")
    with pytest.raises(ValueError, match="a.conll, line 1: 1 columns, but 2 are expected"):
        read(path)


def test_words_with_tags_in_json_lines(tmp_path):
    path = lines(tmp_path / "a.jsonl", [{"tokens": ["a", "b"], "ner": [0, 1]}, {"tokens": ["c"], "ner": [0]}])
    docs = read(path, text="tokens", label="ner")
    assert docs["train"][0].words == ("a", "b") and docs["train"][0].tags == ("0", "1") and sources.tags(docs) == ("0", "1")
    one = lines(tmp_path / "b.jsonl", [{"tokens": ["w"] * 40, "tags": ["O"] * 40}])
    docs = read(one)
    assert [len(d.tags or ()) for d in both(docs)] == [36, 4] and docs["heldout"][0].text == "w w w w"


ROW = '{"text": "a", "label": "x"}\n'


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"good\nbad \xff", r"a.txt, line 2: not UTF-8"),
        ("a.csv", b"text\ngood\nbad \xff", r"a.csv, line 3: not UTF-8"),
        ("a.jsonl", b'{"text": "a"}\n{"text": ', r"a.jsonl, line 2: not JSON"),
        ("a.jsonl", b'{"body": "a"}', r"a.jsonl, line 1: no field 'text' among 'body'"),
        ("a.jsonl", b'["a"]', r"a.jsonl, line 1: needs an object with a field 'text'"),
        ("a.jsonl", b'{"text": 1}', r"a.jsonl, line 1: field 'text' is 1; needs a string"),
        ("a.jsonl", b'{"text": "a", "split": "tests"}', r"line 1: split='tests', allowed are train, heldout"),
        ("a.jsonl", b'{"text": "a", "label": 0.5}', r"line 1, field 'label': 0.5 is no label"),
        ("a.jsonl", b'{"text": "a", "label": true}', r"line 1, field 'label': True is no label"),
        ("a.jsonl", b'{"text": "a", "label": ["x"]}', r"line 1, field 'label': \['x'\] is no label"),
        ("a.jsonl", b'\n{"tokens": ["a", "b"], "tags": ["O"]}', r"line 2: 2 words but 1 tags"),
        ("a.jsonl", b'{"tokens": ["a", "b"], "tags": ["O", null]}', r"line 1: word 1 has no tag"),
        ("a.jsonl", b'{"tokens": ["a", 2]}', r"line 1: field 'tokens' is \['a', 2\]; needs a string, or a list of strings"),
        ("a.csv", b'text,label\n"a\nb",x\n"open,y\nz,x\n', r"a.csv, line 4: unexpected end of data in the row that begins"),
        ("a.csv", b"text,label\na,x\na,b,x\n", r"a.csv, line 3: 3 cells, but 2 columns \(text, label\)"),
        ("a.csv", b"text,text\na,x\n", r"a.csv, line 1: two columns have one name"),
        ("a.jsonl.xz", b"not xz", "a.jsonl.xz is damaged"),
        ("a.pdf", b"", "lpe reads folders of .txt"),
        ("a.jsonl", b'{"text": "a", "split": "train"}', "has the splits train; needs train and one to hold out"),
        ("a.txt", b"  \n ", "no text for split 'train'"),
        ("a.csv", b"text,label\n", "no text for split 'train'"),
    ],
)
def test_errors_name_the_place(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read(tmp_path / name)


def test_nothing_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="no file, no folder and none of sotu"):
        read("nothing")
    with pytest.raises(FileNotFoundError, match="holds no .txt file"):
        read(tmp_path)
    with pytest.raises(ValueError, match="data has no key foldz"):
        read("sotu", foldz=3)


def test_empty_documents_are_counted(tmp_path, caplog):
    for i, text in enumerate(["a", "", "b", " "]):
        (tmp_path / f"{i}.txt").write_text(text)
    read(tmp_path)
    assert f"2 of 4 documents are empty and were left out: {tmp_path / '1.txt'}; {tmp_path / '3.txt'}" in caplog.text


def test_a_single_document_without_spaces_near_the_cut_is_cut_all_the_same(tmp_path):
    (tmp_path / "a.txt").write_text("Title " + "字" * 10_000)
    docs = read(tmp_path / "a.txt")
    assert 0.09 < len(docs["heldout"][0].text) / 10_006 < 0.11


@pytest.mark.parametrize("what", ["label", "tag"])
def test_what_labels_and_tags_refuse(what):
    def doc(name, where):
        return Document("t", where, None, name, ("t",), (name,) if name else None)

    of = sources.labels if what == "label" else sources.tags
    a, b = doc("b", "f, line 1"), doc("a", "f, line 2")
    assert of({"train": [a, b], "heldout": [b]}) == ("a", "b")
    for docs, message in [
        ({"train": [a, doc(None, "f, line 3")], "heldout": [b]}, f"f, line 3: the document has no {what}"),
        ({"train": [a, b], "heldout": [doc(None, "f, line 4")]}, f"f, line 4: the document has no {what}"),
        ({"train": [a, a], "heldout": [a]}, f"the training split has the {what} 'b' only; two are needed"),
        (
            {"train": [a, b], "heldout": [a, *(doc("c", f"f, line {n}") for n in range(5, 9))]},
            f"the {what} 'c' is in the held-out split only \\(4 documents: f, line 5; f, line 6; f, line 7; and 1 more\\)",
        ),
    ]:
        with pytest.raises(ValueError, match=message):
            of(docs)


def test_half_a_character_is_named_by_its_line(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "fine"}\n{"text": "bad \\ud800"}\n')
    with pytest.raises(ValueError, match="a.jsonl, line 2: the text holds half a character"):
        sources.documents({"source": str(tmp_path / "a.jsonl")})
