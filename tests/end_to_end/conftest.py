"""A real browser for the pages of real servers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.browser import open_browser


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """The system's chromium: one for all tests, with a fresh profile for each page."""
    yield from open_browser()
