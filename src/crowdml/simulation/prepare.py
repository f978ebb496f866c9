"""Preparing a simulation: the dataset a task names, checked and transformed, and the numbers its algorithm is given."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.algorithms.aggregation.public_rows import ROWS, TARGETS, require_targets
from crowdml.core import NUMPY, BadInput, Labels, Number
from crowdml.core.ops import Tree
from crowdml.data import Dataset, Fitted, resplit
from crowdml.data import load as load_dataset
from crowdml.data.dataset import Ints, Rows
from crowdml.data.transforms import fit_all
from crowdml.models import Model
from crowdml.privacy import require_delta
from crowdml.privacy.noise.banded import Banded, rows_of
from crowdml.privacy.sanitisers.correlated import MATRIX
from crowdml.simulation import own_data
from crowdml.simulation.engine import start_jax
from crowdml.simulation.shared_rows import make_room
from crowdml.simulation.timeline.trial_crowd import rows_handed_out, trial_split
from crowdml.task import Task
from crowdml.task.averaging_terms import public_rows_needed

_prepared: dict[str, tuple[list[Fitted], Dataset]] = {}


def prepare(task: Task) -> tuple[list[Fitted], Dataset]:
    """Load, check and transform the dataset of a task. The last one is kept: a sweep prepares its data once."""
    prepared = _prepare(task)
    if task.calibrated.terms.promised:
        _require_whole_samples(task, len(prepared[1].train_targets))
        require_delta(task.privacy.delta, promised_units(task, prepared[1]), task.privacy.unit)
    return prepared


def _require_whole_samples(task: Task, rows: int) -> None:
    """Refuse to promise something to samples that are on several devices: each device keeps it by itself."""
    handed = rows_handed_out(task, rows)
    if handed > rows and task.privacy.unit == "sample":
        raise BadInput(
            f"{handed} rows would be handed out of {rows}, so some samples would be on several devices: what is "
            "promised to a sample holds on one",
            where="crowd.rows" if task.crowd.rows else "crowd.devices",
            hint=f'at most {rows}; or privacy.unit = "device", or a mode that promises nothing',
        )


def promised_units(task: Task, dataset: Dataset) -> int:
    """Count the samples or devices of a simulated crowd that the terms are about."""
    samples = task.data.split.train if task.data.split else len(dataset.train_targets)
    return samples if task.privacy.unit == "sample" else task.crowd.devices


def _prepare(task: Task) -> tuple[list[Fitted], Dataset]:
    _require_public_fit(task)
    key = task.data.model_dump_json()
    if key not in _prepared:
        checked, disposable = _checked(task)
        dataset = _parted(task, checked)
        del checked
        _prepared.clear()
        rows = dataset.public_rows
        _prepared[key] = fit_all(task.data.transform, dataset, rows, make_room, in_place=disposable)
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
    labels = np.concatenate([dataset.train_targets, dataset.test_targets])
    if split.train + split.test > len(rows):
        raise BadInput(f"{dataset.name} has {len(rows)} rows in all", where="data.split", hint="fewer rows")
    aside: dict[str, Any] = {"validation_rows": rows[:1], "validation_targets": labels[:1]} if data.validation else {}
    return replace(
        dataset,
        train_rows=rows,
        train_targets=labels,
        test_rows=rows[:1],
        test_targets=labels[:1],
        train_owners=None,
        **aside,
    )


def measured_on(dataset: Dataset) -> dict[str, tuple[Rows, Ints]]:
    """Return rows and targets to measure on: the test rows, and those held back where there are some."""
    found = {"test": (dataset.test_rows, dataset.test_targets)}
    if dataset.validation_rows is not None and dataset.validation_targets is not None:
        found["validation"] = (dataset.validation_rows, dataset.validation_targets)
    return found


def measured_errors(task: Task, parameters: Tree, dataset: Dataset, trial: int = 0) -> dict[str, float]:
    """Measure a model without compiling."""
    model = task.model_for(NUMPY)
    split = trial_split(task, len(dataset.train_targets), trial)
    tables = measured_on(dataset)
    if split:
        tables = {name: (dataset.train_rows[at], dataset.train_targets[at]) for name, at in split.measured.items()}
    found: dict[str, float] = {}
    for of, (rows, targets) in tables.items():
        measures = task.target.measures(model.predict(parameters, rows), targets, NUMPY, of)
        measures |= measured_loss(task, model, parameters, rows, targets, of)
        found |= {name: float(value) for name, value in measures.items()}
    return found


def measured_loss(
    task: Task, model: Model, parameters: Tree, rows: Any, targets: Any, of: str = "test"
) -> dict[str, Any]:
    """Measure the mean loss, without the regulariser, where the task asks for it; otherwise nothing.

    Args:
        task: The task.
        model: Its model, for whichever array operations.
        parameters: The model's parameters.
        rows: Rows after transforms.
        targets: What they should be mapped to.
        of: Which rows these are: `test` or `validation`.
    """
    if "loss" not in task.crowd.measure:
        return {}
    outputs = model.ops.in_parts(lambda some: model.outputs(parameters, some), rows, model.rows_at_once)
    return {f"{of}_loss": model.ops.xp.mean(model.loss.values(outputs, targets))}


def _require_public_fit(task: Task) -> None:
    """Refuse to fit on private rows what a sound task would publish: mean and directions say much about them."""
    learning = [transform.kind for transform in task.data.transform if transform.learns]
    if task.calibrated.terms.promised and learning and not task.data.public:
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
    rows = len(dataset.train_targets)
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
        train_targets=dataset.train_targets[train],
        train_owners=None if dataset.train_owners is None else dataset.train_owners[train],
    )
    if validation:
        aside = order[rows - validation :]
        left = replace(left, validation_rows=dataset.train_rows[aside], validation_targets=dataset.train_targets[aside])
    if public:
        known = order[:public]
        left = replace(left, public_rows=dataset.train_rows[known], public_targets=dataset.train_targets[known])
    return left


def _checked(task: Task) -> tuple[Dataset, bool]:
    """Return the rows that a task names, and whether nobody else has them."""
    if (found := own_data.take(task)) is not None:
        return _split(task, found[0]), found[1]
    if task.data.dataset is None:
        raise BadInput(
            "a simulation needs a dataset",
            where="data.dataset",
            hint='such as dataset = "digits" (see: crowdml data list), or rows of your own: file = "rows.csv"',
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
    if isinstance(dataset.target, Number) != isinstance(task.target, Number):
        raise BadInput(
            f'a row of "{dataset.name}" is mapped to {dataset.target.described}',
            where="data",
            hint="give target = { name = …, low = …, high = … }, not labels"
            if isinstance(dataset.target, Number)
            else "give labels, not a target",
        )
    if isinstance(dataset.target, Labels) and dataset.classes != len(task.data.labels):
        raise BadInput(
            f'{len(task.data.labels)} labels for a dataset "{dataset.name}" with {dataset.classes} classes',
            where="data.labels",
            hint="one label for each of: " + ", ".join(dataset.label_names),
        )
    return _split(task, dataset.with_target(task.target)), False


def _split(task: Task, dataset: Dataset) -> Dataset:
    split = task.data.split
    if split is None or split.seed is None:
        return dataset
    try:
        return resplit(dataset, split.train, split.test, np.random.default_rng(split.seed))
    except BadInput as error:
        raise BadInput(error.what, where="data.split") from None


def numbers(task: Task) -> dict[str, Any]:
    """Return a task's hyper-parameters, with a matrix for correlated noise and public rows where it needs them."""
    plan = task.calibrated
    handed: dict[str, Any] = dict(task.hyper(plan))
    if shape := plan.last.wants_matrix:
        handed[MATRIX] = rows_of(columns_for(shape)).astype(np.float32)
    if needed := public_rows_needed(task):
        dataset = prepare(task)[1]
        assert dataset.public_targets is not None  # noqa: S101  the task was checked
        require_targets(dataset.public_targets, task.target, needed)
        handed[ROWS], handed[TARGETS] = dataset.public_rows, dataset.public_targets.astype(np.float32)
    return handed


def columns_for(shape: Banded) -> npt.NDArray[np.float64]:
    """Return the matrix of this shape by its columns."""
    return banded_columns(shape.releases, shape.bands)


@functools.lru_cache(maxsize=16)
def banded_columns(releases: int, bands: int) -> npt.NDArray[np.float64]:
    """Return the banded matrix whose sums over releases carry the least noise, columns of norm 1.

    What is least is the mean over all releases of the squared error of the sum so far (McKenna 2024, "Scaling up the
    banded matrix factorization mechanism"). Shape (releases, bands): see `crowdml.privacy.noise.banded`.
    """
    start_jax()  # it is worked out in this process
    from jax_privacy.matrix_factorization import banded

    found = np.array(banded.optimize(releases, bands=bands).params, np.float64)
    # What lies below the last row of the matrix belongs to no column.
    found[np.add.outer(np.arange(releases), np.arange(bands)) >= releases] = 0.0
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    found.setflags(write=False)
    return found
