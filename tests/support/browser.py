"""The system's chromium, for tests of pages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

from tests.support.web import missing

QUIET = ("--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync")


def open_browser() -> Iterator[Any]:
    """Yield a browser; skip where there is none."""
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium")
    if program is None:
        missing("chromium is not installed (make system-packages)")
    with sync_playwright() as driver:
        # As root, as in a container, chromium cannot start its sandbox.
        opened = driver.chromium.launch(
            executable_path=program, chromium_sandbox=os.getuid() != 0, args=[*QUIET, "--no-first-run"]
        )
        yield opened
        opened.close()
