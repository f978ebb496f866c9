"""Tables of keys: what a settings class says about each of its fields, in words."""

from __future__ import annotations

import inspect
import json
import types
import typing
from collections.abc import Iterator
from typing import Any

import annotated_types as at
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from crowdml.core import Registry
from crowdml.core.settings import NameIn, OneOf
from docs.writers.phrases import sentence

BASE_WORDS = {int: "whole number", float: "number", str: "text", bool: "`true` or `false`"}
NAMED = ("mechanism", "dataset")
"""Keys whose text is a name in a registry."""
LIMITS = {at.Gt: ("gt", "above"), at.Ge: ("ge", "at least"), at.Lt: ("lt", "below"), at.Le: ("le", "at most")}


def table(fields: dict[str, FieldInfo]) -> str:
    """Describe keys, a row each."""
    rows = ["| key | value | default | meaning |", "|---|---|---|---|"]
    for name, field in fields.items():
        default = "required" if field.is_required() else _default(field.default)
        cells = (f"`{spell_key(name, field)}`", _words(field), default, sentence(field.description))
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows)


def spell_key(name: str, field: FieldInfo) -> str:
    """Return a key as a file spells it."""
    return field.alias or name


def lead(cls: type) -> str:
    """Return the first paragraph of a docstring, on one line."""
    return " ".join((inspect.getdoc(cls) or "").split("\n\n")[0].split())


def _default(value: Any) -> str:
    if value is None:
        return "not given"
    if isinstance(value, BaseModel):
        given = value.model_dump(by_alias=True, exclude_defaults=True)
        kind = getattr(value, "kind", None)
        content = ({"kind": kind} if kind else {}) | given
        return (
            f"`{{ {', '.join(f'{key} = {_toml(part)}' for key, part in content.items())} }}`" if content else "as below"
        )
    return f"`{_toml(value)}`"


def _toml(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if not isinstance(value, float) else repr(value)


def _words(field: FieldInfo) -> str:
    registry = registry_of(field)
    if registry:
        link = f"[kind of {registry.noun}](#kinds-of-{registry.noun})"
        return f"list of tables, each a {link}" if typing.get_origin(field.annotation) is list else f"table, a {link}"
    if nested_in(field):
        return "table, see below"
    if field.alias in NAMED:
        return f"name of a [{field.alias}](#kinds-of-{field.alias})"
    return _type_words(field.annotation, field.metadata)


def _type_words(annotation: Any, metadata: list[Any] | tuple[Any, ...] = ()) -> str:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _type_words(arguments[0], [*_flat(arguments[1:]), *metadata])
    if origin in (types.UnionType, typing.Union):
        return " or ".join(_type_words(part, metadata) for part in arguments if part is not type(None))
    if names := next((item.registry for item in metadata if isinstance(item, NameIn)), None):
        return " or ".join(f"`{_toml(name)}`" for name in names)
    if origin is typing.Literal:
        return " or ".join(f"`{_toml(choice)}`" for choice in arguments)
    if origin is list:
        return f"list of {_type_words(arguments[0])}{_entries(metadata)}"
    if origin is dict:
        return f"table, {_type_words(arguments[1])} by name"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        keys = (
            f"`{spell_key(name, key)}` ({_type_words(key.annotation, key.metadata)}: {sentence(key.description)})"
            for name, key in annotation.model_fields.items()
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


def registry_of(field: FieldInfo) -> Registry[Any] | None:
    """Return the registry that a key names an entry of, if it does."""
    inner = (part for argument in typing.get_args(field.annotation) for part in getattr(argument, "__metadata__", ()))
    return next((part.registry for part in (*field.metadata, *inner) if isinstance(part, OneOf)), None)


def nested_in(field: FieldInfo) -> type[BaseModel] | None:
    """Return the settings class of a table inside a table, if it is one."""
    annotation: Any = field.annotation
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def classes(settings: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """Yield a settings class and all those inside it."""
    yield settings
    for field in settings.model_fields.values():
        if nested := nested_in(field):
            yield from classes(nested)


def registries(settings: type[BaseModel], inside: frozenset[int] = frozenset()) -> list[Registry[Any]]:
    """List the registries that a settings class reaches, each once, in the order of the file.

    Args:
        settings: The class.
        inside: Registries that are being looked at: an entry may hold entries of its own kind, such as layers.
    """
    found: dict[int, Registry[Any]] = {}
    for entry in classes(settings):
        for field in entry.model_fields.values():
            if (registry := registry_of(field)) is not None and id(registry) not in inside:
                found[id(registry)] = registry
                for entry in registry.values():
                    found |= {id(inner): inner for inner in registries(entry, inside | {id(registry)})}
    return list(found.values())
