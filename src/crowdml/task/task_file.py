"""Reading a task file: TOML in, `Task` out, or one message that names line, key and what would be right.

The standard reader does not tell on which line a key stands. A scanner finds it in the source, which `tomllib` has read
before, so it is valid: the scanner only has to know where strings, comments, tables and arrays begin and end.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from crowdml.core import BadInput
from crowdml.core.files import read_text
from crowdml.task.plugins import load_plugins
from crowdml.task.task import Task
from crowdml.task.task_checks import check
from crowdml.task.task_errors import BadKey, Location, spell

Where = Callable[[Location], str]

INSTEAD = {"crowd.rounds": "passes", "crowd.passes": "rounds"}
"""A change of the one takes the place of the other."""

SECTIONS = tuple(str(field.alias) for field in Task.model_fields.values())
"""The sections and keys at the top of a file, as files spell them."""

_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}'
    r"|'''.*?'{3,5}"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_SCALAR = re.compile(r"[^,\]}\n#]*")


def load(path: Path, changes: Sequence[str] = (), change: str = "--set") -> Task:
    """Read a task file, with changes such as `"algorithm.batch=10"` applied on top.

    Args:
        path: The file.
        changes: What to change.
        change: What a change is called where it was made, for messages.
    """
    return parse(read_task_text(path), str(path), changes, change, Path(path).absolute().parent)


def parse(
    source: str, name: str = "task", changes: Sequence[str] = (), change: str = "--set", folder: Path | None = None
) -> Task:
    """Read the text of a task file.

    Args:
        source: The text.
        name: Stands for it in messages.
        changes: What to change.
        change: What a change is called where it was made, for messages.
        folder: Where files lie that it names; not given: their paths stay as they are.
    """
    return checked(read_content(source, name, changes, change), finder(source, name, {change: changes}), folder)


def read_content(source: str, name: str, changes: Sequence[str] = (), change: str = "--set") -> dict[str, Any]:
    """Read the text of a task file as plain values, with changes on top; nothing is checked yet."""
    load_plugins()
    try:
        content = tomllib.loads(source)
    except (tomllib.TOMLDecodeError, ValueError, RecursionError) as error:
        raise BadInput(f"not valid TOML: {error}", where=name) from None
    for text in changes:
        apply_change(content, text, change)
    return content


def checked(content: dict[str, Any], where: Where, folder: Path | None = None) -> Task:
    """Make a task of plain values, or say what is wrong with them, and where that stands.

    Args:
        content: The values.
        where: Says where a key stands.
        folder: Where files lie that it names; not given: their paths stay as they are.
    """
    with _placed(where), computable():
        _find_files(content, folder)
        # Files spell keys with hyphens only.
        task = Task.model_validate(content, by_alias=True, by_name=False)
        check(task)
    return task


@contextmanager
def computable() -> Iterator[None]:
    """Refuse a task whose numbers are too large to work with, whichever they are."""
    try:
        yield
    except (MemoryError, OverflowError):
        raise BadInput(
            "numbers of this task are so large that it cannot be worked out",
            where="model",
            hint="fewer features, smaller layers, a smaller batch or fewer releases",
        ) from None


@contextmanager
def located(path: Path, changes: Sequence[str] = ()) -> Iterator[None]:
    """Add file and line to errors that know only their key, for what comes to light after reading."""
    with _placed(finder(read_task_text(path), str(path), {"--set": changes})):
        yield


@contextmanager
def _placed(where: Where) -> Iterator[None]:
    try:
        yield
    except BadInput as error:
        section = error.where.partition(".")[0]
        if error.where and section not in SECTIONS and not isinstance(error, BadKey):
            raise
        path: Location = tuple(error.where.split(".")) if error.where else ()
        if isinstance(error, BadKey):
            path = error.path
        raise BadInput(error.what, where=where(path), hint=error.hint) from None


def finder(source: str, name: str, changes: Mapping[str, Sequence[str]]) -> Where:
    """Return the function that spells out where a key stands: in a change, or on a line of the file.

    Args:
        source: The text of the file.
        name: What the file is called in messages.
        changes: What was changed, by what a change is called where it was made; later ones count.
    """
    changed = {_target(text): change for change, texts in changes.items() for text in texts}

    def where(path: Location) -> str:
        key = spell(path)
        for target, change in changed.items():
            if key == target or key.startswith((target + ".", target + "[")):
                return f"{change} {key}"
        made = [target for target in changed if target.startswith(key + ".")]
        line = find_line(source, path)
        if made and path not in key_places(source):
            return f"{changed[made[0]]} {made[0]}"
        return f"{name}, line {line}, {key}" if line else f"{name}, {key}" if key else name

    return where


def _target(text: str) -> str:
    return ".".join(part.strip() for part in text.partition("=")[0].split("."))


def read_task_text(path: Path) -> str:
    """Read the text of a task file."""
    return read_text(Path(path), "give the path of a task file, such as digits.toml")


def apply_change(content: dict[str, Any], text: str, change: str) -> None:
    """Make a change such as `algorithm.batch=10` in the plain values of a task.

    Args:
        content: The values.
        text: The change.
        change: What it is called where it was made, for messages.
    """
    if not isinstance(text, str):
        raise BadInput(f"{text!r} is not a change", where=change.rstrip(":"), hint="write it as section.key=value")
    key, equals, value = text.partition("=")
    names = _target(text).split(".")
    if not equals or not all(names):
        raise BadInput(f'"{text}" is not a change', where=change.rstrip(":"), hint="write it as section.key=value")
    set_value(content, names, read_value(value.strip()), f"{change} {key.strip()}")


def set_value(content: dict[str, Any], names: Sequence[str], value: Any, where: str) -> None:
    """Put a value at a key; of two keys that say the same thing the one that is set now counts.

    Args:
        content: The plain values of a task.
        names: Sections and key.
        value: The value.
        where: Where it was given, for messages.
    """
    table = content
    for name in names[:-1]:
        table = table.setdefault(name, {})
        if not isinstance(table, dict):
            raise BadInput(f"{name} is not a section", where=where)
    table[names[-1]] = value
    table.pop(INSTEAD.get(".".join(names), ""), None)


def _find_files(content: dict[str, Any], folder: Path | None) -> None:
    """Take paths of the user's own rows from the task file's folder on."""
    data = content.get("data")
    if folder is not None and isinstance(data, dict):
        for key in ("file", "test"):
            if isinstance(data.get(key), str) and data[key]:
                data[key] = str(folder / Path(data[key]).expanduser())
        if isinstance(data.get("words"), str):
            data["words"] = _read_words(folder / Path(data["words"]).expanduser())


def _read_words(path: Path) -> dict[str, Any]:
    """Read the words of columns from a file of their own: they are signed with the rest of the task."""
    try:
        return tomllib.loads(read_text(path, "crowdml data words FILE writes the words of your columns"))
    except (tomllib.TOMLDecodeError, ValueError, RecursionError) as error:
        raise BadInput(
            f"{path} is not valid TOML: {error}", where="data.words", hint='a line for each column: sex = ["f", "m"]'
        ) from None


def read_value(text: str) -> Any:
    """Read a value as TOML; a bare word is a string, so that the shell needs no second pair of quotes."""
    try:
        read = tomllib.loads(f"value = {text}")
    except (tomllib.TOMLDecodeError, ValueError, RecursionError):
        return text
    return read["value"] if len(read) == 1 else text


def find_line(source: str, path: Location) -> int | None:
    r"""Return the line, from 1, where a key stands, or where the nearest section around it begins.

    >>> find_line("[data]\nfeatures = 3\n", ("data", "features"))
    2
    """
    places = key_places(source)
    for length in range(len(path), 0, -1):
        if path[:length] in places:
            return source.count("\n", 0, places[path[:length]]) + 1
    return None


def key_places(source: str) -> dict[Location, int]:
    """Return where every key, section and array element begins, as offsets into the source."""
    return _Scanner(source).places


class _Scanner:
    """Walks through a document once and notes where every key, section and array element begins."""

    def __init__(self, source: str) -> None:
        self.source, self.at = source, 0
        self.places: dict[Location, int] = {}
        self._repeats: dict[Location, int] = {}
        section: Location = ()
        self._skip()
        while self.at < len(source):
            if source[self.at] == "[":
                section = self._header()
            else:
                self._pair(section)
            self._skip()

    def _skip(self) -> None:
        found = _SPACE.match(self.source, self.at)
        self.at = found.end() if found else self.at

    def _header(self) -> Location:
        start, repeated = self.at, self.source.startswith("[[", self.at)
        self.at += 2 if repeated else 1
        name = self._key()
        self.at = self.source.index("]", self.at) + (2 if repeated else 1)
        section = self._under_repeats(name[:-1]) + name[-1:]
        if repeated:
            index = self._repeats.get(section, -1) + 1
            self._repeats[section] = index
            self.places.setdefault(section, start)
            section = (*section, index)
        self.places.setdefault(section, start)
        return section

    def _under_repeats(self, name: Location) -> Location:
        """Put the index of the last `[[section]]` into the path of what follows it."""
        path: Location = ()
        for step in name:
            path = (*path, step)
            if path in self._repeats:
                path = (*path, self._repeats[path])
        return path

    def _pair(self, section: Location) -> None:
        start = self.at
        path = section + self._key()
        self.places.setdefault(path, start)
        self.at = self.source.index("=", self.at) + 1
        self._value(path)

    def _key(self) -> Location:
        steps: list[str] = []
        while True:
            self._skip()
            found = _STRING.match(self.source, self.at) or _BARE.match(self.source, self.at)
            if found is None:
                return tuple(steps)
            steps.append(found.group().strip("\"'"))
            self.at = found.end()
            self._skip()
            if self.source[self.at : self.at + 1] != ".":
                return tuple(steps)
            self.at += 1

    def _value(self, path: Location) -> None:
        self._skip()
        mark = self.source[self.at : self.at + 1]
        if mark == "[":
            self._array(path)
        elif mark == "{":
            self._table(path)
        else:
            found = _STRING.match(self.source, self.at) or _SCALAR.match(self.source, self.at)
            self.at = found.end() if found else len(self.source)

    def _array(self, path: Location) -> None:
        self.at += 1
        index = 0
        while not self._closes("]"):
            self.places.setdefault((*path, index), self.at)
            self._value((*path, index))
            index += 1

    def _table(self, path: Location) -> None:
        self.at += 1
        while not self._closes("}"):
            self._pair(path)

    def _closes(self, mark: str) -> bool:
        """Step over a comma, and over the closing mark if it is there."""
        self._skip()
        if self.source[self.at : self.at + 1] == ",":
            self.at += 1
            self._skip()
        closed = self.source[self.at : self.at + 1] == mark
        self.at += closed
        return closed
