"""Variations: many tasks from one, by lists of values for some of its keys.

Another `kind` of algorithm, model or partition has other keys. Those that it does not have are left out, and the cell
says which; those that it has as well are kept, with a word where they were chosen for the other kind.
"""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from crowdml.core import BadInput, Registry, Settings, record
from crowdml.core.settings import OneOf
from crowdml.task.task import Task
from crowdml.task.task_errors import Location
from crowdml.task.task_file import (
    Where,
    apply_change,
    checked,
    finder,
    read_content,
    read_task_text,
    read_value,
    set_value,
)

TUNED = ("rate", "local-rate", "server-rate")
"""Keys whose best values differ from one algorithm to the next."""


@record
class Variation:
    """A key, and the values that it takes in turn.

    Attributes:
        key: Sections and key, as files spell them.
        values: Plain values.
    """

    key: str
    values: tuple[Any, ...]


@record
class Base:
    """A task before its keys are varied.

    Attributes:
        name: What it is called in labels.
        content: Its plain values.
        source: The text of its file; empty where it was made in Python.
        place: What it is called in messages.
        changes: What was changed in it, by what a change is called.
        folder: Where files lie that it names; None: their paths are whole.
    """

    name: str
    content: dict[str, Any]
    source: str
    place: str
    changes: dict[str, Sequence[str]]
    folder: Path | None = None


@record
class Cell:
    """One of the tasks.

    Attributes:
        label: Its name among the others.
        task: The task.
        settings: The varied keys and their values.
        notes: What was left out of it, and what was kept for want of something better.
        at: Which of the values of each variation it has, after the number of its base.
    """

    label: str
    task: Task
    settings: dict[str, Any]
    notes: tuple[str, ...]
    at: tuple[int, ...]


def read_base(task: Task | Path | str, changes: Sequence[str] = (), change: str = "--set") -> Base:
    """Take a task file, or a task, with changes on top."""
    if isinstance(task, Task):
        content = given(task)
        for text in changes:
            apply_change(content, text, change)
        return Base(name=task.name, content=content, source="", place=task.name, changes={change: changes})
    if not isinstance(task, str | Path):
        what = f"should be a Task or the path of a task file, not {type(task).__name__}"
        raise BadInput(what, where="task", hint="crowdml.Task.load(path), or the path itself")
    source = read_task_text(Path(task))
    content = read_content(source, str(task), changes, change)
    name = content.get("name")
    return Base(
        name=name if isinstance(name, str) else Path(task).stem,
        content=content,
        source=source,
        place=str(task),
        changes={change: changes},
        folder=Path(task).absolute().parent,
    )


def given(settings: Settings) -> dict[str, Any]:
    """Return the plain values that were given to settings, without defaults: those differ between kinds."""
    names = [name for name in type(settings).model_fields if name in settings.model_fields_set or name == "kind"]
    aliases = {name: str(field.alias or name) for name, field in type(settings).model_fields.items()}
    return {aliases[name]: _plain(getattr(settings, name)) for name in names if getattr(settings, name) is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, Settings):
        return given(value)
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    return value.item() if hasattr(value, "item") and getattr(value, "ndim", 1) == 0 else value


def read_variation(text: str, option: str = "--vary") -> Variation:
    """Read what a user types: `privacy.epsilon=1,8`; commas within brackets and quotes do not part values."""
    key, equals, values = text.partition("=")
    key = ".".join(part.strip() for part in key.split("."))
    if not equals or not all(key.split(".")):
        raise BadInput(f'"{text}" varies nothing', where=option, hint="write it as section.key=value,value")
    return make_variation(key, [read_value(value) for value in _parted(values)] if values.strip() else [], option)


def make_variation(key: str, values: Any, option: str = "vary") -> Variation:
    """Check the values of a key: there must be some, and each once."""
    where = f"{option} {key}"
    if not isinstance(key, str):
        raise BadInput(f"{key!r} is no key of a task", where=option, hint='such as "privacy.epsilon"')
    if isinstance(values, str | bytes | Mapping) or not hasattr(values, "__iter__"):
        raise BadInput(f"{values!r} is not a list of values", where=where, hint="such as [1.0, 8.0]")
    plain = [_plain(value) for value in values]
    if not plain or "" in plain:
        raise BadInput(
            "there is no value to try" if not plain else "there is an empty value",
            where=where,
            hint="give at least one, with commas between them",
        )
    try:
        spelled = [_spelled(value) for value in plain]
    except TypeError:
        raise BadInput(f"{values!r} holds what no task file can say", where=where, hint="such as [1.0, 8.0]") from None
    twice = [value for at, value in enumerate(spelled) if value in spelled[:at]]
    if twice:
        raise BadInput(f"{twice[0]} stands twice", where=where, hint="name every value once")
    return Variation(key=key, values=tuple(plain))


