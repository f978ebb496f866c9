"""crowdml cache: says what is kept, and takes it away."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from crowdml.cli.app import app
from crowdml.simulation.engine.program_cache import ProgramCache


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProgramCache:
    folder = tmp_path / "programs"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("CROWDML_PROGRAMS", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache = ProgramCache(folder=folder)
    cache.put("one", bytes(2000))
    return cache


def run(*arguments: str) -> str:
    ran = CliRunner().invoke(app, ["cache", *arguments])
    assert ran.exit_code == 0, ran.output
    return ran.output


def test_shows_what_is_kept_and_where(kept: ProgramCache) -> None:
    shown = json.loads(run("show", "--json"))
    assert shown["programs"]["folder"] == str(kept.folder)
    assert (shown["programs"]["entries"], shown["programs"]["bytes"]) == (1, 2032)
    assert shown["checkpoints"]["entries"] == 0
    assert "programs" in run("show")


def test_clears_programs(kept: ProgramCache) -> None:
    assert "1 compiled program taken away, 2.0 KiB" in run("clear")
    assert kept.entries() == []
    assert json.loads(run("clear", "--json")) == {"entries": 0, "bytes": 0}


def test_says_that_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CROWDML_PROGRAMS", "off")
    assert json.loads(run("show", "--json"))["programs"]["folder"] is None
    assert "off" in run("show")
