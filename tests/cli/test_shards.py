"""crowdml … --shard and crowdml merge as a user types them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crowdml
from crowdml.studies import STUDIES
from crowdml.studies.quick import in_small

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "digits.toml")
SHORT = ("--set", "crowd.passes=1", "--set", "crowd.curve=3", "--trials", "3")
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def compiled_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CROWDML_WORKERS", "0")
    monkeypatch.setenv("CROWDML_ENGINE", "compiled")


def test_simulate_in_parts(run: Run, tmp_path: Path) -> None:
    assert run("simulate", EXAMPLE, *SHORT, "--save", "whole")[0] == 0
    for number in ("1", "2"):
        code, printed, said = run("simulate", EXAMPLE, *SHORT, "--shard", f"{number}/2")
        assert code == 0 and not printed and f"part: digits-{number}-of-2.part" in said
    code, printed, _ = run("merge", "digits-2-of-2.part", "digits-1-of-2.part", "--save", "together")
    assert code == 0 and "test accuracy" in printed
    whole, together = crowdml.Result.load(tmp_path / "whole"), crowdml.Result.load(tmp_path / "together")
    np.testing.assert_array_equal(whole.measured["test_error"], together.measured["test_error"])
    np.testing.assert_array_equal(whole.parameters[0]["w"], together.parameters[0]["w"])
    code, _, said = run("merge", "digits-1-of-2.part")
    assert code == 2 and "of 2 parts 1 are missing: 2/2" in said
    code, _, said = run("merge", "digits-1-of-2.part", "digits-2-of-2.part", "--csv", "table.csv")
    assert code == 2 and "these are parts of crowdml simulate" in said


def test_compare_in_parts(run: Run, tmp_path: Path) -> None:
    vary = ("compare", EXAMPLE, "--vary", "algorithm.batch=20,40", *SHORT)
    assert run(*vary, "--json", "whole.json")[0] == 0
    for number in ("1", "2", "3"):
        assert run(*vary, "--shard", f"{number}/3")[0] == 0
    code, printed, _ = run("merge", *(f"digits-{number}-of-3.part" for number in (1, 2, 3)), "--json", "together.json")
    assert code == 0 and "batch = 40" in printed
    whole, together = (json.loads((tmp_path / name).read_text()) for name in ("whole.json", "together.json"))
    for one, other in zip(whole["cells"], together["cells"], strict=True):
        assert one["label"] == other["label"] and one["result"]["final"] == other["result"]["final"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("simulate", EXAMPLE, "--shard", "1/2", "--json", "x.json"), "a part of a run has no result yet"),
        (("simulate", EXAMPLE, "--shard", "1/2", "--data", "rows.csv"), "parts are of a task that a file says whole"),
        (("simulate", EXAMPLE, "--shard", "3/2"), "is no part of a run"),
        (("reproduce", "crowdml-2015/fig4", "--shard", "1/2", "--record", "here"), "no result yet"),
        (("merge", "nothing.part"), "there is no file nothing.part"),
        (("merge", EXAMPLE), "is damaged"),
    ],
)
def test_what_cannot_be_is_refused(run: Run, arguments: tuple[str, ...], said: str) -> None:
    code, _, errors = run(*arguments)
    assert code == 2 and said in errors


def test_reproduce_in_parts(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small version of a figure stands for the figure, as its rows are not at hand everywhere."""
    name = "crowdml-2015/fig4"
    monkeypatch.setitem(STUDIES._entries, name, in_small(name, STUDIES[name]))
    figure = ("reproduce", name, "--trials", "2")
    assert run(*figure, "--json", "whole.json")[0] == 0
    for number in ("1", "2"):
        code, printed, said = run(*figure, "--shard", f"{number}/2")
        assert code == 0 and not printed and f"part: crowdml-2015-fig4-{number}-of-2.part" in said
    parts = [f"crowdml-2015-fig4-{number}-of-2.part" for number in (2, 1)]
    code, printed, _ = run("merge", *parts, "--json", "together.json")
    assert code == 0 and printed
    whole, together = (json.loads((tmp_path / file).read_text()) for file in ("whole.json", "together.json"))
    assert _without_times(whole) == _without_times(together)


def _without_times(found: Any) -> Any:
    """Leave out what differs from run to run."""
    if isinstance(found, dict):
        return {key: _without_times(value) for key, value in found.items() if "second" not in key and key != "machine"}
    return [_without_times(each) for each in found] if isinstance(found, list) else found
