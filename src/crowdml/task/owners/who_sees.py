"""Who sees what: four kinds of people by five things they might want to know, worked out from what a task sends.

It says what each learns *from the task*. Rows themselves are sent by no live task; what can be told of them from what
is sent is limited by the odds of the promise, or by nothing. That somebody takes part, when, and with how many rows is
no part of any promise: it says who is told.
"""

from __future__ import annotations

from typing import Literal, cast

from crowdml.algorithms.recipe import Sights
from crowdml.core import record
from crowdml.privacy import Plan
from crowdml.privacy.accounting import Unit
from crowdml.task.message_parts import MessagePart
from crowdml.task.owners.unit_totals import UnitTotal
from crowdml.task.task import Task

Audience = Literal["operator", "intruder", "owners", "anyone"]
Fact = Literal["rows", "row", "part", "when", "count"]
Answer = Literal["no", "odds", "yes", "unlimited"]
"""Not told; a guess that the promise limits; told; anything that can be worked out."""

AUDIENCES: dict[Audience, str] = {
    "operator": "the operator of the server",
    "intruder": "somebody who breaks into the server",
    "owners": "other owners",
    "anyone": "anyone who has the model",
}
FACTS: dict[Fact, str] = {
    "rows": "all your rows together",
    "row": "one of your rows",
    "part": "that you take part",
    "when": "when you take part",
    "count": "how many rows you have",
}


@record
class Sight:
    """What one kind of people learns of one thing.

    Attributes:
        audience: Who.
        fact: What.
        answer: In a word.
        words: In a few words.
    """

    audience: Audience
    fact: Fact
    answer: Answer
    words: str


def who_sees(
    task: Task, plan: Plan, parts: tuple[MessagePart, ...], totals: dict[Unit, UnitTotal]
) -> tuple[Sight, ...]:
    """Work out the table, audience by audience."""
    found = []
    for audience in AUDIENCES:
        for fact in FACTS:
            answer, words = _told(task, plan, parts, totals, audience, fact)
            found.append(Sight(audience=audience, fact=fact, answer=answer, words=words))
    return tuple(found)


def sights_of(task: Task) -> Sights | None:
    """Return what a task's devices show to each other, where its algorithm lets them."""
    if task.recipe.sights is None:
        return None
    return task.recipe.sights(task.algorithm, task.calibrated.terms.promised)


def _told(
    task: Task,
    plan: Plan,
    parts: tuple[MessagePart, ...],
    totals: dict[Unit, UnitTotal],
    audience: Audience,
    fact: Fact,
) -> tuple[Answer, str]:
    if task.releases.sends == "nothing":
        return "no", "no: nothing leaves your device"
    sights = sights_of(task)
    if sights is not None and (audience, fact) in sights.told:
        answer, words = sights.told[audience, fact]
        return cast(Answer, answer), words
    if fact in ("rows", "row"):
        counts = any(part.name.startswith("counts/") for part in parts)
        return _of_rows(task, plan, totals["device" if fact == "rows" else "sample"], audience, counts)
    at_server = audience in ("operator", "intruder")
    if fact == "count":
        return _of_count(task, parts, at_server)
    if at_server:
        return "yes", _of_server(audience, fact)
    if audience == "owners" and task.masking() is not None:
        beside = "in the sums they share with you"
        return "yes", f"a key without your name, {beside}" if fact == "part" else f"yes, {beside}"
    # Statistics of a task are public, and go on with every check-in: whoever watches them sees when one came.
    seen = "how many devices take part" if fact == "part" else "when a message comes, but not whose it is"
    return "no", f"no; everybody may see {seen}"


def _of_rows(task: Task, plan: Plan, total: UnitTotal, audience: Audience, counts: bool) -> tuple[Answer, str]:
    """What they can tell of rows: where something is promised everybody's guess has the same limit.

    Without noise a message's counts are public as they are: they are what the sums of the statistics grow by.
    """
    if plan.terms.promised:
        if total.odds and total.odds.says_something:
            return "odds", f"a guess, right {total.odds.of_100} times in 100 at most"
        return "unlimited", "not sent, but nothing is promised about a guess"
    if task.releases.sends == "rows" and audience in ("operator", "intruder"):
        noisy = plan.last.adds_noise
        return ("unlimited", "with noise of a simulation") if noisy else ("yes", "yes: your device sends them")
    if audience in ("owners", "anyone"):
        told = "the model and the public counts tell" if counts else "the model tells"
        return "unlimited", f"only what {told}, which nothing limits"
    if task.masking():
        return "unlimited", "only what sums of many devices tell, which nothing limits"
    return "unlimited", "not sent, but often to be worked out from what is sent"


def _of_count(task: Task, parts: tuple[MessagePart, ...], at_server: bool) -> tuple[Answer, str]:
    if not at_server:
        counted = any(part.counts_rows for part in parts)
        behind = "a sum" if task.masking() else "a message"
        return "no", f"no; everybody may see how many rows are behind {behind}, but not whose" if counted else "no"
    if task.releases.sends == "rows":
        return "yes", "yes: it has them"
    if tells_rows(parts):
        return "yes", "yes: every message says how many rows are behind it"
    if any(part.counts_rows for part in parts):
        return "no", "no: only how many all devices of a sum have together"
    by_batches = task.schedule is not None and not task.schedule.whole
    return "no", "not told, but more rows make more messages" if by_batches else "no"


def tells_rows(parts: tuple[MessagePart, ...]) -> bool:
    """Tell whether a message says in clear how many rows its device has looked at."""
    return any(part.clear and part.counts_rows for part in parts)


def _of_server(audience: Audience, fact: Fact) -> str:
    if audience == "operator":
        return "yes, and your network address" if fact == "part" else "yes: when each message comes"
    return "yes: the list of devices is kept" if fact == "part" else "yes: when you joined, and all after the break-in"
