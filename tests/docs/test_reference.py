"""The reference says what the code says."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from crowdml.core import Registry
from docs import generate
from docs.writers import python_api
from docs.writers.commands import CLI_INTRODUCTION, EXIT_CODES, cli_page
from docs.writers.http import http_page
from docs.writers.keys import registries, spell_key
from docs.writers.task_file import settings_classes, task_file_page


def test_generated_pages_have_not_drifted(capsys: pytest.CaptureFixture[str]) -> None:
    assert generate.main(["--check"]) == 0, capsys.readouterr().out


def test_drift_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(generate, "REFERENCE", tmp_path / "docs" / "reference")
    pages = {generate.REFERENCE / "cli.md": lambda: "what the code says\n"}
    monkeypatch.setattr(generate, "PAGES", pages)
    monkeypatch.setattr(generate, "RESULTS", tmp_path / "none")
    assert generate.main(["--check"]) == 1
    assert "docs/reference/cli.md" in capsys.readouterr().out
    assert generate.main([]) == 0
    assert generate.main(["--check"]) == 0
    (generate.REFERENCE / "cli.md").write_text("something else\n")
    assert generate.main(["--check"]) == 1 and generate.main([]) == 0
    left = tmp_path / "docs" / "images" / "papers" / "no-study.svg"
    left.parent.mkdir(parents=True)
    left.touch()
    capsys.readouterr()
    assert generate.main(["--check"]) == 1
    assert "docs/images/papers/no-study.svg belongs to no record" in capsys.readouterr().out
    assert generate.main([]) == 0 and not left.exists()


def test_an_unknown_argument_is_refused() -> None:
    assert generate.main(["--chek"]) == 2


def test_every_key_has_a_description_and_a_place() -> None:
    text = task_file_page()
    for settings in settings_classes():
        assert settings.__doc__, f"{settings.__name__} has no docstring"
        for name, field in settings.model_fields.items():
            if name == "kind":
                continue
            assert field.description, f"{settings.__name__}.{name} has no description"
            key = spell_key(name, field)
            assert f"`{key}`" in text or f"`[{key}]`" in text, name


def test_headings_spell_sections_as_a_file_does() -> None:
    headings = re.findall(r"^#{2,3} `\[?([^`\]]+)", task_file_page(), re.M)
    assert {"secure-aggregation", "crowd.owner-epsilon"} <= set(headings)
    assert not [heading for heading in headings if "_" in heading]


def test_every_kind_has_a_heading() -> None:
    from crowdml.data import DATASETS
    from crowdml.privacy import MECHANISMS
    from crowdml.task import Task

    text = task_file_page()
    found: list[Registry[Any]] = registries(Task)
    assert {"algorithm", "rate", "model", "layer", "transform", "partition"} <= {each.noun for each in found}
    for registry in found:
        assert f"### Kinds of {registry.noun}\n" in text
        for name in registry:
            assert f"#### `{name}`\n" in text, f"{registry.noun} {name}"
    for name in (*MECHANISMS, *DATASETS):
        assert f"| `{name}` |" in text


def test_every_command_and_option_is_documented() -> None:
    import typer

    from crowdml.cli.app import app

    text, seen = cli_page(), []

    def walk(command: Any, path: tuple[str, ...]) -> None:
        seen.append(path)
        title = f"## `{' '.join(('crowdml', *path))}`\n"
        assert title in text
        section = text.split(title)[1].split("\n## ")[0]
        assert command.help or command.short_help, f"{path} has no help"
        for option in command.params:
            for spelling in option.opts:
                assert spelling in section or option.param_type_name == "argument", f"{path} {spelling}"
            assert option.name == "help" or option.help, f"{path} {option.name} has no help"
        for name, child in getattr(command, "commands", {}).items():
            walk(child, (*path, name))

    walk(typer.main.get_command(app), ())
    assert {("demo",), ("simulate",), ("data", "list")} <= set(seen)


def test_every_route_and_refusal_is_documented() -> None:
    from crowdml.server.setup.framework import describe

    text = http_page()
    for path, methods in describe()["paths"].items():
        for method in methods:
            assert f"## `{method.upper()} {path}`\n" in text
    for code in ("stale", "invite-used", "releases-spent", "not-authorised", "too-large", "busy", "no-onnx"):
        assert f"| `{code}` |" in text


def test_every_public_name_and_what_it_offers_is_documented() -> None:
    import importlib
    import inspect

    text, homes = python_api.python_page(), python_api.public_names()
    assert sorted(homes) == sorted(name for names in python_api.GROUPS.values() for name in names)
    assert {"simulate", "Device", "CrowdClassifier"} <= set(homes)
    for name, module in homes.items():
        assert f"### `{module}.{name}`\n" in text
        thing = getattr(importlib.import_module(module), name)
        if inspect.isclass(thing):
            offered = {key: value for key, value in vars(thing).items() if not key.startswith("_")}
            routines = {key: value for key, value in offered.items() if inspect.isroutine(value)}
            methods = {key for key, value in routines.items() if value.__module__.startswith("crowdml.")}
            assert methods, name
            for method in methods:
                assert re.search(rf"^#### `{name}\.{method}(?:\(\))?`$", text, re.M), f"{name}.{method} says nothing"
    assert "| `CapReached` | `TermsViolated` |" in text


def test_every_variable_that_the_code_reads_is_documented(root: Path) -> None:
    page = (root / "docs" / "reference" / "environment.md").read_text(encoding="utf-8")
    code = "\n".join(path.read_text(encoding="utf-8") for path in (root / "src").rglob("*.py"))
    read = set(re.findall(r"\bCROWDML_[A-Z_]+", code)) | set(re.findall(r"[\"$]((?:XDG|MLFLOW)_[A-Z_]+)", code))
    assert len(read) > 5 and {name for name in read if f"| `{name}` |" not in page} == set()
    told = set(re.findall(r"^\| `([A-Z_]+)` \|", page, re.M))
    assert told == read, "a variable that nobody reads"


def test_every_exit_code_of_the_code_is_documented(root: Path) -> None:
    code = "\n".join(path.read_text(encoding="utf-8") for path in (root / "src").rglob("*.py"))
    ends = r"(?:typer\.Exit|sys\.exit|SystemExit|os\._exit)\(\s*"
    used = {int(number) for number in re.findall(rf"{ends}(?:0 if .*? else )?(\d+)", code)}
    used |= {int(number) for number in re.findall(r"^[A-Z_]*EXIT = (\d+)$", code, re.M)}
    assert used == set(EXIT_CODES) - ({0} - used), "documented in docs/writers/commands.py, or nobody ends with it"
    table = re.findall(r"^\| (\d+)[^|]* \|", CLI_INTRODUCTION, re.M)
    assert {int(number) for number in table} | {130} == set(EXIT_CODES)


def test_what_every_command_writes_as_json_is_documented(root: Path) -> None:
    import typer

    from crowdml.cli.app import app

    page = (root / "docs" / "reference" / "json.md").read_text(encoding="utf-8")
    runner, seen = CliRunner(), []

    def walk(command: Any, path: tuple[str, ...]) -> None:
        if any("--json" in option.opts for option in command.params):
            seen.append(path)
            assert re.search(rf"`crowdml {' '.join(path)}\b", page), (
                f"{' '.join(path)} writes JSON, and nobody says what"
            )
        for name, child in getattr(command, "commands", {}).items():
            walk(child, (*path, name))

    walk(typer.main.get_command(app), ())
    assert len(seen) > 15
    sliced = ["slice", str(root / "examples" / "sliced-digits.toml"), "--pieces", "3", "--leg", "0.1", "--json", "-"]
    for words in (["data", "list", "--json"], ["cache", "show", "--json"], sliced):
        found = json.loads(runner.invoke(app, words, prog_name="crowdml").stdout)
        row = re.search(
            rf"^\| `crowdml {' '.join(word for word in words[:2] if word.isalpha())}` \| (.*) \|$", page, re.M
        )
        assert row and {key for key in _keys(found) if f"`{key}`" not in row[1]} == set()


def _keys(found: Any) -> set[str]:
    """The keys of an object, or of those in a list."""
    return {key for each in found for key in each} if isinstance(found, list) else set(found)
