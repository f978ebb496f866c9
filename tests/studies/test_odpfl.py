"""Studies of averaging: their curves are valid tasks, and rows say what was found."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from crowdml.algorithms import load
from crowdml.studies.contract import Study
from crowdml.studies.odpfl import STUDIES


@pytest.mark.parametrize("name", [name for name in STUDIES if name != "odpfl/private"])
def test_curves_are_tasks(name: str) -> None:
    study = STUDIES[name]
    # The last is the most unlike the first; terms with ε take a second each.
    for curve in (study.curves[3], study.curves[-1]):
        assert load(study.task, curve.changes).data.public >= 200


def results(study: Study, error: Callable[[str], float]) -> Any:
    """Made-up results of three trials."""
    return {
        curve.label: SimpleNamespace(measured={"test_error": np.array([[error(curve.label)] * 3])})
        for curve in study.curves
    }


def test_a_gain_is_taken_trial_by_trial() -> None:
    study = STUDIES["odpfl/mislabelled"]
    rows = study.compare(results(study, lambda label: 0.18 if label == "learned" else 0.2))
    assert [row.verdict for row in rows[-2:]] == ["holds", "holds"] and rows[-1].ours == pytest.approx(0.02)
    rows = study.compare(results(study, lambda label: 0.21 if label == "learned" else 0.2))
    assert [row.verdict for row in rows[-2:]] == ["differs", "differs"]


def test_what_liars_cost_is_compared_and_drawn(tmp_path: Path) -> None:
    study = STUDIES["odpfl/attacks"]
    found = results(study, lambda label: 0.1 if "honest" in label else 0.125)
    verdicts = {row.setting: row.verdict for row in study.compare(found)}
    assert verdicts["40 %, root set: sign"] == "holds" and verdicts["20 %, geometric median: sign"] == "differs"
    assert study.draw is not None
    study.draw(found, tmp_path / "attacks.png", "attacks")
    assert (tmp_path / "attacks.png").stat().st_size > 1000
