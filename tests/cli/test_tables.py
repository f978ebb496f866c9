"""Tables in a terminal of 80 columns: what is told apart or copied is shown whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from crowdml.cli import output
from crowdml.cli.compare import print_comparison
from crowdml.cli.device_output import print_ledger
from crowdml.data import DATASETS

DIGITS = Path(__file__).parents[2] / "examples" / "digits.toml"
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


def test_a_long_name_of_a_cell_leaves_its_figures_whole(capsys: pytest.CaptureFixture[str]) -> None:
    columns = ["cell", "test accuracy", "s.d.", "error of the worst tenth", "versions", "MB up", "MB down", "ε"]
    figures = ["0.9234", "0.0012", "0.1234", "12000", "12.34", "123.45", "8.0"]
    found = SimpleNamespace(
        table=lambda: (
            columns,
            [["algorithm.kind = crowd-sgd, privacy.mechanism = gaussian", *figures], ["b", *figures]],
        ),
        warnings=(),
        notes=(),
        cells=(),
    )
    print_comparison(cast(Any, found), trials=10)
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    assert sum(line.split()[-len(figures) :] == figures for line in shown.splitlines()) == 2


def test_a_ledger_keeps_names_and_figures_in_a_narrow_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    promise = {"epsilon": 8.0, "delta": 1e-5}
    spending = {
        **{name: promise for name in ("promised", "spent", "counted", "spent_by_device")},
        **{"odds": {"spent": 67, "promised": 79}, "unit": "sample", "uses": 10, "uses_left": 5, "releases": 5},
        **{"closed": False, "guarantee": "", "samples": {"used": 300, "used_up": 0}},
    }
    name, keys = "a-task-with-a-rather-long-name", ["0" * 32, "f" * 32]
    releases = [{"task": name, "version": 12345, "samples": 600, "most": 7, "key": key} for key in keys]
    report = {
        **{"tasks": {name: spending}, "releases": releases, "unsettled": keys[1:], "entries": 3, "head": "a" * 64},
        **{"cap": {"epsilon": None, "delta": None}, "compared": None},
    }
    print_ledger(report, False)
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80 and "…" not in shown
    assert f"\n{name} " in shown and "67 so far, 79 at most" in shown
    lines = [line.split() for line in shown.partition("Releases")[2].splitlines()]
    assert [line[2:6] for line in lines if line[:1] in (["1"], ["2"])] == [
        ["12345", "600", "7", "yes"],
        ["12345", "600", "7", "no"],
    ]


def test_brackets_are_words_and_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    made = output.table("of [task]", ("[a]",), [("still [or] walking",), ("[/b] [link=x]",), (output.strong("[c]"),)])
    output.show("set [stop] first [/x]", output.strong("[same]", " [as]"), made)
    shown = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert shown[:2] == ["set [stop] first [/x]", "[same] [as]"]
    assert shown[2:] == ["of [task]", "[a]", "still [or] walking", "[/b] [link=x]", "[c]"]


def test_an_objective_in_brackets_is_shown_as_it_is(run: Run) -> None:
    code, shown, told = run("privacy", "explain", str(DIGITS), "--set", 'objective="Walk [or] stand [/b]"')
    assert code == 0 and told == "" and "digits: Walk [or] stand [/b]" in shown


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
