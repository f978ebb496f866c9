"""Settings: the records a section of a task file becomes.

A settings class lists its keys as annotated fields with a `Field(description=...)`; the task file reader, the
error messages and the reference page all come from that one list. Python names have underscores, files have
hyphens.
"""

from __future__ import annotations

import unicodedata
from typing import Annotated, Any, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticKnownError, core_schema

from crowdml.core.registry import Registry


def kebab(name: str) -> str:
    """Spell a Python name as a key.

    >>> kebab("held_out")
    'held-out'
    """
    return name.replace("_", "-")


def _shown(text: str) -> str:
    """Refuse control characters: in a terminal they could hide what an owner is told, or write something else there."""
    found = next((letter for letter in text if unicodedata.category(letter) == "Cc" and letter not in "\n\t"), None)
    if found is not None:
        raise ValueError(f"the control character U+{ord(found):04X} is not for people to read: leave it out")
    return text


Shown = Annotated[str, AfterValidator(_shown)]
"""A text that owners are shown, as somebody else has written it."""


class Settings(BaseModel):
    """Base of all settings: frozen, strict about types, closed to unknown keys, finite numbers only."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        allow_inf_nan=False,
        alias_generator=kebab,
        validate_by_name=True,
        validate_by_alias=True,
        hide_input_in_errors=False,
    )


class OneOf:
    """Annotation for a field whose `kind` selects the settings class in a registry.

    `rate: Annotated[Rate, OneOf(RATES)]` accepts `{ kind = "inverse", c = 3.0 }` where RATES has "inverse".
    """

    def __init__(self, registry: Registry[type[Any]]) -> None:
        self.registry = registry

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Build a union tagged by `kind`."""
        choices: dict[Any, CoreSchema] = {name: handler.generate_schema(entry) for name, entry in self.registry.items()}
        return core_schema.tagged_union_schema(choices, discriminator="kind")


class NameIn:
    """Annotation for a field that names an entry of a registry; a wrong name is answered like that of a fixed choice.

    `loss: Annotated[str, NameIn(LOSSES)]` accepts `"softmax"` where LOSSES has it.
    """

    def __init__(self, registry: Registry[Any]) -> None:
        self.registry = registry

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Build a check against the names there are when a task is read."""
        return core_schema.no_info_plain_validator_function(self._known)

    def _known(self, name: Any) -> str:
        if not isinstance(name, str) or name not in self.registry:
            quoted = [f"'{known}'" for known in self.registry]
            raise PydanticKnownError("literal_error", {"expected": ", ".join(quoted)})
        return name


def rebuild(root: type[Settings], registry: Registry[Any]) -> None:
    """Let settings know an entry that was added to a registry: classes that name it are built anew, inner ones first.

    Args:
        root: The settings that everything is part of.
        registry: The registry that has grown.
    """
    known: dict[type[Settings], bool] = {}

    def depends(kind: type[Settings]) -> bool:
        if kind not in known:
            known[kind] = False  # classes that contain themselves are looked at once
            parts = [part for field in kind.model_fields.values() for part in _parts(field.annotation, field.metadata)]
            known[kind] = any([_depends_on(part) for part in parts])
            if known[kind]:
                kind.model_rebuild(force=True)
        return known[kind]

    def _depends_on(part: Any) -> bool:
        if not isinstance(part, OneOf):
            return depends(part)
        inner = [depends(entry) for entry in part.registry.values() if _is_settings(entry)]
        return part.registry is registry or any(inner)

    depends(root)


def _parts(annotation: Any, metadata: Any = ()) -> list[Any]:
    """List settings classes and choices in an annotation."""
    inner = [part for argument in get_args(annotation) for part in _parts(argument)]
    here = [annotation] if _is_settings(annotation) else []
    choices = [part for part in (*metadata, *getattr(annotation, "__metadata__", ())) if isinstance(part, OneOf)]
    return here + choices + inner


def _is_settings(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Settings)
