"""The page of Python names: what `crowdml` and `crowdml.sklearn` offer, as their docstrings say it."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from pydantic import BaseModel

from crowdml.core import errors
from docs.writers.phrases import GENERATED

INTRODUCTION = """\
What `import crowdml` offers, and the estimators of `crowdml.sklearn`. Sections and keys of a `Task` are those of the
[task file](task-file.md). Names that begin with an underscore, and modules not on this page, may change without
notice; what extensions may rely on is under [extensions](extensions.md). Heavy things such as JAX are imported when a
name that needs them is first asked for."""

MODULES = ("crowdml", "crowdml.sklearn")

GROUPS = {
    "Simulate": ("Task", "simulate", "Result", "compare", "sweep", "Comparison"),
    "Data": ("Dataset",),
    "Models of your own": ("JaxModel", "FlaxModel", "EquinoxModel", "TorchModel", "TrainingLoop", "save_start"),
    "Take part": ("Device", "Ledger"),
    "Extend": ("register",),
    "scikit-learn": ("CrowdClassifier", "CrowdRegressor"),
    "The package": ("__version__",),
}
"""All public names, in the order of the page."""

ERRORS = """\
All are `crowdml.core.errors.CrowdError`. A mistake in a program stays `ValueError` or `TypeError`. What messages
usually mean stands under [read errors](../how-to/read-errors.md)."""

SECTIONS = ("Args", "Attributes", "Returns", "Raises", "Yields", "Guarantee", "Parameters")
LINE = 100


def python_page() -> str:
    """Describe every public name."""
    homes = public_names()
    parts = [GENERATED, "# Python", INTRODUCTION]
    for heading, names in GROUPS.items():
        parts.append(f"## {heading}")
        for name in names:
            parts += describe(homes[name], name)
    parts += ["## Errors", ERRORS, "\n".join(error_rows())]
    return "\n\n".join(parts) + "\n"


def error_rows() -> Iterator[str]:
    """Yield a table of the errors that a user can meet, each under the one it is a kind of."""
    yield "| error | a kind of | when |"
    yield "|---|---|---|"
    for name, error in vars(errors).items():
        if inspect.isclass(error) and issubclass(error, errors.CrowdError) and error is not errors.CrowdError:
            when = (inspect.getdoc(error) or "").split("\n\n")[0]
            yield f"| `{name}` | `{error.__mro__[1].__name__}` | {' '.join(when.split())} |"


def public_names() -> dict[str, str]:
    """Return every public name with the module that offers it."""
    found = {}
    for module in MODULES:
        for name in importlib.import_module(module).__all__:
            found[name] = module
    return found


def describe(module: str, name: str) -> Iterator[str]:
    """Yield the parts of the page that are about one name."""
    thing = getattr(importlib.import_module(module), name)
    if isinstance(thing, str):
        yield f"### `{module}.{name}`"
        yield "The version, as text."
        return
    yield f"### `{module}.{name}`"
    if not (inspect.isclass(thing) and issubclass(thing, BaseModel)):
        yield block(signature(name, thing))
    yield from paragraphs(thing)
    if inspect.isclass(thing):
        for member, value in members(thing):
            bare = inspect.unwrap(value.__func__ if isinstance(value, staticmethod | classmethod) else value)
            if isinstance(value, property | cached_property):
                yield f"#### `{name}.{member}`"
            else:
                yield f"#### `{name}.{member}()`"
                yield block(signature(f"{name}.{member}", bare))
            yield from paragraphs(bare)


def members(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield methods and properties that a class of ours offers and says something about."""
    seen = set()
    for owner in cls.__mro__:
        if not owner.__module__.startswith("crowdml."):
            continue
        for name, value in vars(owner).items():
            ours = isinstance(value, property | cached_property) or (
                inspect.isroutine(value) and value.__module__.startswith("crowdml.")
            )
            if not name.startswith("_") and ours and name not in seen:
                seen.add(name)
                if inspect.getdoc(value):
                    yield name, value


def block(code: str) -> str:
    """Set code."""
    return f"```python\n{code}\n```"


def signature(name: str, thing: Any) -> str:
    """Write how something is called, a parameter on each line where one line would not hold them."""
    found = inspect.signature(thing)
    shown = [_parameter(each) for each in found.parameters.values() if each.name != "self"]
    kinds = [each.kind for each in found.parameters.values() if each.name != "self"]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        shown.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    given = found.return_annotation
    answer = "" if inspect.isclass(thing) or given is inspect.Signature.empty else f" -> {_annotation(given)}"
    line = f"{name}({', '.join(shown)}){answer}"
    if len(line) <= LINE:
        return line
    inside = "".join(f"    {each},\n" for each in shown)
    return f"{name}(\n{inside}){answer}"


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}.get(parameter.kind.name, "")
    text = stars + parameter.name
    if parameter.annotation is not inspect.Parameter.empty:
        text += f": {_annotation(parameter.annotation)}"
    if parameter.default is not inspect.Parameter.empty:
        plain = isinstance(parameter.default, str | int | float | bool | tuple | None)
        text += f" = {parameter.default!r}" if plain else " = …"
    return text


def _annotation(annotation: Any) -> str:
    text: str = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"\b(?:typing|collections\.abc|npt)\.", "", text)


def paragraphs(thing: Any) -> Iterator[str]:
    """Yield a docstring as Markdown: prose as it is, examples as code, arguments as a list."""
    for part in re.split(r"\n\s*\n", inspect.getdoc(thing) or ""):
        lines = part.splitlines()
        head = lines[0].rstrip(":")
        if lines[0].endswith(":") and head in SECTIONS and len(lines) > 1:
            body = inspect.cleandoc("\n".join(["", *lines[1:]]))
            yield _listed(head, body)
        elif lines[0].startswith(">>>"):
            yield block(re.sub(r"\s*# doctest: .*$", "", part, flags=re.M))
        elif all(line.startswith("    ") for line in lines):
            yield block(inspect.cleandoc(part))
        else:
            yield " ".join(line.strip() for line in lines)


def _listed(head: str, body: str) -> str:
    """Write `name: meaning` entries as a list; anything else as a sentence."""
    entries = re.split(r"\n(?=\S)", body)
    if head == "Returns" or not all(re.match(r"\*{0,2}\w+(?: \([^)]*\))?:", entry) for entry in entries):
        return f"*{head}*: {' '.join(body.split())}"
    rows = []
    for entry in entries:
        name, _, meaning = entry.partition(":")
        rows.append(f"- `{name}`: {' '.join(meaning.split())}")
    return f"*{head}*\n\n" + "\n".join(rows)
