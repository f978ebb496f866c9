"""The two pages about the promise: the owner's reads at school level, and what both say of examples is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from crowdml.task import Task
from crowdml.task.owners import owner_promise

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "concepts"
OWNERS = (PAGES / "promise-for-owners.md").read_text(encoding="utf-8")
EXPERTS = (PAGES / "promise-for-experts.md").read_text(encoding="utf-8")


def sentences(page: str) -> list[str]:
    """Return the sentences of a page, without code, tables, headings and links' targets."""
    text = re.sub(r"^(\||#|!\[).*$", "", re.sub(r"```.*?```", "", page, flags=re.S), flags=re.M)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    text = re.sub(r"`[^`]*`", "it", text)
    parts = re.split(r"(?<=[.?:!])\s+|\n\n|\n(?=- |\d\. )", text)
    return [part for part in parts if re.search("[a-z]", part)]


def syllables(word: str) -> int:
    """Count groups of vowels; an e at the end is silent."""
    return max(1, len(re.findall("[aeiouy]+", re.sub("e$", "", word.lower()))))


def grade(page: str) -> float:
    """Flesch and Kincaid's grade: years at school that a text asks for."""
    found = sentences(page)
    words = [word for sentence in found for word in re.findall("[A-Za-z]+", sentence)]
    return 0.39 * len(words) / len(found) + 11.8 * sum(map(syllables, words)) / len(words) - 15.59


def test_the_owners_page_reads_at_school_level() -> None:
    assert not re.search("[α-ωΑ-Ω]", OWNERS), "no Greek letter, before the first fold or after"
    assert grade(OWNERS) <= 6.0 < 12.0 < grade("Neighbouring distributions satisfy approximate indistinguishability.")
    assert max(len(sentence.split()) for sentence in sentences(OWNERS)) <= 30
    for word in ("epsilon", "delta", "gradient", "divergence", "probability", "distribution", "adjacency"):
        assert word not in OWNERS.lower()


def test_the_owners_page_shows_what_the_example_promises() -> None:
    told = owner_promise(Task.load(ROOT / "examples" / "sound-mnist.toml"))
    assert told.row.dots is not None
    assert f"no method is right more than **{told.row.dots.right}** times in 100" in OWNERS
    assert told.row.dots.text() in OWNERS
    assert "About all your rows together nothing is promised." in told.in_odds


@pytest.mark.parametrize("name", ["sound-mnist", "private-steps", "diabetes", "secagg-digits"])
def test_the_experts_table_is_what_the_plan_gives(name: str) -> None:
    task = Task.load(ROOT / "examples" / f"{name}.toml")
    odds, terms = owner_promise(task).row.odds, task.privacy
    assert odds is not None
    delta = f"{terms.delta:.0e}".replace("e-0", "e-")
    assert f"| `examples/{name}.toml` | {terms.epsilon:g}, {delta} | {odds.of_100} | {odds.by} |" in EXPERTS


def test_every_example_with_a_promise_is_in_the_table() -> None:
    promised = {path.name for path in (ROOT / "examples").glob("*.toml") if Task.load(path).calibrated.terms.promised}
    assert set(re.findall(r"`examples/([\w.-]+)` \|", EXPERTS)) == promised
