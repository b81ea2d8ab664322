"""What all tests share: small models and batches, and a compilation cache outside of the clone."""

import os
from pathlib import Path

import jax
import pytest

jax.config.update(
    "jax_compilation_cache_dir", os.environ.get("JAX_COMPILATION_CACHE_DIR", str(Path.home() / ".cache/lpe/xla-tests"))
)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
MAPS = 20_000


def pytest_configure(config):
    """Small models compile twice as fast without LLVM's optimisations; the heavy tests and the main job have them."""
    if config.getoption("markexpr") == "not heavy":
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=0".strip()


def pytest_runtest_teardown(item, nextitem):
    """Forgets compiled programs before there are too many: each keeps some maps of memory, of which Linux gives 65,530."""
    if nextitem is None or nextitem.path != item.path:
        maps = Path("/proc/self/maps")
        if maps.is_file() and len(maps.read_bytes().splitlines()) > MAPS:
            jax.clear_caches()


@pytest.fixture(scope="session")
def mini():
    """The embedded bert-mini."""
    import lpe

    return lpe.from_pretrained("bert-mini")


def pytest_collection_modifyitems(items):
    """Tests of one method stay on one process, which compiles its model once."""
    for item in items:
        name = getattr(item, "callspec", None) and item.callspec.params.get("name")
        if isinstance(name, str):
            item.add_marker(pytest.mark.xdist_group(name))


def pytest_sessionfinish(session, exitstatus):
    """In CI a skipped test is a failed one: nothing is green that was not run."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter else []
    if os.environ.get("CI") and skipped:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
