"""Finding the line of a key in TOML source, because the standard reader does not tell.

The source has been read by `tomllib` before, so it is valid: this scanner only has to know where strings, comments,
tables and arrays begin and end.
"""

from __future__ import annotations

import re

Location = tuple[str | int, ...]

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
