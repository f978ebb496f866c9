"""Tables in a terminal of 80 columns: what is told apart or copied is shown whole."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from crowdml.cli import output
from crowdml.data import DATASETS

Run = Callable[..., tuple[int, str, str]]
COLUMNS = ("what is seen", "bound by", "claimed", "at least", "share", "half the noise", "")
ROW = ("one release without its counts", "Clopper-Pearson", "3.94", "1.75", "44%", "4.02 caught", "holds")


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def test_a_word_of_a_column_that_is_kept_is_not_broken(capsys: pytest.CaptureFixture[str]) -> None:
    output.show(output.keep_words(output.table(None, COLUMNS, [ROW] * 3), 1))
    shown = capsys.readouterr().out
    assert shown.count(" Clopper-Pearson ") == 3 and "…" not in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_where_all_fits_nothing_gives_way() -> None:
    made = output.keep_words(output.table(None, ("a", "b"), [("one", "two words")]), 1)
    assert made.columns[1].width is None


def test_a_word_that_is_too_long_goes_on_below(capsys: pytest.CaptureFixture[str]) -> None:
    output.show(output.table(None, ("id", "words"), [("0123456789abcdef" * 4, "many words " * 6)]))
    shown = capsys.readouterr().out
    assert "…" not in shown and shown.split("\n")[1].split()[0] in "0123456789abcdef" * 4


def test_names_of_datasets_can_be_copied(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    _, shown, _ = run("data", "list")
    assert [name for name in DATASETS if name not in shown] == []


@pytest.mark.parametrize("epsilon", [1e-9, 0.0314159, 0.1, 0.1 + 0.2, 1.0, 2.0 + 4e-16, 7.30743, 7.9999999, 12345.6])
def test_what_is_printed_of_epsilon_is_never_less_and_hardly_more(epsilon: float) -> None:
    """Three of these are a number of few digits, and what floating point adds to it."""
    shown = float(output.epsilon_text(epsilon))
    assert (1 - 1e-9) * epsilon <= shown <= 1.001 * epsilon
    assert f"{shown:.4g}" == f"{shown:.12g}" or shown >= 10_000
    assert float(output.epsilon_text(shown)) == shown
