"""Settings: the records a section of a task file becomes.

A settings class lists its keys as annotated fields with a `Field(description=...)`; the task file reader, the
error messages and the reference page all come from that one list. Python names have underscores, files have
hyphens.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from crowdml.core.registry import Registry


def kebab(name: str) -> str:
    """Spell a Python name as a key.

    >>> kebab("held_out")
    'held-out'
    """
    return name.replace("_", "-")


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
        """Remember which registry decides."""
        self.registry = registry

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Build a union tagged by `kind`."""
        choices: dict[Any, CoreSchema] = {name: handler.generate_schema(entry) for name, entry in self.registry.items()}
        return core_schema.tagged_union_schema(choices, discriminator="kind")
