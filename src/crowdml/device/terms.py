"""A device's terms: the task of a sheet, with the owner's own ε where one was chosen, and what the ledger is told."""

from __future__ import annotations

import dataclasses

from crowdml.algorithms.live import LiveTask, open_task
from crowdml.algorithms.task_errors import BadKey
from crowdml.core import NUMPY, BadInput
from crowdml.core.errors import MalformedMessage
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


def _open(sheet: Sheet) -> LiveTask:
    try:
        return open_task(sheet)
    except BadKey as error:
        raise MalformedMessage(f"the sheet defines no task: {error.where}: {error.what}") from None
