"""Reading a task file: TOML in, `Task` out, or one message that names line, key and what would be right."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from crowdml.algorithms.task import Task
from crowdml.algorithms.task_errors import BadKey, Location, spell
from crowdml.algorithms.task_lines import find_line, key_places
from crowdml.core import BadInput
from crowdml.core.validation import read_text

Where = Callable[[Location], str]


def load(path: Path, changes: Sequence[str] = (), change: str = "--set") -> Task:
    """Read a task file, with changes such as `"algorithm.batch=10"` applied on top.

    Args:
        path: The file.
        changes: What to change.
        change: What a change is called where it was made, for messages.
    """
    return parse(_read(path), str(path), changes, change)


def parse(source: str, name: str = "task", changes: Sequence[str] = (), change: str = "--set") -> Task:
    """Read the text of a task file. `name` stands for it in messages."""
    try:
        content = tomllib.loads(source)
    except (tomllib.TOMLDecodeError, ValueError, RecursionError) as error:
        raise BadInput(f"not valid TOML: {error}", where=name) from None
    for text in changes:
        _apply(content, text, change)
    with _placed(_finder(source, name, changes, change)):
        # Files spell keys with hyphens only.
        task = Task.model_validate(content, by_alias=True, by_name=False)
        task.check()
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
        if error.where and section not in Task.model_fields and not isinstance(error, BadKey):
            raise
        path: Location = tuple(error.where.split(".")) if error.where else ()
        if isinstance(error, BadKey):
            path = error.path
        raise BadInput(error.what, where=where(path), hint=error.hint) from None


def _finder(source: str, name: str, changes: Sequence[str], change: str = "--set") -> Where:
    """Return the function that spells out where a key stands: in a change, or on a line of the file."""
    changed = [_target(text) for text in changes]

    def where(path: Location) -> str:
        key = spell(path)
        if any(key == own or key.startswith((own + ".", own + "[")) for own in changed):
            return f"{change} {key}"
        made = [own for own in changed if own.startswith(key + ".")]
        line = find_line(source, path)
        if made and path not in key_places(source):
            return f"{change} {made[0]}"
        return f"{name}, line {line}, {key}" if line else f"{name}, {key}" if key else name

    return where


def _target(text: str) -> str:
    return ".".join(part.strip() for part in text.partition("=")[0].split("."))


def _read(path: Path) -> str:
    return read_text(Path(path), "give the path of a task file, such as digits.toml")


def _apply(content: dict[str, Any], text: str, change: str) -> None:
    key, equals, value = text.partition("=")
    names = _target(text).split(".")
    if not equals or not all(names):
        raise BadInput(f'"{text}" is not a change', where=change, hint="write it as section.key=value")
    table = content
    for name in names[:-1]:
        table = table.setdefault(name, {})
        if not isinstance(table, dict):
            raise BadInput(f"{name} is not a section", where=f"{change} {key.strip()}")
    table[names[-1]] = _value(value.strip())


def _value(text: str) -> Any:
    """Read a value as TOML; a bare word is a string, so that the shell needs no second pair of quotes."""
    try:
        read = tomllib.loads(f"value = {text}")
    except (tomllib.TOMLDecodeError, ValueError, RecursionError):
        return text
    return read["value"] if len(read) == 1 else text
