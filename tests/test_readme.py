"""The README says what is: its commands are those that CI runs, its Python runs, its figures are a run's."""

import json
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from experiments import families
from lpe import registry
from lpe.checkpoint.config import FAMILIES

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.S)


def test_it_opens_with_two_commands_that_ci_runs_too():
    main_job, tests = (b.strip() for b in blocks("bash")[:2])
    ci = (ROOT / ".ci/run").read_text(encoding="utf-8")
    for command in (main_job, tests):
        assert len(command.splitlines()) == 1
        assert "pip install -r requirements.txt" in command and "-r requirements.txt" in ci
    assert main_job.endswith("&& python -m lpe.main --config=configs/hier.py")
    assert "python -m lpe.main --config=configs/hier.py" in ci
    for part in ("python -m tests.assets", "python -m pytest"):
        assert part in tests and part in ci


def test_its_python_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, second = blocks("python")
    names: dict = {}
    exec(compile(first, "README.md", "exec"), names)
    assert names["hidden"].shape[1] > 128 and (tmp_path / "bert-mini-384/model.safetensors").is_file()
    exec(compile(second, "README.md", "exec"), names)
    assert names["hidden"].shape[1] == 3502


def test_its_table_is_that_of_the_committed_run():
    report = (ROOT / "experiments/results/hier/report.md").read_text(encoding="utf-8")
    rows = [line for line in report.splitlines() if line.startswith("|")]
    assert len(rows) > 8
    for row in rows:
        assert row in README.splitlines(), f"the README lacks {row}"


@pytest.mark.parametrize(("title", "package"), [("Position methods", "positions"), ("Attention patterns", "attention")])
def test_it_lists_every_method(title, package):
    table = README.split(f"## {title}")[1].split("## ")[0]
    assert sorted(re.findall(r"^\| `(\w+)`", table, re.M)) == registry.names(package)


@pytest.mark.parametrize("path", re.findall(r"\]\(([\w/.-]+)\)", README))
def test_its_links_lead_somewhere(path):
    assert (ROOT / path).is_file()


def test_its_commands_name_what_is_there():
    commands = re.findall(r"python -m ([\w.]+)(?: --config=(configs/\w+\.py))?", README)
    assert {
        "lpe.main",
        "lpe.convert",
        "lpe.plan",
        "lpe.measure",
        "lpe.verification",
        "experiments.sweep",
        "experiments.get_brown",
        "experiments.bench_encode",
    } <= {m for m, _ in commands}
    for module, config in commands:
        assert find_spec(module), f"python -m {module}"
        assert not config or (ROOT / config).is_file()


def test_its_speeds_of_windows_are_those_of_the_committed_benchmark():
    assert (ROOT / "experiments/results/bench_attention/table.md").read_text(encoding="utf-8") in README


def test_its_speeds_of_patterns_are_those_of_the_committed_benchmark():
    assert (ROOT / "experiments/results/bench_patterns/table.md").read_text(encoding="utf-8") in README


def test_its_page_of_families_is_made_from_the_committed_figures():
    figures = json.loads(families.FIGURES.read_text(encoding="utf-8"))
    assert families.BEGIN + "\n" + families.page(figures) + "\n" + families.END in README
    assert {f["family"] for f in figures} == set(families.TITLES) >= set(FAMILIES)
    assert all(f["error"] < 1e-4 for f in figures)


def test_its_speeds_are_those_of_the_committed_benchmark():
    lines = (ROOT / "experiments/results/bench_encode/table.md").read_text(encoding="utf-8").strip().splitlines()
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in lines]
    for row in [cells[0], *cells[2:]]:
        assert f"| {' | '.join(row[i] for i in (0, 1, 3, 4, 5))} |" in README.splitlines()


