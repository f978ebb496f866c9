"""Studies of averaging: their curves are valid tasks, and rows say what was found."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from crowdml.simulation import simulate
from crowdml.simulation.baselines import COMMON
from crowdml.studies.drawing import save
from crowdml.studies.odpfl import STUDIES, all_rounds
from crowdml.studies.odpfl.averages import LOSS
from crowdml.studies.odpfl.own import ROUNDS
from crowdml.studies.quick import in_small
from crowdml.studies.study import Study
from crowdml.task import load
from tests.studies.planted import planted


@pytest.mark.parametrize(
    "name", [name for name in STUDIES if name not in ("odpfl/private", "odpfl/fixed-features", "odpfl/writers")]
)
def test_curves_are_tasks(name: str) -> None:
    study = STUDIES[name]
    setting = study.unstated.candidates[study.unstated.used] if study.unstated else ()
    # The last is the most unlike the first; terms with ε take a second each.
    for curve in (study.curves[min(3, len(study.curves) - 1)], study.curves[-1]):
        assert load(study.task, [*setting, *curve.changes]).data.public >= 200


def results(study: Study, error: Callable[[str], float]) -> Any:
    """Made-up results of three trials."""
    return {
        curve.label: SimpleNamespace(
            measured={"test_error": np.array([[error(curve.label)] * 3])},
            samples=[100.0],
            task=SimpleNamespace(data=SimpleNamespace(dataset="fashion-mnist")),
        )
        for curve in study.curves
    }


def test_a_gain_is_taken_trial_by_trial() -> None:
    study = STUDIES["odpfl/mislabelled"]
    rows = study.compare(results(study, lambda label: 0.18 if label == "learned" else 0.2))
    assert [row.verdict for row in rows[-2:]] == ["holds"] * 2 and rows[-1].ours == pytest.approx(0.02)
    rows = study.compare(results(study, lambda label: 0.21 if label == "learned" else 0.2))
    assert [row.verdict for row in rows[-2:]] == ["differs"] * 2


@pytest.mark.parametrize(
    ("name", "gain", "word"),
    [
        ("fig1", 0.01, "holds"),
        ("fig1", 0.05, "differs"),
        ("fig1", -0.05, "differs"),
        ("fig2", 0.14, "holds"),
        ("fig2", 0.06, "trend"),
        ("fig2", 0.008, "differs"),
        ("fig2", 0.2, "beyond"),
    ],
)
def test_the_papers_gain_is_asked_for(name: str, gain: float, word: str) -> None:
    study = STUDIES[f"odpfl/{name}"]
    found = results(study, lambda label: 0.3 - gain if label == "learned, as in the paper" else 0.3)
    verdicts = {row.setting: row.verdict for row in study.compare(found)}
    assert verdicts["learned, as in the paper over by size"] == word


@pytest.mark.parametrize(("up_and_down", "word"), [(0.01, "holds"), (0.03, "differs"), (0.0, "holds")])
def test_learned_averaging_is_asked_to_be_smoother(up_and_down: float, word: str) -> None:
    """By half: plain averaging goes up and down by 0.04 here."""
    study = STUDIES["odpfl/fig2"]
    found = results(study, lambda label: 0.2)
    for label, height in (("by size", 0.04), ("learned, as in the paper", up_and_down)):
        waves = 0.2 + height * (np.arange(10) % 2)
        found[label].measured["test_error"] = np.repeat(waves[:, None], 3, axis=1)
    verdicts = {row.metric: row.verdict for row in study.compare(found)}
    assert verdicts["movement from point to point, ratio"] == word


def test_one_bad_trial_is_told(tmp_path: Path) -> None:
    study = STUDIES["odpfl/fig2"]
    found = results(study, lambda label: 0.2)
    found["learned"].measured["test_error"][-1, 1] += 0.006
    verdicts = {row.setting: row.verdict for row in study.compare(found)}
    assert verdicts["learned over by size, worst trial"] == "differs"
    drawn(study, found, tmp_path)


def test_mixed_owners_are_compared_at_their_own_rate_and_at_the_authors(tmp_path: Path) -> None:
    study = STUDIES["odpfl/mixed"]
    found = results(study, lambda label: 0.25 if "own rate: learned" in label else 0.3)
    verdicts = {row.setting: row.verdict for row in study.compare(found)}
    assert verdicts["ε 1 and 8, own rate: learned over equal"] == "holds"
    assert verdicts["ε 1 and 8, rate of ε = 8: learned over equal"] == "differs"
    assert study.unstated is not None and set(study.unstated.curves) <= {curve.label for curve in study.curves}
    drawn(study, found, tmp_path)


def test_writers_have_models_of_their_own(tmp_path: Path) -> None:
    study = STUDIES["odpfl/writers"]
    task = load(study.task, study.curves[0].changes)
    assert task.crowd.devices == 539 and task.crowd.personal.steps == 20
    found = results(study, lambda label: 0.05)
    for label, errors in (("federated averaging", (0.04, 0.03)), ("each writer alone", (0.9, 0.1))):
        found[label].baselines = {COMMON: np.full(3, errors[0]), "with steps": np.full(3, errors[1])}
    rows = study.compare(found)
    assert [round(row.ours or 0.0, 3) for row in rows] == [0.95, 0.96, 0.97, 0.9] and rows[2].verdict == "holds"
    drawn(study, found, tmp_path)


def drawn(study: Study, found: Any, folder: Path) -> None:
    assert study.draw is not None
    save(study.draw(found), study.title, folder / "figure.png")
    assert (folder / "figure.png").stat().st_size > 1000


def test_what_liars_cost_is_compared_and_drawn(tmp_path: Path) -> None:
    study = STUDIES["odpfl/attacks"]
    found = results(study, lambda label: 0.1 if "honest" in label else 0.125)
    verdicts = {row.setting: row.verdict for row in study.compare(found)}
    assert verdicts["40 %, root set: sign"] == "holds" and verdicts["20 %, geometric median: sign"] == "differs"
    drawn(study, found, tmp_path)


def test_noise_in_steps_and_learned_averaging_can_fail(tmp_path: Path) -> None:
    study = STUDIES["odpfl/both"]
    for learned, word in ((0.2, "holds"), (0.15, "holds"), (0.25, "differs")):
        made = results(study, lambda label, error=learned: error if "learned" in label else 0.2)  # type: ignore[misc]
        judged = [row.verdict for row in study.compare(made) if row.metric == "gain"]
        assert judged == [word] * 4
        assert all(row.paper is None for row in study.compare(made)), "the paper left this open"
    drawn(study, made, tmp_path)


def test_the_papers_own_setting_is_there_in_full() -> None:
    """TensorFlow's tutorial net, ten devices, 5 % of all rows public, 130 and 200 rounds."""
    for name, rounds in (("odpfl/fig1", 130), ("odpfl/fig2", 200)):
        study = STUDIES[name]
        assert study.full is not None and any("CIFAR-10" in row.setting for row in study.missing)
        for curve in (study.full_curves or study.curves)[:1]:
            task = load(study.full, [*curve.changes])
            assert (task.crowd.devices, task.passes, task.data.public) == (10, rounds, 2500)
            assert task.model.convolutions == [64, 64] and task.model.layers == [384, 192]


