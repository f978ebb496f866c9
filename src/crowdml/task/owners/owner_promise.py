"""Everything an owner is told of a task, as one record: odds first, then ε; what leaves a device; who sees what.

    told = owner_promise(live.task, live.plan)     # worked out once for a task: keep it, it never changes
    told.row.words, told.device.words              # the promise in odds, for one row and for all of them
    told.row.dots.svg("row") if told.row.dots      # ten by ten dots, or .text() for a terminal
    told.in_epsilon, told.rests_on                 # the same in ε, and what it rests on
    told.one_budget                                # what shares the budget, where several things do
    told.leaves_plainly                            # what a message is made of: .what, .size, .plainly
    told.sees                                      # who x what: .audience, .fact, .answer, .words
    told.members                                   # who of a group sees what, as pairs
    told.to_json()                                 # all of it as plain values

A server has it as `RunningTask.promise`. `privacy explain`, `device join`, pages and exported models show this record.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from crowdml.core import BadInput, record
from crowdml.privacy import Plan
from crowdml.privacy.accounting import Unit
from crowdml.privacy.budget import BudgetPart, budget_parts, shared_budget
from crowdml.privacy.odds import Odds
from crowdml.task.live_task import require_live
from crowdml.task.message_parts import MessagePart, message_parts
from crowdml.task.owners.dots import Dots
from crowdml.task.owners.promise_words import in_epsilon, noise_at_cut, rests_on, same_sample, short, trust
from crowdml.task.owners.unit_totals import GROWS, NOT_LIMITED, UnitTotal, whole_task
from crowdml.task.owners.who_sees import AUDIENCES, FACTS, Sight, sights_of, who_sees
from crowdml.task.task import Task

GAME = "Somebody has two rows, knows all your others, and must guess which of the two is among yours."
GAME_OF_ALL = "Somebody has two whole collections of rows and must guess which of the two is yours."
COIN = "A coin is right 50 times in 100. If you do not join, it stays 50."


@record
class OddsOf:
    """What is promised about one row, or about all rows of a device, in odds.

    Attributes:
        unit: Which.
        odds: How often the best guess is right; None where nothing limits it.
        words: The promise in sentences that need no formula.
        promised: Whether this is what the ledger enforces, and not what follows from it.
    """

    unit: Unit
    odds: Odds | None
    words: str
    promised: bool

    @property
    def dots(self) -> Dots | None:
        """The same as a hundred dots; None where nothing is promised."""
        if self.odds is None or not self.odds.says_something:
            return None
        return Dots(right=self.odds.of_100, about="one of your rows" if self.unit == "sample" else "all your rows")

    @property
    def short(self) -> str:
        """The same in a few words, for a line of a report."""
        return odds_in_words(self.odds)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        odds = self.odds.to_json() if self.odds else None
        return {"odds": odds, "words": self.words, "promised": self.promised}


@record
class OwnerPromise:
    """What an owner is told.

    Attributes:
        guaranteed: Whether anything is promised.
        only_simulated: Why no device can join, where none can; otherwise empty.
        row: What is promised about one row, in odds.
        device: What is promised about all rows of a device together.
        in_epsilon: Who is promised what, in ε.
        rests_on: What has to be so for it to hold, in sentences.
        short: What it rests on in a few words, for a line of a report.
        trust: Whom an owner has to trust, and whom not, in a sentence.
        leaves: What leaves a device with every check-in.
        sees: Who sees what.
        members: Who of those that work with a device sees what, where there are such.
        sample: What counts as the same row, and whether the promise depends on it.
        budget: What the one budget pays for, in shares of it; empty where nothing is promised.
    """

    guaranteed: bool
    only_simulated: str
    row: OddsOf
    device: OddsOf
    in_epsilon: str
    rests_on: str
    short: str
    trust: str
    leaves: tuple[MessagePart, ...]
    sees: tuple[Sight, ...]
    members: tuple[tuple[str, str], ...]
    sample: tuple[str, ...]
    budget: tuple[BudgetPart, ...]

    @property
    def one_budget(self) -> str:
        """That updates, counts and whatever else is sent share one budget; empty where there is nothing to share."""
        return shared_budget(self.budget)

    @property
    def when(self) -> str:
        """When something leaves a device."""
        return "while its group trains" if self.members else "with every check-in"

    @property
    def leaves_plainly(self) -> tuple[MessagePart, ...]:
        """What leaves a device, parts of which the same is to be said taken together."""
        return _together(self.leaves, "what", "plainly")

    @property
    def leaves_in_full(self) -> tuple[MessagePart, ...]:
        """The same where figures are said of the protection, too."""
        return _together(self.leaves, "what", "plainly", "protection")

    @property
    def promised(self) -> OddsOf:
        """What the ledger enforces; of one row where nothing is promised."""
        return self.device if self.device.promised else self.row

    @property
    def in_odds(self) -> str:
        """The whole promise in odds, in the order in which an owner should read it."""
        first, second = (self.device, self.row) if self.device.promised else (self.row, self.device)
        return f"{first.words} {second.words}".strip()

    @property
    def metadata(self) -> dict[str, str]:
        """What a file with the model says to whoever gets it."""
        if not self.guaranteed:
            return {"odds": "no formal guarantee"}
        return {
            "odds": f"no method guesses right more than {self.promised.short}, with all that the task will ever send",
            "odds of one row": self.row.short,
            "odds of all rows of a device": self.device.short,
        }

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "guaranteed": self.guaranteed,
            "only_simulated": self.only_simulated,
            "in_odds": self.in_odds,
            "row": self.row.to_json(),
            "device": self.device.to_json(),
            "in_epsilon": self.in_epsilon,
            "rests_on": self.rests_on,
            "trust": self.trust,
            "leaves": [vars(part) for part in self.leaves],
            "sees": {
                "audiences": dict(AUDIENCES),
                "facts": dict(FACTS),
                "cells": [vars(sight) for sight in self.sees],
            },
            "members": dict(self.members),
            "sample": list(self.sample),
        }


def _together(parts: tuple[MessagePart, ...], *same: str) -> tuple[MessagePart, ...]:
    """Take parts together that have these values in common."""
    found = dict[tuple[str, ...], MessagePart]()
    for part in parts:
        known = found.get(key := tuple(getattr(part, name) for name in same))
        found[key] = replace(known, size_bytes=known.size_bytes + part.size_bytes) if known else part
    return tuple(found.values())


def owner_promise(task: Task, plan: Plan | None = None) -> OwnerPromise:
    """Say what a task means for owners.

    Args:
        task: The task.
        plan: Bound, noise and promise; not given: the task's own, not that of an owner who has chosen an ε.
    """
    plan = plan or task.calibrated
    totals, parts, sights = whole_task(task, plan), message_parts(task, plan), sights_of(task)
    return OwnerPromise(
        guaranteed=plan.terms.promised,
        only_simulated=why_only_simulated(task),
        row=_of_row(task, plan, totals["sample"]),
        device=_of_device(task, plan, totals["device"]),
        in_epsilon=in_epsilon(task, plan),
        rests_on=rests_on(task, plan),
        short=short(task, plan),
        trust=trust(task, plan),
        leaves=parts,
        sees=who_sees(task, plan, parts, totals),
        members=tuple(sights.members.items()) if sights else (),
        sample=same_sample(task, plan),
        budget=budget_parts(plan, task.releases, f"counts of errors and {task.target.noun}s"),
    )


def odds_in_words(odds: Odds | None) -> str:
    """Write odds in a few words.

    >>> odds_in_words(Odds(success=0.7781, by="")), odds_in_words(None)
    ('78 times in 100', 'nothing is promised')
    """
    return f"{odds.of_100} times in 100" if odds else "nothing is promised"


def why_only_simulated(task: Task) -> str:
    """Say why only a simulation can run a task; empty where devices can join it."""
    try:
        require_live(task)
    except BadInput as error:
        return error.what
    return ""


def _of_row(task: Task, plan: Plan, total: UnitTotal) -> OddsOf:
    promised = plan.terms.promised and plan.terms.unit == "sample"
    return OddsOf(unit="sample", odds=total.odds, words=_row_words(task, plan, total), promised=promised)


def _row_words(task: Task, plan: Plan, total: UnitTotal) -> str:
    if task.releases.sends == "nothing":
        return "Nothing leaves your device, so nobody can guess better than a coin."
    if not plan.terms.promised:
        return _no_promise(task, plan)
    if plan.terms.unit == "device":
        told = f"no method is right more than {total.odds.of_100} times in 100" if total.odds else "nothing is promised"
        return f"About one of your rows alone {told}."
    return f"{GAME} {COIN} {_joined(total.odds, plan)}"


def _of_device(task: Task, plan: Plan, total: UnitTotal) -> OddsOf:
    promised = plan.terms.promised and plan.terms.unit == "device"
    return OddsOf(unit="device", odds=total.odds, words=_device_words(plan, total), promised=promised)


def _device_words(plan: Plan, total: UnitTotal) -> str:
    if not plan.terms.promised:
        return ""
    if plan.terms.unit == "device":
        return f"{GAME_OF_ALL} {COIN} {_joined(total.odds, plan)}"
    if total.odds and total.odds.says_something:
        return f"About all your rows together no method is right more than {total.odds.of_100} times in 100."
    why = {
        GROWS: ": the more rows you have, the more can be told about all of them",
        NOT_LIMITED: ": nothing limits how often your device sends",
    }
    return f"About all your rows together nothing is promised{why.get(total.missing, '')}."


def _joined(odds: Odds | None, plan: Plan) -> str:
    sent = "all this task will ever send" if plan.last.shared is None else "all sums this task will ever make"
    if odds is None or not odds.says_something:
        return f"If you join, a method may be right nearly every time, with {sent}: this promise is too weak to help."
    return f"If you join, no method is right more than {odds.of_100} times in 100, with {sent}."


def _no_promise(task: Task, plan: Plan) -> str:
    """Say that nothing is promised, and why."""
    if why_only_simulated(task):
        return "Only a simulation can run this task. No device can join it, and nobody is promised anything."
    sums = "Only sums over many devices can be read, but they carry no noise."
    sent = sums if task.masking() else "What your device sends carries no noise."
    if noise_at_cut(task):
        sent = "Sums of your rows carry noise, but members of your group see your labels exactly."
    return f"Nothing is promised. {sent} {GAME} {COIN} If you join, a method may be right 100 times in 100."