@pytest.mark.parametrize(("name", "rows"), [("classify", 7), ("classify_minilm", 4)])
def test_its_tables_of_genres_are_those_of_the_committed_runs(name, rows):
    lines = (ROOT / f"experiments/results/{name}/report.md").read_text(encoding="utf-8").splitlines()
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in lines if line.startswith("|")][:rows]
    assert cells[0][0] == "arm" and len(cells[-1]) == len(cells[0])
    for row in [cells[0], *cells[2:]]:
        assert f"| {' | '.join(row[i] for i in (0, 1, 3, 5))} |" in README.splitlines()


def test_its_table_of_alphas_is_that_of_the_committed_sweep():
    lines = (ROOT / "experiments/results/alpha/report.md").read_text(encoding="utf-8").splitlines()
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in lines if line.startswith("| α")]
    assert len(cells) == 8
    for alpha, _, before, after, repeats in cells:
        assert f"| {alpha.removeprefix('α = ')} | {before} | {after} |" in README.splitlines() and repeats == "3"


def test_its_report_of_a_conversion_is_the_committed_one():
    printed = (ROOT / "experiments/results/commands/convert.txt").read_text(encoding="utf-8").splitlines()
    block = README.split("The first one on MiniLM prints (a part):\n\n```\n")[1].split("```")[0].splitlines()
    assert len(block) > 8
    for line in block:
        assert line in printed, line


def test_its_rows_of_a_plan_are_the_committed_ones():
    printed = (ROOT / "experiments/results/commands/plan.txt").read_text(encoding="utf-8").splitlines()
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in printed if line.startswith("| ")]
    plan = {(row[0], row[1]): row for row in cells[1:]}
    rows = README.split("| MiniLM at 32,768 tokens |")[1].split("\n\n")[0].splitlines()[2:]
    assert len(rows) == 4
    for row in rows:
        names, memory, flops, accuracy = (c.strip() for c in row.strip("|").split("|"))
        there = plan[tuple(re.findall(r"`(\w+)`", names)[:2])]
        assert (there[3], there[5], there[7].split(",")[0]) == (memory, flops, accuracy)


def test_its_costs_of_positions_are_those_of_the_committed_benchmark():
    found = json.loads((ROOT / "experiments/results/bench_positions/results.json").read_text(encoding="utf-8"))["rows"]
    rows = {(r["method"], r["tokens"]): r for r in found if not r["causal"] and "refused" not in r}
    table = re.findall(r"^\| `(\w+)` \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", README.split("## Speed")[1], re.M)
    assert len(table) > 6
    for name, *times, memory in table:
        want = [f"{rows[name, tokens]['time_of_baseline']['median']:.2f}" for tokens in (512, 2048, 8192)]
        assert (times, memory) == (want, f"{rows[name, 8192]['memory_of_baseline']:.2f}"), name


@pytest.mark.parametrize("page", ["README.md", "experiments/README.md"])
def test_its_tables_with_a_source_have_the_rows_of_that_file(page):
    """Under `<!-- rows of FILE -->` each row is one of that file's, in those of its columns that the head names."""
    parts = re.split(r"<!-- rows of (\S+) -->\n\n", (ROOT / page).read_text(encoding="utf-8"))[1:]
    assert parts or page != "README.md"
    for source, text in zip(parts[::2], parts[1::2], strict=True):
        shown, there = (_cells(t) for t in (text.split("\n\n")[0], (ROOT / source).read_text(encoding="utf-8")))
        head = shown[0]
        tables = [i for i, row in enumerate(there) if set(head) <= set(row)]
        assert tables and len(shown) > 1, f"{page}: no table in {source} has the columns {head}"
        found = [[row[there[i].index(h)] for h in head] for i in tables for row in there[i:] if len(row) == len(there[i])]
        for row in shown[1:]:
            assert row in found, f"{page}: {source} has no row {row}"


def _cells(text: str) -> list[list[str]]:
    rows = [[c.strip() for c in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    return [row for row in rows if not set("".join(row)) <= set("-: ")]
