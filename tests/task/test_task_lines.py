"""Finding the line of a key, in every way TOML lets it be written."""

from __future__ import annotations

import tomllib

import pytest

from crowdml.task.task_file import find_line


def line(source: str, *path: str | int) -> int | None:
    tomllib.loads(source)  # only legal sources are looked through
    return find_line(source, path)


def test_keys_in_sections() -> None:
    source = "a = 1\n\n[one]\na = 2\n  b = 3\n[two]\na = 4\n"
    assert line(source, "a") == 1
    assert line(source, "one") == 3
    assert line(source, "one", "a") == 4
    assert line(source, "one", "b") == 5
    assert line(source, "two", "a") == 7


def test_a_key_that_is_not_there_has_the_line_of_its_section_or_none() -> None:
    assert line("[one]\na = 2\n", "one", "zzz") == 1
    assert line("[one]\na = 2\n", "two", "a") is None
    assert line("a = 1\n") is None
    assert line("", "a") is None


def test_a_key_in_an_inline_table() -> None:
    source = "[one]\nx = 1\nrate = { kind = 'k', c = 3 }\n"
    assert line(source, "one", "rate", "c") == 3
    assert line(source, "one", "rate", "zzz") == 3


def test_sections_of_sections_and_dotted_keys() -> None:
    source = "[one.two]\na = 1\n[one . three]\nb.c = 2\nb . d = 3\n"
    assert line(source, "one", "two", "a") == 2
    assert line(source, "one", "three", "b", "c") == 4
    assert line(source, "one", "three", "b", "d") == 5
    assert line("data.features = 0\ndata.labels = 1\n", "data", "labels") == 2


def test_quoted_keys_and_sections() -> None:
    source = "['one']  # first\n\"held-out\" = 1\n'max' = 2\n[ \"two\" ]\nx = 1\n"
    assert line(source, "one", "held-out") == 2
    assert line(source, "one", "max") == 3
    assert line(source, "two", "x") == 5


@pytest.mark.parametrize("source", ['x = 1\none."a" = 2\n', "x = 1\n'one'.a = 2\n", 'x = 1\n"one" . "a" = 2\n'])
def test_dotted_keys_in_quotes(source: str) -> None:
    assert line(source, "one", "a") == 2


def test_comments_are_not_keys() -> None:
    source = "# [one]\n# a = 1\n[one] # a = 1\n#a = 1\na = 1 # b = 2\nb = 2\n"
    assert line(source, "one") == 3
    assert line(source, "one", "a") == 5
    assert line(source, "one", "b") == 6


def test_brackets_in_strings_and_comments_do_not_confuse() -> None:
    source = '[one]\na = \']]][\'  # [[[ {{\nb = "{ \\" [" # }\nc = 3\n'
    assert line(source, "one", "c") == 4


def test_a_hash_in_a_string_does_not_begin_a_comment() -> None:
    source = "[one]\na = ['#', [\n  1,\n]]\nb = 2\n"
    assert line(source, "one", "b") == 5


def test_after_arrays_over_several_lines() -> None:
    source = "[one]\na = [\n  'b = 3', # c = 2\n  [\n  'x',\n  ],\n]\nb = 2\n[two]\nc = 1\n"
    assert line(source, "one", "a", 1) == 4
    assert line(source, "one", "b") == 8
    assert line(source, "two", "c") == 10


ELEMENTS = """\
[data]
transform = [
  { kind = "scale", by = 1.0 },
  { by = 2.0, kind = "scale" },   # by = 7
  # { by = 3.0 }
  { kind = "norm", order = 1,
    at-most = 1.0 },
]
after = 1
"""


@pytest.mark.parametrize(
    ("index", "key", "expected"),
    [(0, "kind", 3), (0, "by", 3), (1, "by", 4), (1, "kind", 4), (2, "kind", 6), (2, "order", 6)],
)
def test_the_line_of_a_key_in_one_element_of_an_array(index: int, key: str, expected: int) -> None:
    source = ELEMENTS.replace("1,\n    at-most", "1, at-most")  # inline tables stand in one line
    assert line(source, "data", "transform", index, key) == expected
    assert line(source, "data", "after") == 8


def test_comments_inside_arrays_are_not_keys() -> None:
    source = "[d]\nt = [ # by = 1\n  # by = 2\n  { kind = 'scale', by = 3 },\n]\n"
    assert line(source, "d", "t", 0, "by") == 4


def test_strings_inside_arrays_are_not_keys() -> None:
    source = "[d]\nt = [\n  { kind = 'by = 1' },\n  { kind = 'scale', by = 3 },\n]\n"
    assert line(source, "d", "t", 1, "by") == 4


def test_sections_that_repeat() -> None:
    source = "[[d.t]]\nkind = 'scale'\nby = 1\n[[d.t]]\nkind = 'scale'\nby = 2\n[d.u]\nby = 3\n"
    assert line(source, "d", "t", 0, "by") == 3
    assert line(source, "d", "t", 1, "by") == 6
    assert line(source, "d", "u", "by") == 8


@pytest.mark.parametrize("quotes", ['"""', "'''"])
def test_keys_in_strings_over_several_lines_are_not_keys(quotes: str) -> None:
    source = f"objective = {quotes}\n[one]\na = 1\n it[\n{quotes}\n[one]\na = 2\n"
    assert line(source, "one") == 6
    assert line(source, "one", "a") == 7


@pytest.mark.parametrize("mark", ["\u2028", "\u0085", "\u2029"])
def test_only_newlines_end_a_line(mark: str) -> None:
    """Editors count line feeds; other separators may stand in a comment or a string."""
    assert line(f"# one{mark}two\na = '{mark}'\nb = 1\n", "b") == 3


def test_lines_that_end_as_on_other_systems() -> None:
    assert line("[one]\r\na = 1\r\nb = 2\r\n", "one", "b") == 3
