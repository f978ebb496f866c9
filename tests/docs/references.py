"""What pages and source files refer to: modules, files, commands, settings, studies, verbs.

Each finder takes a text and returns what it refers to that does not exist, so that a planted text can test the finder.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
FILES = r"(?:md|py|toml|json|html|sql|service|npz|png)"
NAMED_FILE = re.compile(rf"^(?:[\w.-]+/)+[\w.-]+\.{FILES}$")
IN_TEXT = re.compile(r"\b(?:docs|tests|examples|benchmarks|src)/[\w./-]+\.(?:md|py|toml|json)\b")
OURS = ("", "src/crowdml", "docs")
"""Where a path that is named may begin."""

SET_BY_USERS = ("/", "~", ".", "reproduced/", "results/", "FOLDER/", "home/")
TO_BE_WRITTEN = ("halving.py", "heavy_ball.py")
"""Files that a how-to tells its reader to write."""

ENTRY_POINTS = ("datasets", "layers", "losses", "models", "noise", "rates", "recipes", "modes")
NOT_MODULES = ("crowdml.sqlite", "crowdml.service", "crowdml.toml", *(f"crowdml.{name}" for name in ENTRY_POINTS))


def missing_modules(text: str) -> list[str]:
    """Return names such as `crowdml.privacy.promise` that lead nowhere."""
    names = (code.partition("(")[0] for code in CODE.findall(text))
    found = {name for name in names if re.fullmatch(r"crowdml(?:\.\w+)+", name) and name not in NOT_MODULES}
    return sorted(name for name in found if not _leads_somewhere(name))


@functools.cache
def _leads_somewhere(name: str) -> bool:
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        module = ".".join(parts[:length])
        try:
            if importlib.util.find_spec(module) is None:
                continue
        except ModuleNotFoundError:
            continue
        found: Any = importlib.import_module(module)
        for part in parts[length:]:
            if not hasattr(found, part) and part not in getattr(found, "__annotations__", {}):
                return False
            found = getattr(found, part, None)
        return True
    return False


def missing_files(text: str) -> list[str]:
    """Return files of the project that are named, in code or by their whole path, and are not there."""
    named = {code for code in CODE.findall(text) if NAMED_FILE.match(code) and not code.startswith(SET_BY_USERS)}
    named |= set(IN_TEXT.findall(text))
    bare = {code for code in CODE.findall(text) if re.fullmatch(r"\w+\.py", code)}
    # A part in capitals stands for whatever is there.
    named = {path for path in named if not path.endswith(TO_BE_WRITTEN) and not re.search(r"\b[A-Z]{2,}\b", path)}
    lost = {path for path in named if not any((ROOT / start / path).exists() for start in OURS)}
    return sorted(lost | {name for name in bare if name not in _python_files()})


@functools.cache
def _python_files() -> frozenset[str]:
    folders = ("src", "tests", "docs", "examples", "benchmarks")
    return frozenset(path.name for folder in folders for path in (ROOT / folder).rglob("*.py"))


def missing_commands(text: str) -> list[str]:
    """Return commands `crowdml …` and `make …` in running text that do not exist, or lack an option that they name."""
    wrong = []
    for line in CODE.findall(text):
        program, _, rest = line.partition(" ")
        if program == "make" and re.match(r"[a-z]", rest) and rest.split()[0] not in _verbs():
            wrong.append(line)
        if program == "crowdml" and re.match(r"[a-z]", rest):
            choices = [rest]
            if "|" in rest:
                start, _, last = rest.rpartition(" ") if " " not in rest.rpartition("|")[2] else ("", "", "")
                choices = [f"{start} {choice}".strip() for choice in last.split("|")]
            wrong += [f"crowdml {choice}" for choice in choices if not _command_exists(choice)]
    return wrong


@functools.cache
def _verbs() -> frozenset[str]:
    return frozenset(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))


@functools.cache
def _commands() -> Any:
    import typer

    from crowdml.cli.app import app

    return typer.main.get_command(app)


def _command_exists(rest: str) -> bool:
    command, words = _commands(), rest.split()
    while getattr(command, "commands", None) and words:
        name = words.pop(0)
        if not re.fullmatch(r"[a-z-]+", name):
            return name == "…" or name.startswith("--")
        if name not in command.commands:
            return False
        command = command.commands[name]
    known = {spelling for option in command.params for spelling in (*option.opts, *option.secondary_opts)}
    given = {word.partition("=")[0] for word in words if re.match(r"--[a-z]", word)}
    return given <= known | {"--help"}


def missing_settings(text: str) -> list[str]:
    """Return keys such as `privacy.clip` that no section of a task file has, in any of its kinds."""
    sections = _sections()
    pattern = re.compile(rf"({'|'.join(sections)})\.([a-z][a-z-]*)(?![\w(])")
    wrong = []
    for code in CODE.findall(text):
        match = pattern.match(code)
        if match is None or re.match(r"[\w-]*\.(?:py|toml|md|json)", code):
            continue
        # Some are modules: `privacy.moments` in a docstring.
        if match[2] not in sections[match[1]] and not _leads_somewhere(f"crowdml.{code}"):
            wrong.append(f"{match[1]}.{match[2]}")
    return wrong


@functools.cache
def _sections() -> dict[str, frozenset[str]]:
    """Keys of every section, whatever its kind."""
    from crowdml.task import Task
    from docs.writers.keys import nested_in, registry_of, spell_key

    found = {}
    for name, field in Task.model_fields.items():
        registry, nested = registry_of(field), nested_in(field)
        entries = [*registry.values()] if registry else [nested] if nested else []
        if entries:
            keys = {spell_key(key, field) for entry in entries for key, field in entry.model_fields.items()}
            found[name] = frozenset(keys | {"kind"})
    return found


def missing_studies(text: str) -> list[str]:
    """Return ids of studies that do not exist."""
    from crowdml.studies import STUDIES

    papers = {name.partition("/")[0] for name in STUDIES}
    pattern = re.compile(rf"\b(?:{'|'.join(sorted(papers))})/[a-z0-9][\w-]*")
    named = {key for code in CODE.findall(text) for key in pattern.findall(code) if "." not in code}
    return sorted(name for name in named if name not in STUDIES)
