"""Commands as a user types them, in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from crowdml.cli import main


@pytest.fixture
def run(
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., tuple[int, str, str]]:
    """Run a command in a folder of its own; return its exit code, output and messages."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setenv("COLUMNS", "120")

    def ran(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["crowdml", *arguments])
        try:
            main()
            code = 0
        except SystemExit as ended:
            code = int(ended.code or 0)
        return code, *capsys.readouterr()

    return ran
