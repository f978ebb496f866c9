"""Preparing a simulation: the dataset a task names, checked against the task and transformed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from crowdml.algorithms import Task
from crowdml.core import BadInput
from crowdml.data import Dataset, Fitted
from crowdml.data import load as load_dataset
from crowdml.data.transforms import fit_all
from crowdml.privacy import require_meaning

_prepared: dict[str, tuple[list[Fitted], Dataset]] = {}


def prepare(task: Task) -> tuple[list[Fitted], Dataset]:
    """Load, check and transform the dataset of a task. The last one is kept: a sweep prepares its data once."""
    prepared = _prepare(task)
    samples = len(prepared[1].train_labels)
    require_meaning(task.privacy, samples if task.privacy.unit == "sample" else task.crowd.devices)
    return prepared


def _prepare(task: Task) -> tuple[list[Fitted], Dataset]:
    key = task.data.model_dump_json()
    if key not in _prepared:
        dataset = _held_back(_checked(task), task.data.validation)
        _prepared.clear()
        _prepared[key] = fit_all(task.data.transform, dataset)
    return _prepared[key]


def _held_back(dataset: Dataset, validation: int) -> Dataset:
    """Put the last training rows of a fixed random order into the place of the test rows, which stay unseen."""
    if not validation:
        return dataset
    if validation >= len(dataset.train_labels):
        raise BadInput(
            f"{validation} of {len(dataset.train_labels)} training rows leave none to train on",
            where="data.validation",
            hint="a tenth is usual",
        )
    order = np.random.RandomState(0).permutation(len(dataset.train_labels))
    train, test = order[:-validation], order[-validation:]
    return replace(
        dataset,
        train_rows=dataset.train_rows[train],
        train_labels=dataset.train_labels[train],
        train_owners=None if dataset.train_owners is None else dataset.train_owners[train],
        test_rows=dataset.train_rows[test],
        test_labels=dataset.train_labels[test],
        note=f"measured on {validation} rows held back from training, not on the test rows",
    )


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
    return dataset
