"""Preparing data: what is held apart, and on which rows transforms are fitted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from crowdml.core import BadInput
from crowdml.data import load as load_dataset
from crowdml.simulation import prepare as module
from crowdml.simulation import simulate
from crowdml.simulation.prepare import measured_on, prepare
from crowdml.task import Task, parse

HELD_BACK = "data.validation=300"
TASK = """
crowdml = 1
name = "prepared"
[data]
dataset = "digits"
features = 64
labels = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
transform = [{ kind = "standardise" }, { kind = "pca", components = 5 }, { kind = "norm", order = 1, at-most = 1.0 }]
[model]
kind = "softmax"
[algorithm]
kind = "crowd-sgd"
batch = 10
statistics = false
[privacy]
mode = "sound"
epsilon = 8.0
max-uses = 1
[crowd]
passes = 1
"""


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    module._prepared.clear()


def task(*changes: str) -> Task:
    return parse(TASK, changes=changes)


def test_a_sound_task_does_not_fit_on_private_rows() -> None:
    with pytest.raises(BadInput, match="standardise and pca fitted on private rows") as refused:
        prepare(task())
    assert refused.value.where == "data.public"
    for words in ("public = 1000", 'mode = "paper"'):
        assert words in refused.value.hint


def test_other_modes_may_and_say_so() -> None:
    paper = ("privacy.mode=paper", "privacy.max-uses=1")
    with pytest.raises(BadInput):  # max-uses is a term of sound mode
        task(*paper)
    noted = simulate(parse(TASK.replace("max-uses = 1", "").replace('"sound"', '"paper"')), trials=1)
    assert "standardise and pca fitted on the training rows: not accounted" in noted.notes
    fitted, _ = prepare(parse(TASK.replace("max-uses = 1", "").replace('"sound"', '"none"')))
    assert [each.private_fit for each in fitted] == [True, True, False]


def test_public_rows_are_held_apart_and_fitted_on() -> None:
    whole = load_dataset("digits")
    fitted, ready = prepare(task("data.public=400"))
    assert len(ready.train_targets) == len(whole.train_targets) - 400
    assert not any(each.private_fit for each in fitted)
    public = np.random.RandomState(0).permutation(len(whole.train_targets))[:400]
    np.testing.assert_allclose(fitted[0].arrays["mean"], whole.train_rows[public].mean(axis=0), rtol=1e-5)
    # No device holds a public row: with the public ones put back, the labels are all there.
    labels = np.concatenate([ready.train_targets, whole.train_targets[public]])
    np.testing.assert_array_equal(np.bincount(labels), np.bincount(whole.train_targets))
    noted = simulate(task("data.public=400"), trials=1)
    assert "standardise and pca fitted on 400 public rows that no device holds" in noted.notes


def test_a_changed_private_row_does_not_change_what_was_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    before, _ = prepare(task("data.public=400"))
    module._prepared.clear()
    whole = load_dataset("digits")
    private = np.random.RandomState(0).permutation(len(whole.train_targets))[400:]
    rows = whole.train_rows.copy()
    rows[private] = 0
    monkeypatch.setattr(module, "load_dataset", lambda name: replace(whole, train_rows=rows))
    after, _ = prepare(task("data.public=400"))
    for name in ("mean", "directions"):
        np.testing.assert_array_equal(before[1].arrays[name], after[1].arrays[name])


def test_rows_to_measure_on_are_never_public() -> None:
    whole = load_dataset("digits")
    _, ready = prepare(task("data.public=400", "data.validation=300"))
    assert ready.validation_targets is not None and len(ready.validation_targets) == 300
    assert len(ready.train_targets) == len(whole.train_targets) - 700
    np.testing.assert_array_equal(ready.test_targets, whole.test_targets)
    order = np.random.RandomState(0).permutation(len(whole.train_targets))
    np.testing.assert_array_equal(ready.validation_targets, whole.train_targets[order[-300:]])
    np.testing.assert_array_equal(ready.train_targets, whole.train_targets[order[400:-300]])


@pytest.mark.parametrize(
    ("changes", "where"),
    [(("data.public=1400",), "data.public"), (("data.public=700", "data.validation=700"), "data.validation")],
)
def test_some_rows_must_be_left(changes: tuple[str, ...], where: str) -> None:
    with pytest.raises(BadInput, match="leave none to train on") as refused:
        prepare(task(*changes))
    assert refused.value.where == where


@pytest.mark.parametrize(("delta", "noted"), [(1e-2, True), (1e-6, False)])
def test_a_papers_delta_that_says_nothing_to_so_many_rows_is_noted(delta: float, noted: bool) -> None:
    """A paper may claim what it likes, and a reader is told what it is worth; sound mode refuses."""
    terms = f'mode = "paper"\nmechanism = "gaussian"\nclip = 1.0\ndelta = {delta}'
    text = TASK.replace("max-uses = 1", "").replace('mode = "sound"', terms)
    notes = simulate(parse(text), trials=1).notes
    rows = len(load_dataset("digits").train_targets)
    assert any(f"no promise to {rows} samples" in note for note in notes) == noted


def test_the_rows_come_out_of_training_and_the_test_rows_stay(digits: Callable[..., Task]) -> None:
    whole, _ = load_dataset("digits"), prepare(digits(HELD_BACK))
    _, split = prepare(digits(HELD_BACK, "data.transform=[]"))
    assert split.validation_rows is not None and split.validation_targets is not None
    np.testing.assert_array_equal(split.test_rows, whole.test_rows)
    together = np.concatenate([split.train_rows, split.validation_rows])
    assert len(split.validation_rows) == 300 and len(together) == len(whole.train_rows)
    np.testing.assert_array_equal(
        np.sort(together @ np.arange(1, 65)), np.sort(whole.train_rows.astype(np.float32) @ np.arange(1, 65))
    )
    assert list(measured_on(split)) == ["test", "validation"]
    assert list(measured_on(prepare(digits())[1])) == ["test"]


def test_transforms_are_fitted_without_them_and_applied_to_them(digits: Callable[..., Task]) -> None:
    changes = (HELD_BACK, "data.transform=[{ kind = 'standardise' }]", "privacy.mode=none")
    _, ready = prepare(digits(*changes))
    assert ready.validation_rows is not None
    np.testing.assert_allclose(ready.train_rows.mean(axis=0), 0.0, atol=1e-4)
    assert np.abs(ready.validation_rows.mean(axis=0)).max() > 0.02
    assert ready.validation_rows.shape == (300, 64) and ready.validation_rows.dtype == np.float32


def test_rows_held_back_leave_some_to_train_on(digits: Callable[..., Task]) -> None:
    with pytest.raises(BadInput, match="leave none to train on"):
        prepare(digits("data.validation=1400"))
