"""Arrays handed to the algorithm: matrices for correlated noise, optimised by jax-privacy, and public rows."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.algorithms import Task
from crowdml.algorithms.averaging_terms import public_rows_needed
from crowdml.algorithms.correlated import MATRIX
from crowdml.algorithms.public import LABELS, ROWS, require_labels
from crowdml.core import NUMPY
from crowdml.privacy import Plan
from crowdml.privacy.banded import rows_of
from crowdml.simulation.prepare import prepare


def numbers(task: Task) -> dict[str, Any]:
    """Return a task's hyper-parameters, with a matrix for correlated noise and public rows where it needs them."""
    plan = task.plan(task.model_for(NUMPY))
    own: dict[str, Any] = dict(task.hyper(plan))
    if plan.banded:
        own[MATRIX] = rows_of(columns_for(plan)).astype(np.float32)
    if needed := public_rows_needed(task):
        dataset = prepare(task)[1]
        assert dataset.public_labels is not None  # noqa: S101  the task was checked
        require_labels(dataset.public_labels, task.data.labels, needed)
        own[ROWS], own[LABELS] = dataset.public_rows, dataset.public_labels.astype(np.float32)
    return own


def columns_for(plan: Plan) -> npt.NDArray[np.float64]:
    """Return the matrix of a plan by its columns."""
    assert plan.banded is not None  # noqa: S101  the caller asked
    return banded_columns(plan.banded.releases, plan.banded.bands)


@functools.lru_cache(maxsize=16)
def banded_columns(releases: int, bands: int) -> npt.NDArray[np.float64]:
    """Return the banded matrix whose sums over releases carry the least noise, columns of norm 1.

    What is least is the mean over all releases of the squared error of the sum so far (McKenna 2024, "Scaling up the
    banded matrix factorization mechanism"). Shape (releases, bands): see `crowdml.privacy.banded`.
    """
    from jax_privacy.matrix_factorization import banded

    found = np.array(banded.optimize(releases, bands=bands).params, np.float64)
    # What lies below the last row of the matrix belongs to no column.
    found[np.add.outer(np.arange(releases), np.arange(bands)) >= releases] = 0.0
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    found.setflags(write=False)
    return found
