"""The promise of a task in plain words, the same wherever it is shown: who is promised what, and what that rests on.

Where every device adds all the noise its own messages need, a promise rests on that device alone. Where messages are
masked each device adds only a share, so the promise also rests on other devices and on cryptography: it must never be
shown as if it were of the first kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from crowdml.core import record
from crowdml.privacy import Plan, Promise

if TYPE_CHECKING:
    from crowdml.task.task import Task


NOBODY = "Nobody but the device itself has to be trusted for that, not even the server."
"""On whom a promise rests where each device adds all its noise; never said where check-ins are aggregated securely."""


@record
class PromiseWords:
    """What owners are promised.

    Attributes:
        promise: Who is promised what.
        rests_on: What has to be so for it to hold, in sentences.
        short: The same in a few words, for a line of a report.
    """

    promise: str
    rests_on: str
    short: str


def promise_words(task: Task, plan: Plan) -> PromiseWords:
    """Say what a task that devices can join promises to owners."""
    if not plan.terms.promised:
        return _of_nothing(task)
    return PromiseWords(promise=_promised(plan), rests_on=rests_on(task, plan), short=_short(plan))


def rests_on(task: Task, plan: Plan) -> str:
    """Say what has to be so for the promise to hold."""
    shared, masking, settings = plan.last.shared, task.masking(), task.secure_aggregation
    if shared is None or masking is None:
        return (
            "Each device adds all the noise this takes by itself, and its ledger refuses what would go beyond. "
            + NOBODY
        )
    return (
        "It rests on secure aggregation and on other devices, not on this device alone, which adds only a share of "
        f"the noise. It holds if every sum has the shares of at least {shared.survivors} honest devices: at least "
        f"{masking.least} of the {masking.invited} invited have to stay until the end ({settings.drop_out:.0%} may "
        f"drop out; with fewer the sum is given up), and at most {masking.corrupt} of them may work together with the "
        f"server (honest share γ = {settings.honest:g}). It is computational: it holds against whoever cannot break "
        f"the cryptography of the masks; the server itself may break the rules (the threat model says what that rests "
        f"on). Without masks or without the others, one device's share of the noise alone would leave "
        f"ε = {alone(plan).epsilon:.3g}{_delta(plan.terms.delta)}. A sum may be given up after vectors were "
        "sent: each attempt has fresh noise and is charged as a release, and a device sends to at most "
        f"{masking.attempts} of one version."
    )


def alone(plan: Plan) -> Promise:
    """Return what is left of the promise of a masked task if no noise but the device's own share protects it."""
    cost = plan.last.without_others().cost(1, plan.terms.changing)
    if cost is None:
        raise ValueError("nothing is promised")
    return cost.event().times(plan.terms.uses).promise(plan.terms.delta)


def _promised(plan: Plan) -> str:
    terms = plan.terms
    whom = "Each sample" if terms.unit == "sample" else "Each device, with all its samples,"
    times = f"the {terms.releases} releases it may enter" if terms.releases > 1 else "the one release it may enter"
    against = "" if plan.last.shared is None else ", against whoever sees nothing but sums over many devices"
    return f"{whom} is promised ε = {terms.limit.epsilon:g}{_delta(terms.limit.delta)} over {times}{against}."


def _short(plan: Plan) -> str:
    shared = plan.last.shared
    if shared is None:
        return "this device's own noise and ledger"
    return (
        f"secure aggregation, and {shared.survivors} honest devices in every sum; this device's noise "
        f"alone leaves ε = {alone(plan).epsilon:.3g}"
    )


def _of_nothing(task: Task) -> PromiseWords:
    masking = task.masking()
    if masking is None:
        return PromiseWords(
            promise="No formal guarantee: what devices send carries no noise, and the server sees it as it is.",
            rests_on="Nothing is promised.",
            short="nothing is promised",
        )
    return PromiseWords(
        promise="No formal guarantee: the server sees sums over many devices alone, but these carry no noise.",
        rests_on=(
            f"That it sees nothing but sums of at least {masking.least} devices rests on secure aggregation: on its "
            f"cryptography, and on at most {masking.corrupt} of the {masking.invited} invited working together with "
            "the server. What a sum says about one device is not bounded."
        ),
        short="nothing is promised; secure aggregation hides all but sums",
    )


def _delta(delta: float) -> str:
    return f", δ = {delta:g}" if delta else ""
