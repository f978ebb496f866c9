"""Targets for tests that care for their number alone."""

from __future__ import annotations

from crowdml.core import Labels


def some_labels(count: int) -> Labels:
    """So many labels, called "0", "1", …"""
    return Labels(names=tuple(str(number) for number in range(count)))
