"""Documents from every source, their split, and errors that name file and line."""

import json
import lzma

import pytest

from lpe.data import sources


def test_the_embedded_speeches_are_split_by_year():
    docs = sources.documents("sotu")
    assert (len(docs["train"]), len(docs["heldout"])) == (210, 23)
    assert not {d.text for d in docs["train"]} & {d.text for d in docs["heldout"]}
    assert sources.documents("sotu", limit=2)["heldout"] == docs["heldout"][:2]


def test_a_folder_and_a_file_of_text(tmp_path):
    for i in range(20):
        (tmp_path / f"{i:02}.txt").write_text(f"text {i}")
    docs = sources.documents(str(tmp_path))
    assert [d.text for d in docs["heldout"]] == ["text 9", "text 19"] and len(docs["train"]) == 18
    one = tmp_path / "one.txt"
    one.write_text("word " * 1000)
    docs = sources.documents(str(one))
    assert docs["train"][0].text + docs["heldout"][0].text == "word " * 1000
    assert 480 <= len(docs["heldout"][0].text) <= 520


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.xz"])
def test_json_lines_may_say_their_split(tmp_path, name):
    rows = [{"text": "a", "split": "train"}, {"text": "b", "split": "heldout"}]
    raw = "\n".join(map(json.dumps, rows)).encode()
    (tmp_path / name).write_bytes(lzma.compress(raw) if name.endswith("xz") else raw)
    docs = sources.documents(str(tmp_path / name))
    assert [d.text for d in docs["train"]] == ["a"] and [d.text for d in docs["heldout"]] == ["b"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"good\nbad \xff", r"a.txt, line 2: not UTF-8"),
        ("a.jsonl", b'{"text": "a"}\n{"text": ', r"a.jsonl, line 2: not JSON"),
        ("a.jsonl", b'{"body": "a"}', r"a.jsonl, line 1: needs an object with a string 'text'"),
        ("a.jsonl", b'{"text": "a", "split": "tests"}', r"line 1: split='tests', allowed are train, heldout"),
        ("a.jsonl.xz", b"not xz", "a.jsonl.xz is damaged"),
        ("a.pdf", b"", "lpe reads folders of .txt"),
        ("a.jsonl", b'{"text": "a", "split": "train"}', "no text for split 'heldout'"),
        ("a.txt", b"  \n ", "no text for split 'train'"),
    ],
)
def test_errors_name_the_place(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        sources.documents(str(tmp_path / name))


def test_nothing_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="no file, no folder and none of sotu"):
        sources.documents("nothing")
    with pytest.raises(FileNotFoundError, match="holds no .txt file"):
        sources.documents(str(tmp_path))


def test_empty_documents_are_counted(tmp_path, caplog):
    for i, text in enumerate(["a", "", "b", " "]):
        (tmp_path / f"{i}.txt").write_text(text)
    sources.documents(str(tmp_path))
    assert "2 of 4 documents are empty and were left out" in caplog.text


def test_a_single_document_without_spaces_near_the_cut_is_cut_all_the_same(tmp_path):
    (tmp_path / "a.txt").write_text("Title " + "字" * 10_000)
    docs = sources.documents(str(tmp_path / "a.txt"))
    assert 0.09 < len(docs["heldout"][0].text) / 10_006 < 0.11
