from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from crowdml.secure_aggregation import SumTerms, bits_for
from tests.support.rehearsal import Members, Rehearsal

MEMBERS = Members("t")
"""Keys are made once for all tests: members are old friends."""

CROWD = Members("t")
"""Others, for large crowds: whoever is acquainted has other secrets with the rest than by their keys."""

Begin = Callable[..., Rehearsal]


@pytest.fixture
def make_terms() -> Callable[..., SumTerms]:
    def made(invited: int, least: int, corrupt: int = 0, size: int = 20, largest: int = 1000) -> SumTerms:
        return SumTerms(
            task="t",
            size=size,
            bits=bits_for(invited, largest),
            largest=largest,
            invited=invited,
            least=least,
            corrupt=corrupt,
        )

    return made


@pytest.fixture
def begin() -> Begin:
    def begun(terms: SumTerms, slots: list[int], lost: Mapping[int, int] | None = None, **more: int) -> Rehearsal:
        if len(slots) <= 60:
            return Rehearsal(terms, MEMBERS, slots, lost, **more)
        for slot in slots:
            CROWD.acquaint(slot)
        return Rehearsal(terms, CROWD, slots, lost, **more)

    return begun


@pytest.fixture
def draw_vectors() -> Callable[..., dict[int, Any]]:
    def drawn(terms: SumTerms, slots: list[int], seed: int = 0) -> dict[int, Any]:
        generator = np.random.default_rng(seed)
        return {slot: generator.integers(-terms.largest, terms.largest + 1, terms.size) for slot in slots}

    return drawn
