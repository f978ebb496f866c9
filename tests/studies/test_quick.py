"""Small versions: every study runs from its task file to its figure, on few rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from crowdml.cli.app import app
from crowdml.core import BadInput
from crowdml.data import locate
from crowdml.studies import STUDIES, reproduce
from crowdml.studies.quick import QUICK, SMALL_ENGINE, in_small
from crowdml.task.task_file import load

TRAINED = [name for name, study in STUDIES.items() if study.curves]
FULL_SIZE = {"crowdml-2015/fig3"}
"""Trained, and small as it is."""


def needs(name: str) -> str | None:
    """Name the dataset of a small version that does not come with crowdml."""
    study = in_small(name, STUDIES[name])
    found = {str(load(study.task, [*study.settled, *curve.changes]).data.dataset) for curve in study.curves[:1]}
    return next((dataset for dataset in found if locate(dataset) is None), None)


def test_every_study_that_trains_has_a_small_version() -> None:
    assert set(QUICK) | FULL_SIZE == set(TRAINED)


@pytest.mark.live
@pytest.mark.parametrize("name", TRAINED)
def test_a_small_version_runs_and_is_drawn(name: str, tmp_path: Path) -> None:
    if missing := needs(name):
        pytest.skip(f"{missing} is not on this machine: crowdml data get {missing}")
    study = in_small(name, STUDIES[name])
    with np.errstate(over="ignore", invalid="ignore"):  # noise of the library's figure 2 makes nets diverge
        report = reproduce(name, study, None, engine=SMALL_ENGINE)
    assert report.trials == 1 and set(report.results) == {curve.label for curve in study.curves}
    assert report.rows
    report.plot(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 5000


def test_small_versions_have_no_record_and_all_figures_no_id() -> None:
    from crowdml.cli.reproduce import reproduce as command

    with pytest.raises(BadInput, match="only that it runs"):
        command("slicenet/table1", quick=True, record=Path("results"))
    with pytest.raises(BadInput, match="goes through all figures"):
        command("slicenet/table1", all_=True)
    with pytest.raises(BadInput, match="goes through all figures"):
        command(None, all_=True, quick=True, record=Path("results"))


def test_one_command_goes_through_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    few = {name: STUDIES[name] for name in ("crowdml-2015/fig4", "slicenet/table1")}
    monkeypatch.setattr("crowdml.studies.STUDIES", few)
    runner = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"})
    done = runner.invoke(app, ["reproduce", "--all", "--quick", "--plot", str(tmp_path / "drawn")])
    assert done.exit_code == 0, done.output
    assert all(f"{name:26} ran" in done.output for name in few) and "s of CPU time in all" in done.output
    assert sorted(path.name for path in (tmp_path / "drawn").iterdir()) == [
        "crowdml-2015-fig4.png",
        "slicenet-table1.png",
    ]
