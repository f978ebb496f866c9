"""Commands that pages of results print are commands: each goes through all checks, up to where something would run."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from crowdml.cli.app import app
from crowdml.studies import STUDIES

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("papers.md", "reproduce-others.md", "how-to/reproduce-a-figure.md")
GENERATED = ("papers.md", "reproduce-others.md")


class Reached(Exception):
    """All checks were passed: a study would run now."""


def printed(page: str) -> list[str]:
    """Find all commands of a page: between backticks, in brackets, or in blocks of their own."""
    text = (DOCS / page).read_text(encoding="utf-8")
    quoted = re.findall(r"`(crowdml [^`]+)`", text) + re.findall(r"\((crowdml [^`()]+)\)", text)
    blocks = "\n".join(re.findall(r"^```bash\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    lines = re.findall(r"^(crowdml [^#\n]+)", blocks, re.MULTILINE)
    return sorted({" ".join(found.split()) for found in (*quoted, *lines)})


def typed(command: str) -> list[str]:
    """Put names in the place of those that stand for any."""
    words = shlex.split(command.replace("…", "algorithm.tau=0.1"))[1:]
    known = {"ID": "slicenet/table6", "LABEL": "MNIST, FedAvg, IID", "FOLDER": "results", "FILE": "file.csv"}
    return [known.get(word, word) for word in words]


REPRODUCE = [(page, each) for page in PAGES for each in printed(page) if each.startswith("crowdml reproduce")]
OTHERS = [(page, each) for page in GENERATED for each in printed(page) if not each.startswith("crowdml reproduce")]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the records, and nothing that runs."""

    def reached(*_: object, **__: object) -> None:
        raise Reached

    shutil.copytree(DOCS.parent / "results", tmp_path / "results")
    monkeypatch.chdir(tmp_path)
    for name in ("reproduce", "search"):
        monkeypatch.setattr(f"crowdml.studies.{name}", reached)
    return tmp_path


@pytest.mark.parametrize(("where", "command"), REPRODUCE)
def test_what_is_printed_would_run(where: str, command: str, folder: Path) -> None:
    words = typed(command)
    before = {path: path.read_bytes() for path in folder.rglob("*.json")}
    ran = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(app, words)
    only_prints = "--recorded" in words or words == ["reproduce"]
    assert isinstance(ran.exception, Reached) or (only_prints and ran.exit_code == 0), (where, ran.output)
    assert {path: path.read_bytes() for path in folder.rglob("*.json")} == before


@pytest.mark.parametrize(("where", "command"), OTHERS)
def test_other_commands_exist_with_their_options(where: str, command: str) -> None:
    """These need files or a server: what is asked is whether there is such a command, and such an option."""
    found: Any = typer.main.get_command(app)  # a group has commands
    words = typed(command)
    while words and words[0] in getattr(found, "commands", {}):
        found = found.commands[words.pop(0)]
    assert not hasattr(found, "commands"), (where, command)
    known = {name for parameter in found.params for name in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known, (where, command)


def test_there_are_commands_on_each_page() -> None:
    for page in PAGES:
        assert [command for at, command in REPRODUCE if at == page], page
    niid = [command for page, command in REPRODUCE if page == "reproduce-others.md" and "external/niid" in command]
    assert any("--full" in command and "--record" in command for command in niid)


def test_notes_of_all_studies_name_searches_that_exist(folder: Path) -> None:
    """Also those of studies that have no record yet."""
    found = {
        " ".join(each.split())
        for study in STUDIES.values()
        for note in study.notes
        for each in re.findall(r"\((crowdml reproduce [^)]+)\)", note)
    }
    assert found
    for command in found:
        assert isinstance(CliRunner().invoke(app, typed(command)).exception, Reached), command
