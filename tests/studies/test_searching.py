"""Searches: what is printed and written of them, and that they say where more should be tried."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from crowdml.cli.app import app
from crowdml.core import BadInput
from crowdml.studies import STUDIES, search
from crowdml.studies.crowdml_2015.images import LAMBDA, RATES, C
from crowdml.studies.records import search_line
from crowdml.studies.run import Cell, Found
from crowdml.task import Task
from docs.writers.papers import RESULTS, papers_page

ID = "crowdml-2015/fig4"
CELLS = tuple(Cell(name=f"rate = {at}", value=0.1 + 0.01 * at) for at in range(12))
FOUND = Found(label="crowd", measure="validation error", cells=CELLS, chosen="rate = 11", edges=("rate",))


@pytest.mark.parametrize(("best", "edges"), [(RATES[0], (C,)), (30.0, ()), (RATES[-1], (C,))])
def test_a_search_says_whether_it_went_far_enough(
    best: float, edges: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below a strength of zero there is nothing to try."""

    def tried(tasks: list[Task], **_: object) -> list[Any]:
        errors = [abs(np.log(task.algorithm.rate.c / best)) + task.model.regularisation for task in tasks]
        return [SimpleNamespace(validation_error=float(error)) for error in errors]

    monkeypatch.setattr("crowdml.studies.run.simulate_cells", tried)
    monkeypatch.setattr("crowdml.data.load", lambda name: SimpleNamespace(train_targets=np.zeros(600)))
    (found,) = search(STUDIES[ID], 1, curves=["crowd"])
    assert found.best == f"{C} = {best:g}, {LAMBDA} = 0" and found.edges == edges


def test_what_is_in_use_is_printed_however_bad_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("crowdml.studies.search", lambda *_: [FOUND])
    path = tmp_path / "search.json"
    ran = CliRunner().invoke(app, ["reproduce", ID, "--search", "--json", str(path)])
    assert ran.exit_code == 0, ran.output
    lines = ran.output.splitlines()
    assert "  0.1000  rate = 0 best" in lines and "  0.2100  rate = 11 in use" in lines
    assert sum(line.startswith("  0.") for line in lines) == 9
    assert "  nothing was tried beyond the best value of rate" in lines
    written = json.loads(path.read_text(encoding="utf-8"))
    assert (written["id"], written["trials"], written["seed"]) == (ID, 2, 0) and "commit" in written
    (told,) = written["searched"]
    assert len(told["cells"]) == 12 and (told["best"], told["chosen"]) == ("rate = 0", "rate = 11")
    assert told["edges"] == ["rate"] and told["cells"][3] == {"name": "rate = 3", "value": 0.13, "remark": ""}


@pytest.mark.parametrize("name", list(STUDIES))
def test_every_setting_that_was_chosen_can_be_searched_again(name: str) -> None:
    study = STUDIES[name]
    assert bool(search_line(name, study)) == (study.tuned != "given")
    if study.searched_in:
        assert STUDIES[study.searched_in].is_searched and not study.is_searched


def test_command_and_page_name_the_search_beside_each_study() -> None:
    words = ["reproduce", "crowdml-2015/fig6", "--recorded", str(RESULTS)]
    printed = CliRunner(env={"COLUMNS": "200"}).invoke(app, words)
    section = papers_page().split("### crowdml-2015/fig6\n")[1].split("\n### ")[0]
    for text in (printed.output, section):
        assert "Settings can be searched again: `crowdml reproduce crowdml-2015/fig5 --search`." in text


def test_a_search_refuses_what_it_has_no_use_for(tmp_path: Path) -> None:
    from crowdml.cli.reproduce import reproduce

    for name, given in (("--plot", {"plot": tmp_path / "drawn.png"}), ("--resume", {"resume": True})):
        with pytest.raises(BadInput, match="a search draws nothing") as refused:
            reproduce(ID, search=True, **given)
        assert refused.value.where == name
