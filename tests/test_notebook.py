"""experiments/colab.ipynb runs as it is committed, with small parameters, and its readers see no warning of lpe."""

import base64
import re
from importlib.util import find_spec
from pathlib import Path

import jax
import nbclient
import nbformat
import pytest

ROOT = Path(__file__).parent.parent
NOTEBOOK = ROOT / "experiments/colab.ipynb"
pytestmark = pytest.mark.xdist_group("notebook")  # one process runs it
SMALL = 'CHECKPOINT = "bert-mini"\nLENGTH, STEPS, EXAMPLES, ALPHAS = 256, 2, 6, (0.2, 0.4)'


def committed():
    return nbformat.read(NOTEBOOK, as_version=4)


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """The cells after a run, by id. The repository lies where the cell for Colab would put it."""
    folder = tmp_path_factory.mktemp("colab")
    (folder / "lpe-clone").symlink_to(ROOT)
    notebook = committed()
    (parameters,) = [c for c in notebook.cells if "parameters" in c.metadata.get("tags", ())]
    names = re.findall(r"^(\w+) = ", parameters.source, re.M)
    assert all(name in SMALL for name in names) and len(names) == 5, names
    parameters.source = SMALL
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONWARNINGS", "always")
        patch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=0")
        patch.setenv("JAX_COMPILATION_CACHE_DIR", str(jax.config.jax_compilation_cache_dir))
        where = {"metadata": {"path": str(folder)}}
        nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3", resources=where).execute()
    return {c.id: c for c in notebook.cells}, folder


def said(cell, stream: str = "stdout") -> str:
    return "".join(o.text for o in cell.outputs if o.output_type == "stream" and o.name == stream)


def images(cell) -> list[bytes]:
    found = [o.data["image/png"] for o in cell.outputs if "image/png" in o.get("data", {})]
    return [base64.b64decode(x) for x in found]


def complaints(text: str) -> list[str]:
    """Lines of stderr but for progress bars and what other packages warn of."""
    lines = [x for x in re.split(r"[\r\n]+", text) if x.strip() and not re.search(r"(step|it)/s|s/(step|it)", x)]
    foreign = [bool(re.search(r"site-packages/(?!lpe).*Warning", x)) for x in lines]
    quoted = [before and x.startswith("  ") for x, before in zip(lines, [False, *foreign], strict=False)]
    return [x for x, f, q in zip(lines, foreign, quoted, strict=True) if not f and not q]


def test_it_is_committed_clean():
    notebook = committed()
    assert NOTEBOOK.read_text(encoding="utf-8") == nbformat.writes(notebook) + "\n"
    code = [c for c in notebook.cells if c.cell_type == "code"]
    assert not any(c.outputs or c.execution_count for c in code)
    assert len({c.id for c in notebook.cells}) == len(notebook.cells)


def test_its_words_name_what_is_there():
    words = "\n".join(c.source for c in committed().cells if c.cell_type == "markdown")
    files, modules = re.findall(r"`((?:configs|experiments)/[\w/.]+)`", words), re.findall(r"python -m ([\w.]+)", words)
    assert len(files) >= 3 and all((ROOT / name).is_file() for name in files), files
    assert modules and all(find_spec(name) for name in modules), modules


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("a: 50%|█| 1/2 [00:01<00:01, 1.0s/step]\rb: 1it [00:00, 5it/s]\n", []),
        ("/x/site-packages/tqdm/auto.py:21: TqdmWarning: no\n  from a import b\n", []),
        ("/x/lpe-clone/lpe/a.py:3: UserWarning: rows\n  warn()\n", ["/x/lpe-clone/lpe/a.py:3: UserWarning: rows", "  warn()"]),
        ("max_length=3 is within\n", ["max_length=3 is within"]),
    ],
)
def test_a_complaint_is_seen(text, left):
    assert complaints(text) == left


@pytest.mark.heavy
def test_every_cell_runs_without_a_complaint(ran):
    cells, _ = ran
    for cell in cells.values():
        if cell.cell_type == "code":
            assert cell.execution_count and all(o.output_type != "error" for o in cell.outputs)
            assert complaints(said(cell, "stderr")) == [], cell.id


@pytest.mark.heavy
def test_the_extension_is_verified(ran):
    cells, _ = ran
    (verdict,) = [o.data["text/plain"] for o in cells["verify"].outputs if "data" in o]
    assert verdict == "True", said(cells["verify"])
    assert "max_length" in said(cells["verify"])


@pytest.mark.heavy
def test_the_ablation_is_a_table_and_a_plot(ran):
    cells, _ = ran
    rows = re.findall(r"^(untouched|α=0.\d) .*?(\d+\.\d) ± ", said(cells["alpha"]), re.M)
    assert [name for name, _ in rows[:3]] == ["untouched", "α=0.2", "α=0.4"]
    for name in ("alpha-plot", "curve"):
        (picture,) = images(cells[name])
        assert picture.startswith(b"\x89PNG") and len(picture) > 10_000


@pytest.mark.heavy
def test_what_it_saves_is_stock(ran):
    cells, folder = ran
    (found,) = re.findall(r"^BertForMaskedLM, 256 tokens: largest difference (\S+)$", said(cells["reload"]), re.M)
    print(f"parity notebook: {found}")
    assert float(found) < 1e-4
    assert (folder / "runs/bert-mini-256/model.safetensors").is_file()
    steps = re.findall(r"^step +(\d+), read as", said(cells["metrics"]), re.M)
    assert steps == ["0", "0", "1", "1", "2", "2"]
