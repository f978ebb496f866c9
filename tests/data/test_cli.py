"""The `data` commands: what they print and how they end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from crowdml.cli.data import app
from crowdml.core import BadInput
from crowdml.data import DATASETS


def run(*words: str) -> str:
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_list_as_json_has_every_dataset(empty_machine: Path) -> None:
    entries = {entry["name"]: entry for entry in json.loads(run("list", "--json"))}
    assert list(entries) == list(DATASETS)
    assert entries["digits"]["present"] and not entries["mnist"]["present"]
    assert entries["mnist"]["folder"] is None and entries["mnist"]["features"] == 784


def test_list_as_a_table(empty_machine: Path) -> None:
    table = run("list")
    assert "fashion-mnist" in table and "missing" in table and "present" in table


def test_verify_refuses_corrupt_and_incomplete_datasets(empty_machine: Path) -> None:
    assert run("verify") == ""
    with pytest.raises(BadInput, match="missing"):
        run("verify", "adult")
    folder = empty_machine / "adult"
    folder.mkdir(parents=True)
    for name in ("adult.data", "adult.test"):
        (folder / name).write_bytes(b"nothing")
    with pytest.raises(BadInput, match=r"adult\.data is corrupt, and 1 more"):
        run("verify")
    with pytest.raises(BadInput, match="crowdml data get adult"):
        run("verify", "adult")


def test_get_says_why_not(empty_machine: Path) -> None:
    with pytest.raises(BadInput, match="nothing to fetch"):
        run("get", "digits")
    with pytest.raises(BadInput, match="did you mean"):
        run("get", "mnits")


def test_help_teaches() -> None:
    assert "[data]" in run("list", "--help") and "checksum" in run("get", "--help")
