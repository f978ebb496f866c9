"""Verdicts can fail: a constant predictor passes nothing, and every rule says when it would not hold."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from crowdml.data import load as load_dataset
from crowdml.data import locate
from crowdml.studies import STUDIES
from crowdml.studies.comparisons import COMMONEST, constant_rows, learns, level, not_run, shown, statement
from crowdml.studies.records import study_verdict
from crowdml.studies.slicenet import cost_tables, noise_trade_off
from crowdml.studies.study import TUNED, Row
from tests.studies.planted import planted

TRAINED = [name for name, study in STUDIES.items() if study.curves]
PASSED = ("holds", "trend", "beyond")


@pytest.mark.parametrize("name", TRAINED)
def test_a_constant_predictor_passes_no_row(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So every row that claims something has values with which it fails."""
    monkeypatch.setattr(noise_trade_off, "_best_reading", lambda result: 0.9 if "noise 0" in str(result) else 0.1)
    rows = STUDIES[name].compare(planted(STUDIES[name]))
    assert [(row.setting, row.metric) for row in rows if row.verdict in PASSED] == []
    judged = [row for row in rows if row.verdict == "differs"]
    assert bool(judged) == bool(STUDIES[name].claim), "a study claims something where rows are judged"


@pytest.mark.parametrize("name", TRAINED)
def test_models_without_error_do_not_show_what_the_paper_does(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody ahead of anybody, nothing lost to noise: a level of the paper's that is an error does not hold."""
    monkeypatch.setattr(noise_trade_off, "_best_reading", lambda result: 0.1)
    rows = STUDIES[name].compare(planted(STUDIES[name], lambda label: 0.0))
    levels = [row for row in rows if row.paper not in (None, 0.0) and row.metric != "c0"]
    assert all(row.verdict != "holds" for row in levels)


@pytest.mark.parametrize("name", [name for name, study in STUDIES.items() if study.unstated])
def test_a_search_looks_at_curves_that_the_study_has(name: str) -> None:
    study = STUDIES[name]
    assert study.unstated is not None and study.unstated.used in study.unstated.candidates
    made = planted(study)
    value, _ = study.unstated.score({label: made[label] for label in study.unstated.curves})
    assert np.isfinite(value)


@pytest.mark.parametrize("name", ["slicenet/table5", "slicenet/table6", "slicenet/table7"])
def test_costs_that_are_not_the_papers_pass_no_row(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One piece that holds everything sends nothing, and is no cut."""
    piece = SimpleNamespace(nodes=1, edges=1)
    lump: Any = SimpleNamespace(largest=1, balance=5.0, kib=0.0, kib_per_device=0.0, pieces=(piece,))
    graph = SimpleNamespace(all_nodes=1, all_edges=1, first_edges=1, last=SimpleNamespace(reach=SimpleNamespace(nnz=0)))
    monkeypatch.setattr(cost_tables, "costs_of", lambda net, pieces, slicer: lump)
    monkeypatch.setattr(cost_tables, "largest_by_metis", lambda net, pieces: 1)
    monkeypatch.setattr(cost_tables, "counted_as_published", lambda net: SimpleNamespace(costs=np.ones(3)))
    monkeypatch.setattr(cost_tables, "graph_of", lambda net: graph)
    rows = STUDIES[name].compare({})
    assert {row.verdict for row in rows} <= {"differs", "shown"} and any(row.verdict == "differs" for row in rows)


@pytest.mark.parametrize("name", list(STUDIES))
def test_every_study_says_its_claim_what_refutes_it_and_how_it_was_tuned(name: str) -> None:
    study = STUDIES[name]
    assert study.tuned in TUNED and bool(study.claim) == bool(study.refuted_by)
    assert all(row.verdict == "not run" and row.rule for row in study.missing)


def values(mean: float) -> Any:
    return np.array([mean - 0.001, mean + 0.001])


def verdict(mean: float, paper: float | None = 0.1, **given: Any) -> str:
    return level("x", "test error", values(mean), paper, tolerance=0.02, **given).verdict


def test_a_level_holds_within_its_tolerance_and_with_its_claim_only() -> None:
    assert verdict(0.11) == "holds" and verdict(0.09, better="less") == "holds"
    assert verdict(0.13) == "trend", "the claim at another level"
    assert verdict(0.01) == "trend" and verdict(0.01, better="less") == "beyond"
    assert verdict(0.3, better="more") == "beyond" and verdict(0.3, better="less") == "trend"
    assert {verdict(mean, claim=False, better="less") for mean in (0.01, 0.1, 0.5)} == {"differs"}
    assert verdict(float("nan")) == "differs" and verdict(float("inf"), better="more") == "differs"
    assert verdict(0.1, None) == "shown"


def test_a_statement_about_what_was_never_reached_differs() -> None:
    row = statement("x", "ratio", float("nan"), True, "at most 1")
    assert row.verdict == "differs" and row.ours is None


def test_a_study_has_the_worst_word_of_its_rows() -> None:
    def row(word: Any) -> Row:
        return replace(shown("x", "y", 1.0), verdict=word)

    assert study_verdict([row("holds"), row("beyond"), row("shown")]) == "holds (1 holds, 1 beyond)"
    assert study_verdict([row("holds"), row("differs")]).startswith("differs (")
    assert study_verdict([row("beyond"), row("not run")]) == "beyond (1 beyond, 1 not run)"
    assert study_verdict([row("shown")]) == "shown"
    assert study_verdict([not_run("x", "y", None, "no data")]) == "not run (1 not run)"


def test_a_setting_that_stands_in_for_the_papers_is_said_beside_the_word() -> None:
    rows = [statement("small", "y", 1.0, True, "…"), not_run("the paper's own", "y", None, "days")]
    assert study_verdict(rows, "reduced setting") == "holds, reduced setting (1 holds, 1 not run)"
    assert study_verdict(rows[1:], "reduced setting") == "not run (1 not run)", "nothing stands in for it"


@pytest.mark.parametrize("name", list(STUDIES))
def test_where_the_papers_own_setting_has_no_row_the_study_says_so(name: str) -> None:
    """A study whose larger or own setting was never run may have rows of the paper's setting all the same."""
    study = STUDIES[name]
    own = {
        "external/niid": "other cells of the same table",
        "odpfl/private": "the dense layers of the paper's net",
        "slicenet/table1": "the paper's digits",
        "slicenet/table2": "the paper's digits",
        "slicenet/table3": "the paper's digits",
        "slicenet/table3-uploads": "the paper's digits",
        "slicenet/table4": "the paper's digits",
    }
    assert bool(study.missing) == bool(study.stands_in or name in own)


def test_learning_is_an_error_well_below_the_constant_predictors() -> None:
    study = STUDIES["crowdml-2015/fig4"]
    good, bad = (next(iter(planted(study, lambda label, e=e: e).values())) for e in (0.7, 0.85))  # type: ignore[misc]
    assert learns(good) and not learns(bad) and not learns(good, bad)


def test_the_constant_predictor_stands_in_every_report() -> None:
    results = tuple(planted(STUDIES["odpfl/private"]).values())
    assert [(row.ours, row.verdict) for row in constant_rows(results, "test_error")] == [
        (0.9, "shown"),
        (0.8865, "shown"),
    ]
    activity = constant_rows(tuple(planted(STUDIES["crowdml-2015/fig3"]).values()), "estimated_error")
    assert activity[0].ours == 0.525 and "In Vehicle" in activity[0].setting


@pytest.mark.parametrize("name", list(COMMONEST))
def test_the_constant_predictors_error_is_counted_on_the_rows_themselves(name: str) -> None:
    if locate(name) is None:
        pytest.skip(f"{name} is not on this machine: crowdml data get {name}")
    dataset = load_dataset(name)
    labels = {
        "activity-slots": dataset.train_targets,
        "activity-changes": dataset.train_targets,
        "adult": np.concatenate([dataset.train_targets, dataset.test_targets]),
    }.get(name, dataset.test_targets)
    assert COMMONEST[name][1] == pytest.approx(1 - np.bincount(labels).max() / len(labels), abs=6e-4)
