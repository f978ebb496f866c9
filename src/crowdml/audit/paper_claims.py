"""Auditing a paper's formula: what it claims, what we say that it really gives, and what an attack proves.

Nobody is promised anything in mode `paper`, and noise is a simulation's. What is tried is whether our own figure holds,
and whether the paper's does: an ε that is claimed for each release says nothing of several.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np

from crowdml.audit.attack import Claim, Finding, attack
from crowdml.audit.audit_drawing import draw_findings
from crowdml.audit.audit_report import ROUNDING, Shown, finding_json
from crowdml.audit.bounds import Confidence
from crowdml.audit.neighbours import Bench, search
from crowdml.audit.promises import Watch, apart_in, within
from crowdml.audit.simulated import ChanceSums, sampled_steps, simulated
from crowdml.audit.worlds import sends
from crowdml.core import NUMPY, BadInput, record
from crowdml.privacy.noise.laws import Mechanism
from crowdml.task import Task


@record
class PaperAudit:
    """What was found out about a paper's formula.

    Attributes:
        task: The task's name.
        recipe: Its algorithm.
        claimed: ε and δ that the paper claims.
        over: Over what it claims them.
        apart: How far apart the worst neighbours' messages are, as a share of what the formula supposes.
        findings: One for each bound, beside what it really gives.
        confidence: Probability that all bounds hold together.
        unproven: What the paper claims without a proof that covers it; empty where nothing is.
    """

    task: str
    recipe: str
    claimed: tuple[float, float]
    over: str
    apart: float
    findings: tuple[Finding, ...]
    confidence: float
    unproven: str = ""

    @property
    def holds(self) -> bool:
        """Whether nothing was found against what we say that it really gives."""
        return self.apart <= 1 + ROUNDING and all(finding.holds for finding in self.findings)

    @property
    def refuted(self) -> tuple[Finding, ...]:
        """Bounds above what the paper claims."""
        return tuple(finding for finding in self.findings if finding.bound > self.claimed[0])

    @property
    def verdict(self) -> str:
        """Say in a sentence what was found."""
        if self.apart > 1 + ROUNDING:
            return f"BROKEN: two neighbours' messages are {self.apart:.3g} times as far apart as the formula supposes"
        broken = [finding for finding in self.findings if not finding.holds]
        if broken:
            return f"BROKEN: {broken[0].what}: ε is at least {broken[0].bound:.3g}, more than we say"
        if self.refuted:
            worst = max(self.refuted, key=lambda finding: finding.bound)
            return (
                f"the paper's ε = {self.claimed[0]:g} {self.over} is not one for {worst.what}: there ε is at least "
                f"{worst.bound:.3g}, and really {worst.proven.epsilon:.3g}"
            )
        return f"nothing was found against ε = {self.claimed[0]:g} {self.over}; no owner is promised anything"

    def tables(self) -> list[Shown]:
        """Show every bound beside the paper's claim and ours."""
        columns = (
            "what is seen",
            "bound by",
            "the paper claims",
            "it really gives",
            "ε at least",
            "half the noise",
            "",
        )
        rows = tuple(
            (
                finding.what,
                finding.method,
                f"{self.claimed[0]:.3g}",
                f"{finding.proven.epsilon:.3g}",
                f"{finding.bound:.3g}",
                "" if finding.control is None else f"{finding.control:.3g}{' caught' * finding.is_powerful}",
                "BROKEN" if not finding.holds else "above the paper's" if finding in self.refuted else "holds",
            )
            for finding in self.findings
        )
        delta = f", δ = {self.claimed[1]:g}" if self.claimed[1] else ""
        title = f"{self.task} ({self.recipe}): a paper claims ε = {self.claimed[0]:g}{delta} {self.over}"
        return [Shown(title=title, columns=columns, rows=rows, right=columns[2:6])]

    def words(self) -> list[str]:
        """Say what was done, and the verdict."""
        trials = min(finding.trials for finding in self.findings)
        said = [
            f"worst neighbours found: their messages are {self.apart:.1%} as far apart as the formula supposes",
            f"{trials} trials in each world at least; all {len(self.findings)} bounds hold together with confidence "
            f"{self.confidence:g}",
            "noise is a simulation's, in floating point: the formula is attacked, not the arithmetic",
        ]
        return [*said, *([self.unproven] if self.unproven else []), f"verdict: {self.verdict}"]

    def draw(self, path: Path) -> None:
        """Draw every bound beside what it really gives, and its control."""
        draw_findings(self.findings, f"{self.task} ({self.recipe}), mode paper: attacked", path)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "task": self.task,
            "recipe": self.recipe,
            "mode": "paper",
            "claimed": {"epsilon": self.claimed[0], "delta": self.claimed[1], "over": self.over},
            "holds": self.holds,
            "refuted": [finding.what for finding in self.refuted],
            "verdict": self.verdict,
            "confidence": self.confidence,
            "neighbours": round(self.apart, 6),
            "findings": [finding_json(finding) for finding in self.findings],
            "unproven": self.unproven or None,
        }


