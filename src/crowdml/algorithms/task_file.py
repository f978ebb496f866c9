"""Reading a task file: TOML in, `Task` out, or one message that names line, key and what would be right."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from crowdml.algorithms.task import Task
from crowdml.algorithms.task_lines import find_line, key_places
from crowdml.core import BadInput
from crowdml.core.registry import nearest
from crowdml.core.settings import OneOf

Location = tuple[str | int, ...]
Where = Callable[[Location], str]


def load(path: Path, changes: Sequence[str] = ()) -> Task:
    """Read a task file, with changes such as `"algorithm.batch=10"` applied on top."""
    return parse(_read(path), str(path), changes)


def parse(source: str, name: str = "task", changes: Sequence[str] = ()) -> Task:
    """Read the text of a task file. `name` stands for it in messages."""
    try:
        content = tomllib.loads(source)
    except (tomllib.TOMLDecodeError, ValueError, RecursionError) as error:
        raise BadInput(f"not valid TOML: {error}", where=name) from None
    for change in changes:
        _apply(content, change)
    where = _finder(source, name, changes)
    try:
        with _placed(where):
            # Files spell keys with hyphens only.
            task = Task.model_validate(content, by_alias=True, by_name=False)
            task.check()
    except ValidationError as error:
        raise _explain(error, content, where) from None
    return task


@contextmanager
def located(path: Path, changes: Sequence[str] = ()) -> Iterator[None]:
    """Add file and line to errors that know only their key, for what comes to light after reading."""
    with _placed(_finder(_read(path), str(path), changes)):
        yield


@contextmanager
def _placed(where: Where) -> Iterator[None]:
    try:
        yield
    except BadInput as error:
        section = error.where.partition(".")[0]
        if error.where and section not in Task.model_fields:
            raise
        path = tuple(error.where.split(".")) if error.where else ()
        raise BadInput(error.what, where=where(path), hint=error.hint) from None


def _finder(source: str, name: str, changes: Sequence[str]) -> Where:
    """Return the function that spells out where a key stands: in a change, or on a line of the file."""
    changed = [_target(change) for change in changes]

    def where(path: Location) -> str:
        key = _spell(path)
        if any(key == own or key.startswith(own + ".") for own in changed):
            return f"--set {key}"
        made = [own for own in changed if own.startswith(key + ".")]
        line = find_line(source, path)
        if made and path not in key_places(source):
            return f"--set {made[0]}"
        return f"{name}, line {line}, {key}" if line else f"{name}, {key}" if key else name

    return where


def _target(change: str) -> str:
    return ".".join(part.strip() for part in change.partition("=")[0].split("."))


def _read(path: Path) -> str:
    try:
        return Path(path).read_bytes().decode()
    except FileNotFoundError:
        raise BadInput(f"there is no file {path}", hint="give the path of a task file, such as digits.toml") from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read: {error}") from None


def _apply(content: dict[str, Any], change: str) -> None:
    key, equals, text = change.partition("=")
    names = _target(change).split(".")
    if not equals or not all(names):
        raise BadInput(f'"{change}" is not a change', where="--set", hint="write it as section.key=value")
    table = content
    for name in names[:-1]:
        table = table.setdefault(name, {})
        if not isinstance(table, dict):
            raise BadInput(f"{name} is not a section", where=f"--set {key.strip()}")
    table[names[-1]] = _value(text.strip())


def _value(text: str) -> Any:
    """Read a value as TOML; a bare word is a string, so that the shell needs no second pair of quotes."""
    try:
        read = tomllib.loads(f"value = {text}")
    except (tomllib.TOMLDecodeError, ValueError, RecursionError):
        return text
    return read["value"] if len(read) == 1 else text


def _explain(error: ValidationError, content: dict[str, Any], where: Where) -> BadInput:
    """Turn the first of pydantic's complaints into one of ours."""
    first = min(error.errors(), key=lambda item: item["type"] == "missing")
    path, settings, field = _resolve(first["loc"], content)
    kind, context = first["type"], first.get("ctx", {})
    given = first["input"]
    if kind == "extra_forbidden":
        keys = [field.alias or name for name, field in settings.model_fields.items()] if settings else []
        return BadInput("unknown key", where=where(path), hint=nearest(str(path[-1]), keys))
    if kind == "union_tag_invalid":
        choices = [choice.strip(" '") for choice in str(context["expected_tags"]).split(",")]
        return BadInput(
            f'unknown kind "{context["tag"]}"', where=where((*path, "kind")), hint=nearest(str(context["tag"]), choices)
        )
    if kind == "union_tag_not_found":
        kinds = choice.registry if field and (choice := _choice(field)) else []
        return BadInput('the key "kind" is missing', where=where(path), hint="choose one of: " + ", ".join(kinds))
    if kind == "missing":
        return BadInput(f'the key "{path[-1]}" is missing', where=where(path[:-1]))
    if kind == "literal_error":
        choices = [choice.strip(" '") for choice in str(context["expected"]).replace(" or ", ",").split(",")]
        return BadInput(f"{given!r} is not possible here", where=where(path), hint=nearest(str(given), choices))
    if kind == "value_error":
        return BadInput(str(context["error"]), where=where(path))
    if kind == "int_type" and isinstance(given, float) and given.is_integer():
        return BadInput(f"should be a whole number, not {given}", where=where(path), hint=f"write {int(given)}")
    if kind == "model_type":
        return BadInput(f"should be a section, not {given!r}", where=where(path))
    return BadInput(f"{first['msg'].lower().replace('input ', '')}, not {given!r}", where=where(path))


def _resolve(location: Location, content: Any) -> tuple[Location, type[BaseModel] | None, FieldInfo | None]:
    """Drop the tags that pydantic puts into a location, and find settings class and field that were reading there."""
    path: list[str | int] = []
    settings: type[BaseModel] | None = Task
    field: FieldInfo | None = None
    at: Any = content
    for step in location:
        if isinstance(at, dict) and at.get("kind") == step and field is not None and (choice := _choice(field)):
            settings, field = choice.registry[str(step)], None
            continue
        if field is not None and isinstance(step, str):
            settings = _settings_of(field)
        path.append(step)
        if isinstance(step, str) and settings is not None:
            field = next((own for own in settings.model_fields.values() if own.alias == step), None)
        at = _step_into(at, step)
    return tuple(path), settings, field


def _choice(field: FieldInfo) -> OneOf | None:
    """Find the registry behind a field, whether it holds one entry or a list of them."""
    inner = (part for argument in get_args(field.annotation) for part in getattr(argument, "__metadata__", ()))
    return next((part for part in (*field.metadata, *inner) if isinstance(part, OneOf)), None)


def _settings_of(field: FieldInfo) -> type[BaseModel] | None:
    annotation: Any = field.annotation
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def _step_into(at: Any, step: str | int) -> Any:
    if isinstance(at, list) and isinstance(step, int):
        return at[step]
    return at.get(step) if isinstance(at, dict) else None


def _spell(path: Location) -> str:
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text
