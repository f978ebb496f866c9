"""Budget: what one ε pays for, part by part, in shares that add up to all of it.

A message's update and its counts are charged as one use, under one limit. Their shares are those of the sum that
enforces (`accounting`): of Σε, of Σρ, or of ε where the ε of counts stands beside that of Gaussian noise. Inside one
message bounded in L2, a part of its squared length is the same part of μ².
"""

from __future__ import annotations

import math
from dataclasses import replace

from crowdml.core import record
from crowdml.privacy.accounting import Event
from crowdml.privacy.plan import Plan
from crowdml.privacy.releases import Releases


@record
class BudgetPart:
    """Something that is paid for.

    Attributes:
        what: In words.
        share: Its part of the budget.
    """

    what: str
    share: float


def budget_parts(plan: Plan, releases: Releases, counted: str) -> tuple[BudgetPart, ...]:
    """Say what the budget of a plan pays for; empty where nothing is promised.

    Args:
        plan: The plan.
        releases: What the algorithm sends.
        counted: What counts are of, in words.
    """
    if not plan.terms.promised:
        return ()
    if releases.sends == "pieces":
        _, rho = plan.event.apart
        share = _paid(plan, Event(pure=math.inf, rho=rho, gaussian=True)) / _paid(plan, plan.event)
        return BudgetPart(what="first sums", share=share), BudgetPart(what="labels", share=1 - share)
    cost = replace(plan.last, counts=None).cost(1, plan.terms.changing)
    assert cost is not None  # noqa: S101  what is promised has a cost
    update = _paid(plan, cost.event()) / _paid(plan, plan.event)
    inside = [BudgetPart(what=what, share=update * share) for what, share in releases.inside]
    parts = [BudgetPart(what="updates", share=update * (1 - sum(share for _, share in releases.inside))), *inside]
    return (*parts, BudgetPart(what=counted, share=1 - update)) if plan.last.counts else tuple(parts)


def _paid(plan: Plan, event: Event) -> float:
    """Return what all uses come to in the sum that enforces."""
    total, limit = event.times(plan.terms.uses), plan.terms.limit
    return total.rho if limit.kind == "rdp" else total.epsilon(limit.kind, limit.delta)


def shared_budget(parts: tuple[BudgetPart, ...]) -> str:
    """Say to an owner that several things are paid from one budget; empty where there is but one.

    >>> shared_budget((BudgetPart(what="updates", share=0.9375), BudgetPart(what="counts of labels", share=0.0625)))
    'One budget pays for all of this: 93.8% of it for updates, 6.2% for counts of labels. Nothing is spent beside it.'
    >>> shared_budget((BudgetPart(what="updates", share=1.0),))
    ''
    """
    if len(parts) < 2:
        return ""
    first, *others = parts
    rest = "".join(f", {part.share:.1%} for {part.what}" for part in others)
    paid = f"{first.share:.1%} of it for {first.what}{rest}"
    return f"One budget pays for all of this: {paid}. Nothing is spent beside it."


def budget_words(parts: tuple[BudgetPart, ...], enforced_by: str, epsilon: float) -> str:
    """Say it in a sentence."""
    said = ", ".join(f"{part.share:.1%} for {part.what}" for part in parts)
    return (
        f"one budget of ε = {epsilon:g} pays for all that is sent: {said} (of {enforced_by}); public rows that a "
        "server has of its own, and an error that it measures on them, cost nothing of it"
    )
