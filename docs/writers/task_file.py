"""The page of the task file: every section, every key, and every kind that a key may name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from crowdml.core import Registry
from crowdml.data import DATASETS
from crowdml.privacy import MECHANISMS
from crowdml.task import Task
from docs.writers.keys import classes, lead, nested_in, registries, registry_of, spell_key, table
from docs.writers.phrases import GENERATED, sentence

TASK_INTRODUCTION = """\
A task file is TOML. One file says what a crowd learns: data contract, model, algorithm, privacy terms, and the
simulated crowd. Every section below is a table of that file. Keys that have no default must be given. An unknown key
is an error, with the nearest known key as a hint. Any key can be changed for one run with `--set section.key=value`.

Numbers must be finite. A number with a fraction may be written without one (`c = 30`); a whole number may not have
one (`batch = 20.0` is refused)."""


def task_file_page() -> str:
    """Describe every key of a task file and every kind it may name."""
    parts = [GENERATED, "# Task file", TASK_INTRODUCTION]
    plain = {name: field for name, field in Task.model_fields.items() if not _section(field)}
    parts += ["## Top of the file", table(plain)]
    for name, field in Task.model_fields.items():
        if _section(field):
            parts += _section_parts(name, field)
    parts += ["## Kinds"]
    for registry in registries(Task):
        parts += _kind_parts(registry)
    parts += ["### Kinds of mechanism", _mechanisms(), "### Kinds of dataset", _datasets()]
    return "\n\n".join(parts) + "\n"


def settings_classes() -> Iterator[type[BaseModel]]:
    """Yield every settings class a task file can reach."""
    yield from classes(Task)
    for registry in registries(Task):
        yield from registry.values()


def _section(field: FieldInfo) -> bool:
    return registry_of(field) is not None or nested_in(field) is not None


def _section_parts(name: str, field: FieldInfo) -> list[str]:
    registry, nested, name = registry_of(field), nested_in(field), spell_key(name, field)
    parts = [f"## `[{name}]`"]
    if registry:
        link = f"[kinds of {registry.noun}](#kinds-of-{registry.noun})"
        parts.append(f"{sentence(field.description)}. Its keys depend on `kind`: see {link}.")
    if nested:
        parts += [lead(nested), table(nested.model_fields)]
        for inner_name, inner in nested.model_fields.items():
            if inner_class := nested_in(inner):
                parts += [
                    f"### `{name}.{spell_key(inner_name, inner)}`",
                    lead(inner_class),
                    table(inner_class.model_fields),
                ]
    return parts


def _kind_parts(registry: Registry[Any]) -> list[str]:
    parts = [f"### Kinds of {registry.noun}"]
    for name, entry in registry.items():
        fields = {key: field for key, field in entry.model_fields.items() if key != "kind"}
        parts += [f"#### `{name}`", lead(entry), table(fields) if fields else "No further keys."]
    return parts


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
        counts = f"{train} | {test} | {source.features} | {len(source.label_names) or 'a number'}"
        rows.append(f"| `{name}` | {counts} | {sentence(source.description)} |")
    return "\n".join(rows)
