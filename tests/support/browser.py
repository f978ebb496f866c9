"""A real browser for the pages of real servers: one for the whole suite, since a process can drive only one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

WAIT_MS = 60_000
FLAGS = (
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """The system's chromium: one for all tests, with a fresh profile for each page."""
    from playwright.sync_api import expect, sync_playwright

    program = os.environ.get("CROWDML_CHROMIUM") or shutil.which("chromium")
    if program is None:
        assert not os.environ.get("CROWDML_CI"), "chromium is not installed (make system-packages)"
        pytest.skip("chromium is not installed (make system-packages)")
    with sync_playwright() as driver:
        # As root, as in a container, chromium cannot start its sandbox.
        opened = driver.chromium.launch(executable_path=program, chromium_sandbox=os.getuid() != 0, args=list(FLAGS))
        # As long as a busy machine may need: whoever waits for what comes is not kept waiting.
        expect.set_options(timeout=WAIT_MS)
        yield opened
        opened.close()