def make_cells(bases: Sequence[Base], varied: Sequence[Variation], option: str = "vary") -> list[Cell]:
    """Make a task for every base and every choice of values, checked; two that are called alike are numbered."""
    if not bases:
        raise BadInput("there is no task to run", where="task", hint="give a task file")
    twice = {each.key for at, each in enumerate(varied) if each.key in [other.key for other in varied[:at]]}
    if twice:
        raise BadInput("is varied twice", where=f"{option} {min(twice)}", hint="give all its values at once")
    names = _distinct([base.name for base in bases])
    cells = []
    for number, base in enumerate(bases):
        for places in itertools.product(*(range(len(each.values)) for each in varied)):
            chosen = [(each.key, each.values[at]) for each, at in zip(varied, places, strict=True)]
            words = ([names[number]] if len(bases) > 1 else []) + [_word(base, key, value) for key, value in chosen]
            cells.append(_cell(base, ", ".join(words) or names[number], chosen, (number, *places), option))
    return cells


def _cell(base: Base, label: str, chosen: Sequence[tuple[str, Any]], at: tuple[int, ...], option: str) -> Cell:
    content, notes = copy.deepcopy(base.content), list[str]()
    for key, value in chosen:
        notes += _vary(content, key, copy.deepcopy(value), f"{option} {key}")
    changes = {**base.changes, option: [f"{key}={value}" for key, value in chosen]}
    place = finder(base.source, base.place, changes)

    def where(path: Location) -> str:
        return f"{place(path)} (for {label})" if chosen else place(path)

    checking: Where = where
    try:
        task = checked(content, checking, base.folder)
    except BadInput as error:
        key = next((key for key, value in chosen if isinstance(value, list) and option.startswith("--")), "")
        if not key:
            raise
        hint = f"a list is one value; several have commas between them and no brackets: {option} {key}=1,2"
        raise BadInput(error.what, where=error.where, hint=hint) from None
    return Cell(label=label, task=task, settings=dict(chosen), notes=tuple(notes), at=at)


def _vary(content: dict[str, Any], key: str, value: Any, where: str) -> list[str]:
    """Set a key; where it chooses another kind, leave out what that does not have. Return what is to be said of it."""
    names = key.split(".")
    table = names[:-1] if names[-1] == "kind" else names
    kinds = _kinds_at(content, table)
    if kinds is None or not isinstance(value, str):
        set_value(content, names, value, where)
        return []
    try:
        settings = kinds[value]
    except BadInput as error:
        raise BadInput(error.what, where=where, hint=error.hint) from None
    before = _value_at(content, table)
    before = before if isinstance(before, dict) else {}
    if before.get("kind") == value:
        return []
    known = {str(field.alias or name) for name, field in settings.model_fields.items()}
    kept = {name: each for name, each in before.items() if name in known and name != "kind"}
    left = [name for name in before if name not in known]
    set_value(content, table, {"kind": value, **kept}, where)
    notes = []
    if left:
        notes.append(f"{value} has no {' and no '.join(left)}: left out")
    tuned = [name for name in kept if name in TUNED]
    if tuned and table == ["algorithm"]:
        notes.append(f"{value} keeps the {' and '.join(tuned)} chosen for {before.get('kind')}: it may want another")
    return notes


def _kinds_at(content: dict[str, Any], path: Sequence[str]) -> Registry[Any] | None:
    """Return the kinds that a table can have; None where it has none."""
    settings: Any = Task
    kinds: Registry[Any] | None = None
    table: Any = content
    for name in path:
        fields = settings.model_fields.values() if hasattr(settings, "model_fields") else ()
        field = next((field for field in fields if field.alias == name), None)
        if field is None:
            return None
        table = table.get(name) if isinstance(table, dict) else None
        kinds = next((part.registry for part in field.metadata if isinstance(part, OneOf)), None)
        settings = field.annotation
        if kinds is not None:
            settings = kinds.get(str(table.get("kind"))) if isinstance(table, dict) else None
    return kinds


def _value_at(content: Any, path: Sequence[str]) -> Any:
    for name in path:
        content = content.get(name) if isinstance(content, dict) else None
    return content


def _parted(text: str) -> list[str]:
    """Cut at commas that stand in no bracket and no quotes.

    >>> _parted("a, [1, 2], {c = 'x,y'}")
    ['a', '[1, 2]', "{c = 'x,y'}"]
    """
    parts, depth, quote = [""], 0, ""
    for sign in text:
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "\"'":
            quote = sign
        else:
            depth += (sign in "[{") - (sign in "]}")
        if sign == "," and depth <= 0 and not quote:
            parts.append("")
        else:
            parts[-1] += sign
    return [part.strip() for part in parts]


def _word(base: Base, key: str, value: Any) -> str:
    """Name a value in a label: a kind by itself, everything else behind its key."""
    names = key.split(".")
    if isinstance(value, str) and (names[-1] == "kind" or _kinds_at(base.content, names) is not None):
        return value
    if isinstance(value, dict) and "kind" in value:
        rest = ", ".join(f"{name} {_spelled(each)}" for name, each in value.items() if name != "kind")
        return f"{value['kind']} ({rest})" if rest else str(value["kind"])
    return f"{names[-1]} = {_spelled(value)}"


def _spelled(value: Any) -> str:
    if isinstance(value, float):
        short = f"{value:g}"
        return short if float(short) == value else repr(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _distinct(names: Sequence[str]) -> list[str]:
    """Number names that occur more than once."""
    return [
        f"{name} ({names[: at + 1].count(name)})" if names.count(name) > 1 else name for at, name in enumerate(names)
    ]
