"""Every item of the papers that is easily overlooked is here, or refused for a reason: a test stands behind each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from crowdml.studies import STUDIES
from crowdml.task.task_errors import REFUSED
from docs.writers.paper_items import FIGURES, ITEMS, Item, items_table

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("item", ITEMS, ids=[f"{item.paper}: {item.what}" for item in ITEMS])
def test_the_tests_that_an_item_names_exist(item: Item) -> None:
    for named in item.tests:
        path, _, name = named.partition("::")
        name, _, case = name.removesuffix("]").partition("[")
        text = (ROOT / path).read_text(encoding="utf-8")
        found = f'test("{name}"' in text if path.endswith(".ts") else re.search(rf"^def {name}\(", text, re.MULTILINE)
        assert found, f"{path} has no {name}"
        assert not case or f'"{case}"' in text, f"{path} has no case {case}"


def test_every_word_that_is_refused_with_a_reason_has_an_item() -> None:
    """And the other way round: whoever takes the refusal away has a line of the page that is not true."""
    tests = [test for item in ITEMS for test in item.tests if "test_refused_parts" in test]
    assert {test.partition("[")[2].rstrip("]") for test in tests} == {value or key for key, value in REFUSED}


def test_an_item_is_listed_once_and_says_where_it_is() -> None:
    named = [(item.paper, item.what) for item in ITEMS]
    assert len(set(named)) == len(named) and all(item.here for item in ITEMS)
    assert {item.paper for item in ITEMS} == {"Crowd-ML 2015", "Library 2016", "SliceNet", "ODPFL", "Async ADMM"}
    assert items_table().count("\n") == len(ITEMS) + 1


def test_what_is_refused_says_what_there_is_instead() -> None:
    for item in ITEMS:
        assert not item.refused or len(item.here.split()) > 6, item.what


def test_every_figure_and_table_has_a_study_or_a_page() -> None:
    for figures in FIGURES.values():
        for where in figures.values():
            assert where in STUDIES or (ROOT / "docs" / where).is_file(), where
    numbers = {paper: " ".join(figures) for paper, figures in FIGURES.items()}
    for paper, last in (("Crowd-ML 2015", 9), ("SliceNet", 6), ("Async ADMM", 4), ("Library 2016", 2), ("ODPFL", 2)):
        named = {int(word) for word in re.findall(r"\d+", numbers[paper])}
        assert set(range(1, last + 1)) <= named, paper
    assert "table I " in numbers["Crowd-ML 2015"]
    assert {f"table {number}" for number in "I II III IV V VI VII".split()} <= set(FIGURES["SliceNet"])
