"""Vectors of the browser device: what the Python reference makes today is what the web tests compare with."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.vectors.make import FOLDER, TASKS, make_cap, make_case, make_link, make_owner, make_rounding

FLOATS = {"seen", "update", "rows", "labels", "targets", "epsilon"}
"""Parts that are floating-point numbers, whose last digit may differ from machine to machine."""


def stored(name: str) -> Any:
    return json.loads((FOLDER / f"browser_{name}.json").read_text())


@pytest.mark.parametrize("number", range(len(TASKS)), ids=list(TASKS))
def test_check_ins_are_those_of_the_reference(number: int) -> None:
    name, found = list(TASKS)[number], stored("check_ins")[number]
    made = make_case(name, number)
    promised = not json.loads(made["signed"]["text"])["definition"]["privacy"]["mode"] == "none"
    assert made.keys() == found.keys()
    for key, value in made.items():
        if key == "check-in" and not promised:
            continue  # floats; the update says the same
        if key in FLOATS:
            assert flat(value) == pytest.approx(flat(found[key]), rel=1e-6, abs=1e-6), key
        else:
            assert value == found[key], key


def flat(value: Any) -> list[float]:
    if value is None:
        return []
    return [each for part in value for each in flat(part)] if isinstance(value, list) else [float(value)]


def test_rounding_is_that_of_the_reference() -> None:
    made = [make_rounding(order, seed) for seed in range(3) for order in (1, 2, 3)]
    assert json.loads(json.dumps(made)) == stored("rounding")


@pytest.mark.parametrize("number", range(0, len(stored("owners")), 4))
def test_the_noise_of_an_owners_epsilon_is_that_of_the_reference(number: int) -> None:
    found = stored("owners")[number]
    made = make_owner(found["name"], found["epsilon"] / 40.0)
    assert json.loads(json.dumps(made)) == found


def test_what_counts_against_a_cap_is_that_of_the_reference() -> None:
    assert json.loads(json.dumps(make_cap())) == stored("cap")


def test_the_link_is_that_of_the_reference() -> None:
    assert make_link() == stored("link")
