"""Write the reference pages that come from code: task file, commands, HTTP routes.

python docs/generate.py            writes the pages
python docs/generate.py --check    writes nothing, ends with 1 if a page differs from the code, and says which
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import annotated_types as at
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from crowdml.algorithms import Task
from crowdml.core import Registry
from crowdml.core.settings import OneOf
from crowdml.data import DATASETS
from crowdml.privacy import MECHANISMS

REFERENCE = Path(__file__).parent / "reference"
GENERATED = "<!-- Written by docs/generate.py from the code: `make docs` writes it anew. -->"

TASK_INTRODUCTION = """\
A task file is TOML. One file says what a crowd learns: data contract, model, algorithm, privacy terms, and the
simulated crowd. Every section below is a table of that file. Keys that have no default must be given. An unknown key
is an error, with the nearest known key as a hint. Any key can be changed for one run with `--set section.key=value`.

Numbers must be finite. A number with a fraction may be written without one (`c = 30`); a whole number may not have
one (`batch = 20.0` is refused)."""

CLI_INTRODUCTION = """\
What each command prints with `--help`. Exit code 0 means done, 2 means bad input (the message says what would be
right), 130 means interrupted."""

HTTP_INTRODUCTION = """\
What a server answers, from its own `/openapi.json`. Every request and every answer carries `Crowdml-Protocol: 1`.

*Device* and *operator* mean a header `Authorization: Bearer TOKEN` with a token of that kind; with the other kind there
is nothing to be found (404). A device's token opens its own task and its own entry, nothing else. Bodies are JSON
unless said otherwise. An answer of 503 or 429 says in `Retry-After` after how many seconds the same request may
succeed.

Pages for people: `/`, `/tasks/{task}`, `/join/{task}`."""

HTTP_ERRORS = """\
Every refusal has one shape; `hint` and further values, such as the present `version`, are there where they help.

