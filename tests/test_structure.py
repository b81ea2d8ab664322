"""The shape of the code base: import ranks, sizes, no torch, and a README whose commands are those that run."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
RANKS = {
    "tokens": 0, "params": 0, "linear": 0, "registry": 0, "optim": 0, "sharding": 0, "metrics": 0, "timer": 0,
    "settings": 0, "workdir": 0, "signals": 0, "rules": 0, "assets": 0, "cli": 0, "positions": 1, "attention": 1, "data": 1,
    "models": 2, "checkpoint": 2, "tasks": 3, "report": 4, "best": 4, "step": 4, "build": 4, "stock": 4, "inputs": 5,
    "saving": 5, "model": 5, "heads": 5, "costs": 5, "planning": 6, "verification": 6, "arms": 6, "evaluate": 6, "train": 6,
    "stepwise": 6, "measuring": 6, "main": 7, "plan": 7, "convert": 7, "measure": 7,
}  # fmt: skip


def modules() -> list[Path]:
    return sorted((ROOT / "lpe").rglob("*.py"))


def unit(path: Path) -> str:
    part = path.relative_to(ROOT / "lpe").parts[0]
    return part.removesuffix(".py")


def imported(path: Path) -> set[str]:
    """The units of lpe that a file imports anywhere, also inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "lpe":
            parts = node.module.split(".")
            found |= {parts[1]} if len(parts) > 1 else {a.name for a in node.names}
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("lpe.")}
    return found


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_a_module_imports_lower_ranks_only(path):
    me = unit(path)
    if me == "__init__":
        return  # the public names
    assert me in RANKS, f"{me} has no rank: give it one here and in the design"
    for other in imported(path) - {me}:
        assert other in RANKS, f"{path} imports lpe.{other}, which is no module of lpe"
        same_rank_leaf = RANKS[other] == RANKS[me] and me not in ("positions", "attention", "models", "checkpoint", "tasks")
        assert (
            RANKS[other] < RANKS[me]
            or same_rank_leaf
            or (me, other)
            in {
                ("attention", "positions"),  # the reference calls the position hooks
                ("checkpoint", "models"),  # a table maps to the config of a model
            }
        ), f"{path} (rank {RANKS[me]}) imports lpe.{other} (rank {RANKS[other]})"


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_size_and_no_torch(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 300
    assert not re.search(r"^\s*(import|from) torch\b", text, re.M)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            doc = len((ast.get_docstring(node) or "").splitlines())
            assert (node.end_lineno or 0) - node.lineno - doc <= 60, f"{path.name}: {node.name} is too long"


def test_the_training_loop_is_one_page_and_a_half():
    assert len((ROOT / "lpe/train.py").read_text(encoding="utf-8").splitlines()) <= 150


def test_lpe_loads_without_torch():
    code = "import sys; sys.modules['torch'] = None; import lpe, lpe.main; lpe.from_pretrained('bert-mini')"
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, cwd=ROOT)


def test_a_public_object_has_a_docstring():
    for path in modules():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
                short = isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.lineno <= 12
                explained = ast.get_docstring(node) or short or path.name == "main.py"
                assert explained, f"{path.relative_to(ROOT)}: {node.name} has no docstring"
