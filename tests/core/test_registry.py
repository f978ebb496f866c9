"""A registry answers a wrong name with the nearest right one."""

from __future__ import annotations

import pytest

from crowdml.core import BadInput, Registry
from crowdml.core.registry import nearest

COLOURS = Registry("colour", {"red": 1, "green": 2, "dark-green": 3})


def test_it_is_a_mapping_in_the_order_of_registration() -> None:
    assert list(COLOURS.items()) == [("red", 1), ("green", 2), ("dark-green", 3)]
    assert len(COLOURS) == 3
    assert "red" in COLOURS and "blue" not in COLOURS


def test_a_misspelt_name_gets_the_nearest_one() -> None:
    with pytest.raises(BadInput) as caught:
        COLOURS["gren"]
    assert caught.value.what == 'unknown colour "gren"'
    assert caught.value.hint == 'did you mean "green"?'


def test_a_name_like_no_other_gets_all_of_them() -> None:
    with pytest.raises(BadInput) as caught:
        COLOURS["xxx"]
    assert caught.value.hint == "choose one of: red, green, dark-green"


def test_nearest_takes_the_closest_of_several() -> None:
    assert nearest("max-stalenes", ["max-uses", "max-staleness", "stale"]) == 'did you mean "max-staleness"?'


def test_the_table_given_may_change_without_changing_the_registry() -> None:
    table = {"a": 1}
    registry = Registry("letter", table)
    table["b"] = 2
    assert list(registry) == ["a"]


def test_get_answers_an_unknown_name_with_the_default_as_every_mapping_does() -> None:
    assert COLOURS.get("red", 7) == 1
    assert COLOURS.get("blue", 7) == 7
