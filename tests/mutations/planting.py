"""A plugin of pytest that plants one bug of the list before any test runs: the environment names it."""

from __future__ import annotations

import os
from contextlib import ExitStack

import pytest

from tests.mutations.planted_bugs import BUGS

PLANTED = "CROWDML_PLANTED_BUG"
"""Names the bug; nothing is planted where it is not set."""
_stack = ExitStack()


def pytest_sessionstart(session: pytest.Session) -> None:
    """Plant it."""
    wanted = os.environ.get(PLANTED)
    for bug in BUGS:
        if bug.name == wanted:
            bug.plant(_stack)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Take it back."""
    _stack.close()
