"""Reading a task file: TOML in, `Task` out, or one message that names line, key and what would be right."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from crowdml.algorithms.task import Task
from crowdml.algorithms.task_lines import find_line
from crowdml.core import BadInput
from crowdml.core.registry import nearest
from crowdml.core.settings import OneOf

Location = tuple[str | int, ...]


def load(path: Path, changes: Sequence[str] = ()) -> Task:
    """Read a task file, with changes such as `"algorithm.batch=10"` applied on top."""
    try:
        source = Path(path).read_bytes().decode()
    except FileNotFoundError:
        raise BadInput(f"there is no file {path}", hint="give the path of a task file, such as digits.toml") from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read: {error}") from None
    return parse(source, str(path), changes)


def parse(source: str, name: str = "task", changes: Sequence[str] = ()) -> Task:
    """Read the text of a task file. `name` stands for it in messages."""
    try:
        content = tomllib.loads(source)
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"not valid TOML: {error}", where=name) from None
    changed = {_apply(content, change) for change in changes}

    def where(path: Location) -> str:
        key = _spell(path)
        if any(key == own or key.startswith(own + ".") for own in changed):
            return f"--set {key}"
        line = find_line(source, path)
        return f"{name}, line {line}, {key}" if line else f"{name}, {key}" if key else name

    try:
        task = Task.model_validate(content)
        task.check()
    except ValidationError as error:
        raise _explain(error, content, where) from None
    except BadInput as error:
        path = tuple(error.where.split(".")) if error.where else ()
        raise BadInput(error.what, where=where(path), hint=error.hint) from None
    return task


def _apply(content: dict[str, Any], change: str) -> str:
    key, equals, text = change.partition("=")
    names = key.strip().split(".")
    if not equals or not all(names):
        raise BadInput(f'"{change}" is not a change', where="--set", hint="write it as section.key=value")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text  # a bare word is a string, so that the shell needs no second pair of quotes
    table = content
    for name in names[:-1]:
        table = table.setdefault(name, {})
        if not isinstance(table, dict):
            raise BadInput(f"{name} is not a section", where=f"--set {key}")
    table[names[-1]] = value
    return ".".join(names)


def _explain(error: ValidationError, content: dict[str, Any], where: Any) -> BadInput:
    """Turn the first of pydantic's complaints into one of ours."""
    first = min(error.errors(), key=lambda item: item["type"] == "missing")
    path, settings = _resolve(first["loc"], content)
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
        return BadInput("a kind is missing", where=where(path), hint='such as kind = "…"')
    if kind == "missing":
        return BadInput(f'the key "{path[-1]}" is missing', where=where(path[:-1]))
    if kind == "literal_error":
        choices = [choice.strip(" '") for choice in str(context["expected"]).replace(" or ", ",").split(",")]
        return BadInput(f"{given!r} is not possible here", where=where(path), hint=nearest(str(given), choices))
    if kind == "value_error":
        return BadInput(str(context["error"]), where=where(path))
    return BadInput(f"{first['msg'].lower().replace('input ', '')}, not {given!r}", where=where(path))


def _resolve(location: Location, content: Any) -> tuple[Location, type[BaseModel] | None]:
    """Drop the tags that pydantic puts into a location, and find the settings class that was reading there."""
    path: list[str | int] = []
    settings: type[BaseModel] | None = Task
    field: FieldInfo | None = None
    at: Any = content
    for step in location:
        if isinstance(at, dict) and at.get("kind") == step and field is not None and (choice := _choice(field)):
            settings, field = choice.registry[str(step)], None
            continue
        if field is not None and isinstance(step, str):
            settings = field.annotation if _is_settings(field.annotation) else None
        path.append(step)
        if isinstance(step, str) and settings is not None:
            field = next((own for own in settings.model_fields.values() if own.alias == step), None)
        at = at[step] if isinstance(at, list) or (isinstance(at, dict) and step in at) else None
    return tuple(path), settings


def _choice(field: FieldInfo) -> OneOf | None:
    """Find the registry behind a field, whether it holds one entry or a list of them."""
    inner = (part for argument in get_args(field.annotation) for part in getattr(argument, "__metadata__", ()))
    return next((part for part in (*field.metadata, *inner) if isinstance(part, OneOf)), None)


def _is_settings(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _spell(path: Location) -> str:
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text
