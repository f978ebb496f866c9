"""Preparing a simulation: the dataset a task names, checked against the task and transformed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from crowdml.algorithms import Task
from crowdml.core import NUMPY, BadInput
from crowdml.core.ops import Tree
from crowdml.data import Dataset, Fitted, resplit
from crowdml.data import load as load_dataset
from crowdml.data.dataset import Ints, Rows
from crowdml.data.transforms import fit_all
from crowdml.privacy import require_delta
from crowdml.simulation.splits import trial_split

_prepared: dict[str, tuple[list[Fitted], Dataset]] = {}


def prepare(task: Task) -> tuple[list[Fitted], Dataset]:
    """Load, check and transform the dataset of a task. The last one is kept: a sweep prepares its data once."""
    prepared = _prepare(task)
    require_delta(task.privacy, promised_units(task, prepared[1]))
    return prepared


def promised_units(task: Task, dataset: Dataset) -> int:
    """Count the samples or devices of a simulated crowd that the terms are about."""
    samples = task.data.split.train if task.data.split else len(dataset.train_labels)
    return samples if task.privacy.unit == "sample" else task.crowd.devices


def _prepare(task: Task) -> tuple[list[Fitted], Dataset]:
    _require_public_fit(task)
    key = task.data.model_dump_json()
    if key not in _prepared:
        dataset = _parted(task, _checked(task))
        _prepared.clear()
        _prepared[key] = fit_all(task.data.transform, dataset, dataset.public_rows)
    return _prepared[key]


def _parted(task: Task, dataset: Dataset) -> Dataset:
    """Take public rows and rows to measure on away; where every trial does so by itself, keep all rows together."""
    split, data = task.data.split, task.data
    if split is None or split.seed is not None:
        return _apart(dataset, data.public, data.validation)
    if data.public or data.validation >= split.train:
        raise BadInput(
            "where every trial splits the rows anew, there are no public rows, and some must be left to train on",
            where="data.public" if data.public else "data.validation",
            hint="data.split.seed = 0 has one split for all trials",
        )
    rows = np.concatenate([dataset.train_rows, dataset.test_rows])
    labels = np.concatenate([dataset.train_labels, dataset.test_labels])
    if split.train + split.test > len(rows):
        raise BadInput(f"{dataset.name} has {len(rows)} rows in all", where="data.split", hint="fewer rows")
    aside: dict[str, Any] = {"validation_rows": rows[:1], "validation_labels": labels[:1]} if data.validation else {}
    return replace(
        dataset,
        train_rows=rows,
        train_labels=labels,
        test_rows=rows[:1],
        test_labels=labels[:1],
        train_owners=None,
        **aside,
    )


def measured_on(dataset: Dataset) -> dict[str, tuple[Rows, Ints]]:
    """Return rows and labels behind each error that is measured, by the name of the measurement."""
    found = {"test_error": (dataset.test_rows, dataset.test_labels)}
    if dataset.validation_rows is not None and dataset.validation_labels is not None:
        found["validation_error"] = (dataset.validation_rows, dataset.validation_labels)
    return found


def measured_errors(task: Task, parameters: Tree, dataset: Dataset, trial: int = 0) -> dict[str, float]:
    """Measure a model without compiling."""
    model = task.model_for(NUMPY)
    split = trial_split(task, len(dataset.train_labels), trial)
    tables = measured_on(dataset)
    if split:
        tables = {name: (dataset.train_rows[own], dataset.train_labels[own]) for name, own in split.measured.items()}
    return {name: float(np.mean(model.predict(parameters, rows) != labels)) for name, (rows, labels) in tables.items()}


def _require_public_fit(task: Task) -> None:
    """Refuse to fit on private rows what a sound task would publish: mean and directions say much about them."""
    learning = [own.kind for own in task.data.transform if own.learns]
    if task.privacy.mode == "sound" and learning and not task.data.public:
        raise BadInput(
            f"{' and '.join(learning)} fitted on private rows would be a release that nothing accounts for",
            where="data.public",
            hint="public = 1000 declares so many rows public: transforms are fitted on them, and no device holds them; "
            'or mode = "paper", where the result says "not accounted"; a live task is given a file of public rows',
        )


def _apart(dataset: Dataset, public: int, validation: int) -> Dataset:
    """Take public rows and rows to measure on away from the training rows, in a fixed random order.

    The first rows are public, the last are held back.
    """
    rows = len(dataset.train_labels)
    if public + validation >= rows and (public or validation):
        raise BadInput(
            f"{public + validation} of {rows} training rows leave none to train on",
            where="data.validation" if validation else "data.public",
            hint="a tenth is usual",
        )
    if not public and not validation:
        return dataset
    order = np.random.RandomState(0).permutation(rows)
    train = order[public : rows - validation]
    left = replace(
        dataset,
        train_rows=dataset.train_rows[train],
        train_labels=dataset.train_labels[train],
        train_owners=None if dataset.train_owners is None else dataset.train_owners[train],
    )
    if validation:
        aside = order[rows - validation :]
        left = replace(left, validation_rows=dataset.train_rows[aside], validation_labels=dataset.train_labels[aside])
    if public:
        known = order[:public]
        left = replace(left, public_rows=dataset.train_rows[known], public_labels=dataset.train_labels[known])
    return left


def _checked(task: Task) -> Dataset:
    if task.data.dataset is None:
        raise BadInput(
            "a simulation needs a dataset",
            where="data.dataset",
            hint='such as dataset = "digits"; see: crowdml data list',
        )
    try:
        dataset = load_dataset(task.data.dataset)
    except BadInput as error:
        raise BadInput(error.what, where=error.where or "data.dataset", hint=error.hint) from None
    if dataset.features != task.data.features:
        raise BadInput(
            f'features = {task.data.features}, but a row of "{dataset.name}" has {dataset.features} numbers',
            where="data.features",
            hint=f"features = {dataset.features}",
        )
    if dataset.classes != len(task.data.labels):
        raise BadInput(
            f'{len(task.data.labels)} labels for a dataset "{dataset.name}" with {dataset.classes} classes',
            where="data.labels",
            hint="one label for each of: " + ", ".join(dataset.label_names),
        )
    return _split(task, dataset)


def _split(task: Task, dataset: Dataset) -> Dataset:
    split = task.data.split
    if split is None or split.seed is None:
        return dataset
    try:
        return resplit(dataset, split.train, split.test, np.random.default_rng(split.seed))
    except BadInput as error:
        raise BadInput(error.what, where="data.split") from None
