"""Finding the line of a key in TOML source, because the standard reader does not tell."""

from __future__ import annotations

import re

_TABLE = re.compile(r"^\s*\[+\s*([^\]]+?)\s*\]+\s*(#.*)?$")
_KEY = re.compile(r"""^\s*("[^"]*"|'[^']*'|[A-Za-z0-9_-]+(?:\s*\.\s*[A-Za-z0-9_-]+)*)\s*=""")


def find_line(source: str, path: tuple[str | int, ...]) -> int | None:
    r"""Return the line, from 1, where a key stands, or where the nearest section around it begins.

    >>> find_line("[data]\nfeatures = 3\n", ("data", "features"))
    2
    """
    names = tuple(step for step in path if isinstance(step, str))
    lines = source.splitlines()
    starts = _key_lines(lines)
    for length in range(len(names), 0, -1):
        if names[:length] in starts:
            start = starts[names[:length]]
            return _inside(lines, start, names[length:]) if length < len(names) else start + 1
    return None


def _key_lines(lines: list[str]) -> dict[tuple[str, ...], int]:
    """Map every section and every key at the start of a line to its line, from 0."""
    found: dict[tuple[str, ...], int] = {}
    section: tuple[str, ...] = ()
    depth = 0
    for number, line in enumerate(lines):
        if depth == 0 and (table := _TABLE.match(line)):
            section = _split(table.group(1))
            found.setdefault(section, number)
            continue
        if depth == 0 and (key := _KEY.match(line)):
            found.setdefault((*section, *_split(key.group(1))), number)
        depth = max(0, depth + _depth(line))
    return found


def _inside(lines: list[str], start: int, rest: tuple[str, ...]) -> int:
    """Look for a key of an inline table from its first line to where its brackets close."""
    depth = 0
    for number in range(start, len(lines)):
        if re.search(rf"(?<![\w-]){re.escape(rest[-1])}\s*=", lines[number].partition("=")[2] or lines[number]):
            return number + 1
        depth += _depth(lines[number])
        if depth <= 0:
            break
    return start + 1


def _depth(line: str) -> int:
    """Count brackets opened minus closed, outside strings and comments."""
    bare = re.sub(r'"(?:\\.|[^"\\])*"|\'[^\']*\'', "", line).partition("#")[0]
    return sum(bare.count(mark) for mark in "[{") - sum(bare.count(mark) for mark in "]}")


def _split(name: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in name.split("."))