```json
{"error": {"code": "stale", "message": "12 versions old: not used", "version": 40}}
```
"""

BASE_WORDS = {int: "whole number", float: "number", str: "text", bool: "`true` or `false`"}
NAMED = ("mechanism", "dataset")
"""Keys whose text is a name in a registry."""
LIMITS = {at.Gt: ("gt", "above"), at.Ge: ("ge", "at least"), at.Lt: ("lt", "below"), at.Le: ("le", "at most")}


def task_file_page() -> str:
    """Describe every key of a task file and every kind it may name."""
    parts = [GENERATED, "# Task file", TASK_INTRODUCTION]
    plain = {name: field for name, field in Task.model_fields.items() if not _section(field)}
    parts += ["## Top of the file", _table(plain)]
    for name, field in Task.model_fields.items():
        if _section(field):
            parts += _section_parts(name, field)
    parts += ["## Kinds"]
    for registry in _registries(Task):
        parts += _kind_parts(registry)
    parts += ["### Kinds of mechanism", _mechanisms(), "### Kinds of dataset", _datasets()]
    return "\n\n".join(parts) + "\n"


def cli_page() -> str:
    """Show the help of every command."""
    parts = [GENERATED, "# Commands", CLI_INTRODUCTION]
    for path, text in helps():
        parts += [f"## `{' '.join(('crowdml', *path))}`", f"```text\n{text}\n```"]
    return "\n\n".join(parts) + "\n"


def http_page() -> str:
    """Describe every route: who may call it, what it takes, what it answers."""
    from crowdml.server.framework import describe
    from crowdml.server.openapi import REFUSED

    schema = describe()
    routes = [(path, method, own) for path, methods in schema["paths"].items() for method, own in methods.items()]
    parts = [GENERATED, "# HTTP", HTTP_INTRODUCTION, "## Routes"]
    rows = ["| route | who | what |", "|---|---|---|"]
    for path, method, own in routes:
        rows.append(f"| `{method.upper()} {path}` | {_who(own)} | {own['summary']} |")
    parts.append("\n".join(rows))
    for path, method, own in routes:
        parts += [f"## `{method.upper()} {path}`", f"{own['summary']}. Who: {_who(own)}."]
        parts += [text for text in (own.get("description", ""), _inputs(own, schema), _answers(own, schema)) if text]
    usual = [f"| {status} | {text} |" for status, text in REFUSED.items()]
    parts += ["## Refusals", HTTP_ERRORS.strip(), "\n".join(["| status | meaning |", "|---|---|", *usual])]
    parts += ["What `code` and `message` may be:", refusals()]
    return "\n\n".join(parts) + "\n"


def _who(operation: dict[str, Any]) -> str:
    return " or ".join(name for own in operation.get("security", []) for name in own) or "anyone"


def _inputs(operation: dict[str, Any], schema: dict[str, Any]) -> str:
    """List parameters, headers and fields of the body."""
    rows = [
        (own["name"], own["in"], own["schema"], own.get("required", False), own.get("description", ""))
        for own in operation.get("parameters", [])
    ]
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        if kind != "application/json":
            rows.append(("body", kind, {}, True, "a message of exactly the expected size"))
            continue
        body = schema["components"]["schemas"][content["schema"]["$ref"].rpartition("/")[2]]
        for name, own in body["properties"].items():
            rows.append((name, "body", own, name in body.get("required", ()), own.get("description", "")))
    if not rows:
        return ""
    table = ["| name | in | value | meaning |", "|---|---|---|---|"]
    for name, place, own, required, text in rows:
        needed = "" if required else "; may be left out"
        table.append(f"| `{name}` | {place} | {_json_words(own)}{needed} | {_sentence(text)} |")
    return "\n".join(table)


def _json_words(own: dict[str, Any]) -> str:
    """Say what a JSON value may be."""
    if "anyOf" in own:
        return " or ".join(_json_words(choice) for choice in own["anyOf"] if choice.get("type") != "null")
    if "enum" in own:
        return " or ".join(f"`{value}`" for value in own["enum"])
    if own.get("type") == "array":
        return f"list of {_json_words(own['items'])}"
    words = {"integer": "whole number", "string": "text", "boolean": "`true` or `false`", "object": "table"}
    low, high = own.get("minimum"), own.get("maximum")
    limits = f" from {int(low)} to {int(high)}" if low is not None and high is not None else ""
    return words.get(own.get("type", ""), "bytes") + limits


def _answers(operation: dict[str, Any], schema: dict[str, Any]) -> str:
    """List what comes back: a sentence, and the fields where there are any; usual refusals by their numbers alone."""
    from crowdml.server.openapi import REFUSED

    rows, usual = [], []
    for status, own in sorted(operation["responses"].items()):
        if own["description"] == REFUSED.get(int(status)):
            usual.append(status)
            continue
        content: dict[str, Any] = own.get("content", {})
        reference = content.get("application/json", {}).get("schema", {}).get("$ref", "")
        text = own["description"]
        if status[0] == "2" and reference:
            answer = schema["components"]["schemas"][reference.rpartition("/")[2]]
            lead = answer.get("description", text) if text == "Successful Response" else text
            text = f"{lead.rstrip('.')}: {_fields(answer, schema)}"
        elif text == "Successful Response":
            text = ", ".join(f"`{kind}`" for kind in content) or "Done"
        rows.append(f"- **{status}**: {text}")
    rows += [f"- as [usual](#refusals): {', '.join(usual)}"] * bool(usual)
    return "\n".join(rows)


def _fields(answer: dict[str, Any], schema: dict[str, Any]) -> str:
    """Name the fields of an answer, those of tables inside it too."""
    names = []
    for name, own in answer["properties"].items():
        inner = own.get("items", own).get("$ref", "").rpartition("/")[2]
        inside = _fields(schema["components"]["schemas"][inner], schema) if inner else ""
        many = "a list, each with " * ("items" in own)
        names.append(f"`{name}`" + f" ({many}{inside})" * bool(inside))
    return ", ".join(names)


def refusals() -> str:
    """List every refusal that stands in the server's source, by status and code."""
    from crowdml.server import answers, coordinator

    found = {(status, code, text) for status, code, text, _ in coordinator._NOT_JOINED.values()}
    found |= {(status, code, "") for status, code in answers._KINDS.values()}
    for path in sorted(Path(answers.__file__).parent.rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Refusal":
                if len(call.args) == 3 and all(isinstance(own, ast.Constant) for own in call.args[:2]):
                    status, code = (typing.cast(ast.Constant, own).value for own in call.args[:2])
                    found.add((int(str(status)), str(code), _text(call.args[2])))
    by_code: dict[tuple[int, str], list[str]] = {}
    for status, code, text in sorted(found):
        by_code.setdefault((status, code), []).extend([text] * bool(text))
    rows = ["| status | code | message |", "|---|---|---|"]
    rows += [f"| {status} | `{code}` | {'; '.join(texts)} |" for (status, code), texts in by_code.items()]
    return "\n".join(rows)


def _text(message: ast.expr) -> str:
    """Write a message with an ellipsis where a value goes in."""
    if isinstance(message, ast.JoinedStr):
        return "".join(_text(own) for own in message.values)
    return str(message.value) if isinstance(message, ast.Constant) else "…"


def helps() -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the path of every command, and its help."""
    import typer
    from typer.testing import CliRunner

    from crowdml.cli.app import app

    def walk(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        yield path
        for name, child in getattr(command, "commands", {}).items():
            yield from walk(child, (*path, name))

    runner = CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1"})
    for path in walk(typer.main.get_command(app), ()):
        result = runner.invoke(app, [*path, "--help"], prog_name="crowdml")
        yield path, "\n".join(line.rstrip() for line in result.stdout.strip().splitlines())


def settings_classes() -> Iterator[type[BaseModel]]:
    """Yield every settings class a task file can reach."""
    yield from _classes(Task)
    for registry in _registries(Task):
        yield from registry.values()


def spell_key(name: str, field: FieldInfo) -> str:
    """Return a key as a file spells it."""
    return field.alias or name


def _section(field: FieldInfo) -> bool:
    return _registry(field) is not None or _nested(field) is not None


def _section_parts(name: str, field: FieldInfo) -> list[str]:
    registry, nested = _registry(field), _nested(field)
    parts = [f"## `[{name}]`"]
    if registry:
        link = f"[kinds of {registry.noun}](#kinds-of-{registry.noun})"
        parts.append(f"{_sentence(field.description)}. Its keys depend on `kind`: see {link}.")
    if nested:
        parts += [_lead(nested), _table(nested.model_fields)]
        for inner_name, inner in nested.model_fields.items():
            if inner_class := _nested(inner):
                parts += [f"### `{name}.{inner_name}`", _lead(inner_class), _table(inner_class.model_fields)]
    return parts


def _kind_parts(registry: Registry[Any]) -> list[str]:
    parts = [f"### Kinds of {registry.noun}"]
    for name, entry in registry.items():
        fields = {key: field for key, field in entry.model_fields.items() if key != "kind"}
        parts += [f"#### `{name}`", _lead(entry), _table(fields) if fields else "No further keys."]
    return parts


def _table(fields: dict[str, FieldInfo]) -> str:
    rows = ["| key | value | default | meaning |", "|---|---|---|---|"]
    for name, field in fields.items():
        default = "required" if field.is_required() else _default(field.default)
        cells = (f"`{spell_key(name, field)}`", _words(field), default, _sentence(field.description))
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows)


def _mechanisms() -> str:
    rows = ["| mechanism | norm of the bound | promise | perturbs |", "|---|---|---|---|"]
    for name, law in MECHANISMS.items():
        promise, what = "ε" if law.pure else "ε, δ", "counts" if law.integer else "gradients"
        rows.append(f"| `{name}` | L{law.order} | {promise} | {what} |")
    return "\n".join(rows)


def _datasets() -> str:
    rows = ["| dataset | training rows | test rows | features | labels | what |", "|---|---|---|---|---|---|"]
    for name, source in DATASETS.items():
        train, test = source.rows
        counts = f"{train} | {test} | {source.features} | {len(source.label_names)}"
        rows.append(f"| `{name}` | {counts} | {_sentence(source.description)} |")
    return "\n".join(rows)


def _lead(cls: type) -> str:
    return " ".join((inspect.getdoc(cls) or "").split("\n\n")[0].split())


def _sentence(text: str | None) -> str:
    """Write all descriptions alike: a capital first, no full stop."""
    text = (text or "").rstrip(".")
    return text[:1].upper() + text[1:] if text[:1].isascii() else text


def _default(value: Any) -> str:
    if value is None:
        return "not given"
    if isinstance(value, BaseModel):
        given = value.model_dump(by_alias=True, exclude_defaults=True)
        kind = getattr(value, "kind", None)
        content = ({"kind": kind} if kind else {}) | given
        return (
            f"`{{ {', '.join(f'{key} = {_toml(own)}' for key, own in content.items())} }}`" if content else "as below"
        )
    return f"`{_toml(value)}`"


def _toml(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if not isinstance(value, float) else repr(value)


def _words(field: FieldInfo) -> str:
    registry = _registry(field)
    if registry:
        link = f"[kind of {registry.noun}](#kinds-of-{registry.noun})"
        return f"list of tables, each a {link}" if typing.get_origin(field.annotation) is list else f"table, a {link}"
    if _nested(field):
        return "table, see below"
    if field.alias in NAMED:
        return f"name of a [{field.alias}](#kinds-of-{field.alias})"
    return _type_words(field.annotation, field.metadata)


def _type_words(annotation: Any, metadata: list[Any] | tuple[Any, ...] = ()) -> str:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _type_words(arguments[0], [*_flat(arguments[1:]), *metadata])
    if origin in (types.UnionType, typing.Union):
        return " or ".join(_type_words(own, metadata) for own in arguments if own is not type(None))
    if origin is typing.Literal:
        return " or ".join(f"`{_toml(choice)}`" for choice in arguments)
    if origin is list:
        return f"list of {_type_words(arguments[0])}{_entries(metadata)}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        keys = (
            f"`{spell_key(name, own)}` ({_type_words(own.annotation, own.metadata)}: {_sentence(own.description)})"
            for name, own in annotation.model_fields.items()
        )
        return f"table of {', '.join(keys)}"
    return BASE_WORDS[annotation] + _limits(metadata)


def _flat(metadata: tuple[Any, ...]) -> Iterator[Any]:
    for item in metadata:
        yield from item.metadata if isinstance(item, FieldInfo) else [item]


def _limits(metadata: list[Any] | tuple[Any, ...]) -> str:
    words = [
        f"{word} {getattr(item, attribute)}"
        for item in metadata
        for kind, (attribute, word) in LIMITS.items()
        if isinstance(item, kind)
    ]
    words += [f"a multiple of {item.multiple_of}" for item in metadata if isinstance(item, at.MultipleOf)]
    return " " + " and ".join(words) if words else ""


def _entries(metadata: list[Any] | tuple[Any, ...]) -> str:
    low = next((item.min_length for item in metadata if isinstance(item, at.MinLen)), None)
    high = next((item.max_length for item in metadata if isinstance(item, at.MaxLen)), None)
    if low is not None and low == high:
        return f", exactly {low}"
    return f", at least {low}" if low else ""


def _registry(field: FieldInfo) -> Registry[Any] | None:
    inner = (part for argument in typing.get_args(field.annotation) for part in getattr(argument, "__metadata__", ()))
    return next((part.registry for part in (*field.metadata, *inner) if isinstance(part, OneOf)), None)


def _nested(field: FieldInfo) -> type[BaseModel] | None:
    annotation: Any = field.annotation
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def _classes(settings: type[BaseModel]) -> Iterator[type[BaseModel]]:
    yield settings
    for field in settings.model_fields.values():
        if nested := _nested(field):
            yield from _classes(nested)


def _registries(settings: type[BaseModel]) -> list[Registry[Any]]:
    """List the registries that a settings class reaches, each once, in the order of the file."""
    found: dict[int, Registry[Any]] = {}
    for own in _classes(settings):
        for field in own.model_fields.values():
            if (registry := _registry(field)) is not None:
                found[id(registry)] = registry
                for entry in registry.values():
                    found |= {id(inner): inner for inner in _registries(entry)}
    return list(found.values())


PAGES = {
    REFERENCE / "task-file.md": task_file_page,
    REFERENCE / "cli.md": cli_page,
    REFERENCE / "http.md": http_page,
}


def main(arguments: list[str]) -> int:
    """Write the pages, or compare them with the code."""
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    stale = 0
    for path, make in PAGES.items():
        text = make()
        if arguments:
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                print(f"{path.relative_to(REFERENCE.parent.parent)} differs from the code; run: make docs")
                stale = 1
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return stale


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
