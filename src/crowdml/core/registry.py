"""Named choices: the one place where a kind in a task file meets the code behind it."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from crowdml.core.errors import BadInput

Entry = TypeVar("Entry")


def nearest(word: str, choices: Mapping[str, object] | list[str]) -> str:
    """Return a hint: the closest choice if one is close, otherwise all of them.

    >>> nearest("bach", ["batch", "buffer"])
    'did you mean "batch"?'
    """
    names = list(choices)
    close = [name for name in names if same_word(name, word)] or difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    return f'did you mean "{close[0]}"?' if close else "choose one of: " + ", ".join(names)


def same_word(one: str, other: str) -> bool:
    """Tell whether two names differ in capitals and signs alone.

    >>> same_word("fashion-mnist", "FashionMNIST")
    True
    """
    return _bare(one) == _bare(other)


def _bare(name: str) -> str:
    return "".join(sign for sign in name.lower() if sign.isalnum())


class Registry(Mapping[str, Entry], Generic[Entry]):
    """A table of named entries that answers a wrong name with the nearest right one.

    >>> colours = Registry("colour", {"red": 1, "green": 2})
    >>> colours["red"]
    1
    """

    def __init__(self, noun: str, entries: Mapping[str, Entry]) -> None:
        """Name what the entries are, for messages, and take them."""
        self.noun = noun
        self._entries = dict(entries)
        self._later: dict[str, Callable[[], Entry]] = {}

    def __getitem__(self, name: str) -> Entry:
        """Return the entry, or raise `BadInput` with a suggestion."""
        if name in self._later:
            self._entries[name] = self._later[name]()
            del self._later[name]
        try:
            return self._entries[name]
        except KeyError:
            raise BadInput(f'unknown {self.noun} "{name}"', hint=nearest(name, list(self))) from None

    def get(self, name: str, default: Any = None) -> Any:
        """Return the entry or the default, as any mapping does."""
        return self[name] if name in self else default

    def add(self, name: str, entry: Entry) -> None:
        """Take one more entry, under a name that is free.

        >>> colours = Registry("colour", {"red": 1})
        >>> colours.add("blue", 3)
        >>> list(colours)
        ['red', 'blue']
        """
        self._require_free(name)
        self._entries[name] = entry

    def add_lazy(self, name: str, make: Callable[[], Entry]) -> None:
        """Take one more entry, which is made when somebody first asks for it.

        >>> colours = Registry("colour", {"red": 1})
        >>> colours.add_lazy("blue", lambda: 3)
        >>> colours["blue"]
        3
        """
        self._require_free(name)
        self._later[name] = make

    def _require_free(self, name: str) -> None:
        if name in self:
            raise BadInput(f'the {self.noun} "{name}" is taken', hint="register it under another name")

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names in the order of registration."""
        return iter([*self._entries, *self._later])

    def __contains__(self, name: object) -> bool:
        """Tell whether the name is known (Mapping's own would expect a KeyError)."""
        return name in self._entries or name in self._later

    def __len__(self) -> int:
        """Count the entries."""
        return len(self._entries) + len(self._later)