def audit_paper(
    task: Task,
    *,
    trials: int,
    confidence: float,
    seed: int = 0,
    control: bool = True,
    watch: Watch = lambda share, what: None,
) -> PaperAudit:
    """Attack what a paper's formula claims.

    Args:
        task: A task in mode `paper`, with an ε.
        trials: Trials in each world, for each bound.
        confidence: Of all bounds together.
        seed: Says where neighbours are looked for.
        control: Whether half the noise is attacked beside.
        watch: Called with the share that is done, and with what is going on.
    """
    plan, algorithm = task.calibrated, task.build(NUMPY)
    _require_formula(task)
    assert plan.terms.claim is not None  # noqa: S101  a formula states one
    bench = Bench.of(task, algorithm, whole=False, seen=simulated)
    watch(0.0, "looking for the worst neighbours")
    pair, share = search(bench, apart_in(bench, range(len(bench.seen))), np.random.default_rng(seed))
    watch(0.1, "working in both worlds")
    if plan.last.noise_in_steps:
        over, claims = "for all steps together", _of_steps(task, bench, pair)
    else:
        over, claims = "for each release", _of_messages(task, bench, pair)
    sure = Confidence(level=confidence, family=sum(len(claim.methods) for claim in claims))
    findings = list[Finding]()
    for number, claim in enumerate(claims):
        part = within(watch, claim.what, 0.15 + 0.85 * number / len(claims), 0.85 / len(claims))
        findings += attack(claim, trials, sure, control=control, watch=part)
    return PaperAudit(
        task=task.name,
        recipe=task.algorithm.kind,
        claimed=(plan.terms.claim.epsilon, plan.terms.claim.delta),
        over=over,
        apart=share if bench.seen[-1].law.pure else share**0.5,
        findings=tuple(findings),
        confidence=confidence,
        unproven=plan.terms.unproven,
    )


def _of_messages(task: Task, bench: Bench, pair: Any) -> list[Claim]:
    """Attack one release, and all that a sample enters where devices remember nothing of it."""
    plan, uses = task.calibrated, task.passes
    (once,) = sends(bench, pair, 1, bench.seen[-1].coins)
    found = []
    for times in (1, uses) if uses > 1 and not bench.algorithm.remembers_rows else (1,):
        cost = plan.cost(times)
        assert cost is not None  # noqa: S101  a formula with an ε has one
        what = "one release" if times == 1 else f"all {times} releases of a sample"
        course = (type(once)(seen=once.seen, updates=once.updates, counts=once.counts, times=times),)
        found.append(Claim(what=what, course=course, cost=cost, delta=task.privacy.delta))
    return found


def _of_steps(task: Task, bench: Bench, pair: Any) -> list[Claim]:
    """Attack all steps of a device together."""
    steps = cast(ChanceSums, bench.seen[-1]).walk.steps
    count = steps.steps * steps.releases
    cost = task.calibrated.cost(steps.releases)
    assert cost is not None  # noqa: S101  steps have one
    course = (sampled_steps(bench, pair, steps, count),)
    return [Claim(what=f"all {count} steps", course=course, cost=cost, delta=task.privacy.delta)]


def _require_formula(task: Task) -> None:
    """Refuse noise of which a paper claims no ε, and noise that is not fresh."""
    plan = task.calibrated
    known = plan.last.noise_in_steps or isinstance(getattr(plan.last, "mechanism", None), Mechanism)
    if plan.terms.claim is not None and known:
        return
    raise BadInput(
        "no ε is claimed for each release of this noise, so there is no claim to attack",
        where="privacy.mode",
        hint='epsilon instead of noise-scale for a claim; or mode = "none" to see what is read without noise',
    )
