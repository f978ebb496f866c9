"""A device's terms: the task of a sheet, with the owner's own ε where one was chosen, and what the ledger is told."""

from __future__ import annotations

import dataclasses
from typing import Any

from crowdml.algorithms.live import LiveTask, open_task
from crowdml.algorithms.task_errors import BadKey
from crowdml.core import NUMPY, BadInput
from crowdml.core.errors import MalformedMessage
from crowdml.device.row_contract import Contract
from crowdml.device.rows import KeptRows, source_of
from crowdml.privacy import require_delta
from crowdml.privacy.ledger import Terms
from crowdml.protocol import Sheet


def build(sheet: Sheet, epsilon: float | None = None) -> LiveTask:
    """Build the task of a sheet, with the owner's own ε where one was chosen.

    What is sent has the same shape whatever ε is, and nothing in it says which was chosen: only the noise differs.
    """
    live = _open(sheet)
    if epsilon is None:
        return live
    try:
        plan = live.plan.for_owner(epsilon)
    except BadInput as error:
        raise BadInput(error.what, where="--epsilon", hint=error.hint) from None
    terms = live.task.privacy
    assert terms.epsilon is not None  # noqa: S101  where owners can choose, there is an ε
    own = {"epsilon": epsilon, "statistics_epsilon": terms.statistics_epsilon * epsilon / terms.epsilon}
    return dataclasses.replace(
        live,
        # For the owner to read; the plan and the algorithm are what runs.
        task=live.task.model_copy(update={"privacy": terms.model_copy(update=own)}),
        algorithm=live.task.build(NUMPY, owner_epsilon=epsilon),
        plan=plan,
    )


def terms_of(live: LiveTask) -> Terms:
    """Return the terms that the ledger accepts for a task."""
    return Terms.of(live.plan.sound) if live.plan.sound else Terms.of_nothing(live.task.stop.max_releases)


def require_meaning_to(live: LiveTask, rows: int) -> None:
    """Refuse a δ under which one of this device's rows might be published outright, whatever number was declared.

    The rows of other devices are not known here; those of this one are samples that are promised something.
    """
    terms = live.task.privacy
    if live.plan.sound is None or terms.unit != "sample":
        return
    try:
        require_delta(terms, rows)
    except BadInput as error:
        raise BadInput(
            f"{error.what} ({rows} is what this device alone has)",
            where=error.where,
            hint=f"{error.hint}; ask the operator",
        ) from None


def count_rows(live: LiveTask, rows: Any, label_column: str) -> int:
    """Count the rows of a file or table, which must fit the task."""
    source = source_of(rows, Contract.of(live.task.data), label_column)
    if not isinstance(source, KeptRows):
        raise BadInput("a stream cannot be counted before it has passed", where="--rows", hint="give a file")
    return len(source.table())


def _open(sheet: Sheet) -> LiveTask:
    try:
        return open_task(sheet)
    except BadKey as error:
        raise MalformedMessage(f"the sheet defines no task: {error.where}: {error.what}") from None
