"""What was typed into the form of a new task, as a task file; and at which field something is wrong.

A field is a key. What is left empty is left out of the file, and so is a proposal that nobody changed where the chosen
kind does not know its key. Nothing is checked here: `written` makes the plain values of a task file, whoever reads
those files says what is wrong, by the key, and `place` finds the field.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from crowdml.core import BadInput, Registry
from crowdml.models import MODELS
from crowdml.server.pages.operator.task_fields import FURTHER, Field, fields
from crowdml.task.task import ALGORITHMS
from crowdml.task.task_file import apply_change, read_value, set_value

_MISSING = re.compile(r'the key "([^"]+)" is missing')


def written(typed: Mapping[str, str]) -> dict[str, Any]:
    """Make the plain values of a task file of what was typed, by key."""
    content: dict[str, Any] = {"crowdml": 1, "data": {}, "model": {}, "algorithm": {}, "privacy": {}}
    for field in fields():
        text = typed.get(field.key, "").strip()
        if field.key != FURTHER and text and not (text == field.proposal and _foreign(field.key, typed)):
            set_value(content, field.key.split("."), _value(field, text), field.key)
    for line in typed.get(FURTHER, "").splitlines():
        if line.strip():
            try:
                apply_change(content, line.strip(), FURTHER)
            except BadInput as error:
                raise BadInput(error.what, where=FURTHER, hint=error.hint) from None
    return {key: value for key, value in content.items() if value != {} or key in ("data", "privacy")}


def place(error: BadInput, typed: Mapping[str, str]) -> str:
    """Return the key of the field that an error is about; where there is none, that of its section, or of all others.

    Args:
        error: What is wrong; its `where` is a key.
        typed: What was typed.
    """
    known, key = [field.key for field in fields()], error.where
    if missing := _MISSING.fullmatch(error.what):
        key = f"{key}.{missing[1]}".lstrip(".")
    changed = [line.partition("=")[0].strip() for line in typed.get(FURTHER, "").splitlines()]
    if key == FURTHER or any(_covers(change, key) for change in changed if change):
        return FURTHER
    at_or_above = [name for name in known if _covers(name, key)]
    if at_or_above:
        return max(at_or_above, key=len)
    # An error about a whole section names what it is about in its words, as a rule.
    below = [name for name in known if _covers(key, name)]
    named = [name for name in below if re.search(rf"\b{re.escape(name.rpartition('.')[2])}\b", error.what)]
    section = [name for name in known if key and name.partition(".")[0] == key.partition(".")[0]]
    return next(iter([*named, *below, *section]), known[0] if not key else FURTHER)


def _covers(above: str, key: str) -> bool:
    return key == above or key.startswith((f"{above}.", f"{above}["))


def _value(field: Field, text: str) -> Any:
    if field.kind == "lines":
        return [line.strip() for line in text.splitlines() if line.strip()]
    return read_value(text.replace("\n", " ")) if field.kind in ("number", "toml") else text


def _foreign(key: str, typed: Mapping[str, str]) -> bool:
    """Tell whether a key is not one of the chosen kind, or of no use beside what was chosen."""
    section, _, rest = key.partition(".")
    if section == "privacy" and typed.get("privacy.mode") == "none":
        return key not in ("privacy.mode", "privacy.unit")
    if section in ("algorithm", "model"):
        kinds: Registry[type[Any]] = ALGORITHMS if section == "algorithm" else MODELS
        chosen = kinds.get(typed.get(f"{section}.kind", ""))
        return chosen is not None and rest.partition(".")[0] not in _keys(chosen)
    return False


def _keys(settings: type[BaseModel]) -> set[str]:
    return {field.alias or name for name, field in settings.model_fields.items()}


def to_toml(content: Mapping[str, Any]) -> str:
    r"""Write plain values as a task file.

    >>> print(to_toml({"crowdml": 1, "data": {"labels": ["a", "b"], "target": {"low": 0.5}}}))
    crowdml = 1
    <BLANKLINE>
    [data]
    labels = ["a", "b"]
    target = { low = 0.5 }
    <BLANKLINE>
    """
    tables = {name: value for name, value in content.items() if isinstance(value, Mapping)}
    lines = [f"{_key(name)} = {_inline(value)}" for name, value in content.items() if name not in tables]
    for name, table in tables.items():
        lines += ["", f"[{_key(name)}]", *(f"{_key(key)} = {_inline(value)}" for key, value in table.items())]
    return "\n".join([*lines, ""])


def _inline(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {_inline(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_inline, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return _string(value) if isinstance(value, str) else str(value)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _string(name)


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
