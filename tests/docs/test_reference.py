"""The reference says what the code says."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from crowdml.core import Registry


@pytest.fixture(scope="module")
def generate() -> Any:
    path = Path(__file__).parents[2] / "docs" / "generate.py"
    spec = importlib.util.spec_from_file_location("docs_generate", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_pages_have_not_drifted(generate: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert generate.main(["--check"]) == 0, capsys.readouterr().out


def test_drift_is_named(
    generate: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generate, "REFERENCE", tmp_path / "docs" / "reference")
    pages = {generate.REFERENCE / "cli.md": lambda: "what the code says\n"}
    monkeypatch.setattr(generate, "PAGES", pages)
    assert generate.main(["--check"]) == 1
    assert "docs/reference/cli.md" in capsys.readouterr().out
    assert generate.main([]) == 0
    assert generate.main(["--check"]) == 0
    (generate.REFERENCE / "cli.md").write_text("something else\n")
    assert generate.main(["--check"]) == 1


def test_an_unknown_argument_is_refused(generate: Any) -> None:
    assert generate.main(["--chek"]) == 2


def test_every_key_has_a_description_and_a_place(generate: Any) -> None:
    text = generate.task_file_page()
    for settings in generate.settings_classes():
        assert settings.__doc__, f"{settings.__name__} has no docstring"
        for name, field in settings.model_fields.items():
            if name == "kind":
                continue
            assert field.description, f"{settings.__name__}.{name} has no description"
            assert f"`{generate.spell_key(name, field)}`" in text or f"`[{name}]`" in text, name


def test_every_kind_has_a_heading(generate: Any) -> None:
    from crowdml.algorithms import Task
    from crowdml.data import DATASETS
    from crowdml.privacy import MECHANISMS

    text = generate.task_file_page()
    registries: list[Registry[Any]] = generate._registries(Task)
    assert {"algorithm", "rate", "model", "layer", "transform", "partition"} <= {each.noun for each in registries}
    for registry in registries:
        assert f"### Kinds of {registry.noun}\n" in text
        for name in registry:
            assert f"#### `{name}`\n" in text, f"{registry.noun} {name}"
    for name in (*MECHANISMS, *DATASETS):
        assert f"| `{name}` |" in text


def test_every_command_and_option_is_documented(generate: Any) -> None:
    import typer

    from crowdml.cli.app import app

    text, seen = generate.cli_page(), []

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


def test_every_route_and_refusal_is_documented(generate: Any) -> None:
    from crowdml.server.framework import describe

    text = generate.http_page()
    for path, methods in describe()["paths"].items():
        for method in methods:
            assert f"## `{method.upper()} {path}`\n" in text
    for code in ("stale", "invite-used", "releases-spent", "not-authorised", "too-large", "busy", "no-onnx"):
        assert f"| `{code}` |" in text
