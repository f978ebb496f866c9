"""A real browser for the pages of real servers."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """The system's chromium: one for all tests, with a fresh profile for each page."""
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium")
    if program is None:
        pytest.skip("chromium is not installed (make system-packages)")
    with sync_playwright() as driver:
        # As root, as in a container, chromium cannot start its sandbox.
        opened = driver.chromium.launch(executable_path=program, chromium_sandbox=os.getuid() != 0)
        yield opened
        opened.close()
