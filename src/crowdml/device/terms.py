"""A device's terms: the task of a sheet, with the owner's own ε where one was chosen, and what the ledger is told."""

from __future__ import annotations

import copy
import dataclasses

from pydantic import ValidationError

from crowdml.algorithms.live import LiveTask, open_task
from crowdml.core import BadInput
from crowdml.core.errors import MalformedMessage, TermsViolated
from crowdml.privacy.ledger import Terms
from crowdml.protocol import Sheet


def build(sheet: Sheet, epsilon: float | None = None) -> LiveTask:
    """Build the task of a sheet, with the owner's own ε where one was chosen.

    What is sent has the same shape whatever ε is, and nothing in it says which was chosen: only the noise differs.
    """
    live = _open(sheet)
    if epsilon is None:
        return live
    terms = live.task.privacy
    if live.plan.sound is None or terms.epsilon is None or terms.owner_range is None:
        raise BadInput(f"{sheet.task} does not let owners choose their ε", where="--epsilon", hint="leave it out")
    low, high = terms.owner_range
    if not low <= epsilon <= high:
        raise BadInput(f"ε = {epsilon:g} is not possible here", where="--epsilon", hint=f"from {low:g} to {high:g}")
    definition = copy.deepcopy(sheet.definition)
    definition["privacy"] |= {
        "epsilon": float(epsilon),
        "statistics-epsilon": terms.statistics_epsilon * epsilon / terms.epsilon,
    }
    own = _open(dataclasses.replace(sheet, definition=definition))
    if own.messages.check_in.header != live.messages.check_in.header:
        raise TermsViolated(f"{sheet.task}: with ε = {epsilon:g} messages would have another shape")
    return own


def terms_of(live: LiveTask) -> Terms:
    """Return the terms that the ledger accepts for a task."""
    return Terms.of(live.plan.sound) if live.plan.sound else Terms.of_nothing(live.task.stop.max_releases)


def _open(sheet: Sheet) -> LiveTask:
    try:
        return open_task(sheet)
    except ValidationError as error:
        raise MalformedMessage(f"the sheet defines no task: {error.errors()[0]['msg']}") from None