def test_first_rounds_are_shown_and_compared_with_nothing() -> None:
    study = STUDIES["odpfl/own"]
    assert study.task == STUDIES["odpfl/fig1"].full
    task = load(study.task, [*study.curves[0].changes])
    assert (task.crowd.devices, task.passes, task.crowd.curve, task.data.public) == (10, ROUNDS, ROUNDS, 2500)
    assert task.algorithm.rate.kind == "constant", "else these would not be the first rounds of a longer run"
    found = results(study, lambda label: 0.6)
    for each in found.values():
        each.measured["test_loss"] = np.array([[1.7] * 3])
    rows = study.compare(found)
    assert {(row.verdict, row.paper) for row in rows} == {("shown", None)} and len(rows) == 2 * len(study.curves)
    assert all(f"after {ROUNDS} of 130 rounds" in row.setting for row in rows)
    assert study.draw is not None
    whole, last = study.draw(found), study.draw(dict([list(found.items())[-1]]))
    assert [panel.ylabel for panel in whole.panels] == ["test accuracy", "test loss"]
    assert [panel.series[-1] for panel in whole.panels] == [panel.series[0] for panel in last.panels], "alone as beside"
    for name in ("odpfl/fig1", "odpfl/fig2"):
        assert {row.verdict for row in STUDIES[name].missing} == {"not run"}, "what was not run stays so"


def test_both_figures_of_the_papers_own_setting_come_from_one_run() -> None:
    study = STUDIES["odpfl/own-all"]
    task = load(study.task, [*study.curves[1].changes])
    assert (task.passes, task.crowd.curve) == (all_rounds.ROUNDS, all_rounds.POINTS)
    assert task.algorithm.rate.kind == "constant", "else 130 rounds alone would learn otherwise"
    curve = np.linspace(0.9, 0.2, 20)  # 130 rounds are the thirteenth point
    cases = [("plain", 0.2, "differs"), ("plain", 0.3, "trend"), ("plain", 0.35, "holds"), ("plain", 0.5, "trend")]
    cases += [("plain", 0.89, "differs"), ("learned", 0.1, "beyond"), ("learned", 0.2, "holds")]
    for label, late, word in (*cases, ("learned", 0.25, "differs")):
        made = results(study, lambda _: late)[label]  # noqa: B023
        made.measured = {name: np.append(curve[:-1], late)[:, None] for name in ("test_error", "test_loss")}
        first, last, loss = study.compare({label: made})
        assert (first.verdict, last.verdict, loss.verdict) == ("differs", word, "shown"), (label, late)
        assert first.ours == pytest.approx(1 - curve[12])
        assert (first.paper, last.paper) == (0.80, 0.65 if label == "plain" else 0.80)


@pytest.mark.parametrize("name", ["odpfl/fig1", "odpfl/fig2"])
def test_figures_1_and_2_have_the_loss_beside_the_accuracy(name: str) -> None:
    study = STUDIES[name]
    assert all(LOSS in curve.changes for curve in (*study.curves, *study.in_full.curves))
    assert study.draw is not None
    figure = study.draw(planted(study))
    assert [panel.ylabel for panel in figure.panels] == ["test accuracy, %", "test loss"]


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_shorter_run_is_like_the_beginning_of_a_longer_one(at: int) -> None:
    """Only the order of rows is another; here a device takes one step with all of them, so that it hardly shows."""
    small = in_small("odpfl/own", STUDIES["odpfl/own"])
    curve = small.curves[at]
    long, short = (
        simulate(load(small.task, [*curve.changes, f"crowd.passes={rounds}", f"crowd.curve={rounds}"]), engine="numpy")
        for rounds in (4, 2)
    )
    for name in short.measured:
        np.testing.assert_allclose(short.measured[name], long.measured[name][:2], rtol=1e-5, err_msg=name)
