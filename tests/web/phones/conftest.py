"""One browser for all phones; each phone has a profile of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.browser import open_browser


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """The system's chromium."""
    yield from open_browser()
