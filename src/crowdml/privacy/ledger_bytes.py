"""How every runtime writes an entry of a ledger: canonical bytes, their hash, and costs as decimals."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from decimal import ROUND_CEILING, Context, Decimal
from typing import Any

_UP = Context(prec=12, rounding=ROUND_CEILING)


def canonical(entry: Mapping[str, Any]) -> bytes:
    """Write an entry as every runtime writes it.

    >>> canonical({"b": 2, "a": "0.5"})
    b'{"a":"0.5","b":2}'
    """
    if not all(type(value) in (int, str) for value in entry.values()):
        raise TypeError(f"an entry holds integers and strings only: {entry}")
    return json.dumps(entry, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii")


def next_hash(before: bytes, raw: bytes) -> bytes:
    """Return the hash of an entry."""
    return hashlib.sha256(before + raw).digest()


def decimal_up(value: float) -> str:
    """Write a cost as a decimal string of twelve digits, rounded up.

    >>> decimal_up(0.1), decimal_up(2.0)
    ('0.100000000001', '2')
    """
    return format(_UP.create_decimal(Decimal(value)).normalize(), "f")


def exact(value: float) -> str:
    """Write a limit as the shortest decimal that reads back as the same number."""
    return format(Decimal(repr(value)).normalize(), "f")
