"""Bytes of a ledger's entries: written canonically, and read back only exactly as they were written.

Every runtime writes the same bytes for the same entry, and every runtime refuses the same bytes: an entry has the names
that its kind has, each with a value of its kind, in canonical form. Nothing else ever was an entry.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from crowdml.core.errors import TermsViolated
from crowdml.privacy.accounting import FILTER_NAMES

Check = Callable[[Any], bool]

LARGEST, MOST_USES = 1 << 53, 1 << 16
"""Numbers in an entry are below the first, which every runtime holds exactly; uses of one charge below the second."""

_DECIMAL = re.compile(r"Infinity|(0|[1-9][0-9]*)(\.[0-9]+)?")


def _text(value: Any) -> bool:
    return type(value) is str


def _number(value: Any) -> bool:
    return type(value) is int and 0 <= value < LARGEST


def _few(value: Any) -> bool:
    return type(value) is int and 0 <= value < MOST_USES


def _decimal(value: Any) -> bool:
    return type(value) is str and _DECIMAL.fullmatch(value) is not None


def _one_of(*words: str) -> Check:
    return lambda value: value in words


_FORMS: dict[str, tuple[dict[str, Check], dict[str, Check]]] = {
    "accept": (
        {
            "task-hash": _text,
            "unit": _one_of("sample", "device"),
            "filter": _one_of(*FILTER_NAMES),
            "epsilon": _decimal,
            "delta": _decimal,
            "uses": _number,
            "rho": _decimal,
        },
        dict.fromkeys(("pure", "apart", "rest", "device-rho", "device-pure"), _decimal)
        | {"orders": _one_of("whole"), "noise": _one_of("gaussian"), "device-noise": _one_of("gaussian")},
    ),
    "charge": (
        {"key": _text, "body": _text, "samples": _number, "named": _text, "most": _number, "version": _number},
        {"uses": _few, "known": _number, "numbering": _text},
    ),
    "lost": ({"most": _number}, {}),
    "renew": ({"task-hash": _text}, {}),
    "close": ({}, {"public": _number}),
}
"""Names that each kind of entry has, and may have, besides `kind` and `task`."""


def canonical(entry: Mapping[str, Any]) -> bytes:
    """Write an entry as every runtime writes it.

    >>> canonical({"b": 2, "a": "0.5"})
    b'{"a":"0.5","b":2}'
    """
    if not all(type(value) in (int, str) for value in entry.values()):
        raise TypeError(f"an entry holds integers and strings only: {entry}")
    return json.dumps(entry, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii")


def read_entry(raw: bytes) -> dict[str, Any]:
    """Read an entry exactly as it was written, or raise `TermsViolated`.

    >>> read_entry(b'{"kind":"lost","most":3,"task":"digits"}')["most"]
    3
    """
    try:
        entry = json.loads(raw.decode("ascii"))
        required, optional = _FORMS[entry["kind"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise TermsViolated("that is no entry of a ledger") from None
    required = {"kind": _text, "task": _text} | required
    known = required | optional
    wrong = [name for name, value in entry.items() if name not in known or not known[name](value)]
    wrong += [name for name in required if name not in entry]
    wrong += [one for one, other in (("apart", "rest"), ("known", "numbering")) if (one in entry) != (other in entry)]
    if not wrong and entry["kind"] == "accept" and entry["filter"] != "pure" and float(entry["delta"]) <= 0:
        wrong = ["delta"]
    if wrong or canonical(entry) != raw:
        raise TermsViolated(f"{', '.join(wrong) or 'the text'} of a ledger's entry is not what it should be")
    return dict(entry)
