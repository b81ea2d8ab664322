"""The small parts of lpe.measure: what its fingerprints cover, what --help says, what its picture shows."""

import copy
import dataclasses

import matplotlib.figure
import pytest

from lpe import measure
from lpe import model as models
from lpe.data.document import Document
from lpe.measuring import content, page


def test_a_tokenizer_is_part_of_the_checkpoint(mini):
    other = copy.deepcopy(mini.tokenizer)
    other.backend_tokenizer.normalizer = None
    changed = dataclasses.replace(mini, companions=models.Companions(other, mini.companions.raw))
    docs = {"train": [Document("a", "x")], "heldout": [Document("b", "y")]}
    before, after = content.of(mini, docs), content.of(changed, docs)
    assert before["data"] == after["data"] and before["checkpoint"] != after["checkpoint"]
    moved = {"train": [], "heldout": [*docs["train"], *docs["heldout"]]}
    assert content.of(mini, moved) == {**before, "data": content.of(mini, moved)["data"]} != before


def test_help_says_what_is_read_of_a_text(capsys):
    with pytest.raises(SystemExit):
        measure.main(["measure", "--help"])
    assert "With an MLM head the held-out part alone is read" in " ".join(capsys.readouterr().out.split())


def test_the_lines_of_the_untouched_model_begin_where_it_reads_whole():
    rows = [
        {"length": 16, "read": "whole", "untouched": True}, {"length": 16, "read": "whole", "untouched": False},
        {"length": 64, "read": "first", "untouched": True}, {"length": 64, "read": "pieces", "untouched": True},
    ]  # fmt: skip
    rows = [{**r, "position": "copy", "attention": "full"} for r in rows]
    assert page._lines(rows) == {
        "copy, full": [rows[1]], "untouched, truncated": [rows[0], rows[2]], "untouched, in pieces": [rows[0], rows[3]]
    }  # fmt: skip
    assert list(page._lines(rows[:2])) == ["untouched", "copy, full"]


@pytest.mark.parametrize("values", [[0.011, 0.018], [0.004, 0.05], [0.3, 900], [2.0]])
def test_an_axis_of_seconds_has_several_ticks(values):
    axes = matplotlib.figure.Figure().subplots()
    axes.plot(values, values)
    axes.set(yscale="log")
    page._ticks(axes.yaxis, values)
    low, high = axes.get_ylim()
    assert sum(low <= tick <= high for tick in axes.get_yticks()) >= 2
