"""What a task means for owners: what leaves a device, what is promised, and what it adds up to.

Everything is taken from the algorithm and the plan that run: the table lists the leaves of a real check-in.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from crowdml.algorithms.schedule import OnArrival
from crowdml.algorithms.stability import advice
from crowdml.algorithms.update_analysis import UpdateAnalysis, equation_13, updates_missed
from crowdml.core import NUMPY, record, trees
from crowdml.data import input_bound
from crowdml.privacy import MECHANISMS, Plan
from crowdml.privacy.accounting import FILTER_NAMES, Unit
from crowdml.privacy.budget import BudgetPart, budget_words
from crowdml.privacy.cost import Figure
from crowdml.privacy.promise import gaussian_epsilon
from crowdml.task.message_parts import MessagePart
from crowdml.task.owners.owner_promise import OwnerPromise, owner_promise, why_only_simulated
from crowdml.task.owners.promise_words import NOBODY, in_epsilon, rests_on
from crowdml.task.owners.unit_totals import UnitTotal, one_release, whole_task
from crowdml.task.owners.who_sees import sights_of, tells_rows
from crowdml.task.task import Task

LEAST_DELTA = 1e-15
"""Below this δ nobody has to be told how many units it is a promise to: there are not so many."""


@record
class Explanation:
    """What a task means.

    Attributes:
        mode: As in the task file.
        owner: What owners are told: the promise in odds, what leaves a device, who sees what.
        promise: The promise in ε, in words.
        per_release: Smallest valid ε of a single release, for a sample and for a device.
        total: Smallest valid ε over the task, for a sample and for a device.
        missing: Why there is no such figure, where it is None: by `per_release` and `total`, then by unit.
        enforced_by: Name of the sum that decides before anything is sent; None where nothing is promised.
        budget: What that sum pays for, in shares of it; empty where nothing is promised.
        curve: For the promised unit after 1, 2, … releases: ε as the sum that enforces has it, and the smallest valid.
        notes: What the figures leave out.
        analysis: What the batch size means for noise, delays and traffic; None where devices are invited to rounds.
    """

    mode: str
    owner: OwnerPromise
    promise: str
    per_release: dict[str, Figure | None]
    total: dict[str, Figure | None]
    missing: dict[str, dict[str, str]]
    enforced_by: str | None
    budget: tuple[BudgetPart, ...]
    curve: tuple[tuple[int, float, Figure], ...]
    notes: tuple[str, ...]
    analysis: UpdateAnalysis | None

    @property
    def message_parts(self) -> tuple[MessagePart, ...]:
        """What leaves a device with every check-in."""
        return self.owner.leaves

    def to_json(self) -> dict[str, Any]:
        """Return plain values, in the layout that `privacy explain --json` writes."""
        return {
            "mode": self.mode,
            "owner": self.owner.to_json(),
            "leaving": [vars(part) for part in self.message_parts],
            "promise": self.promise,
            "per_release": {unit: promise.to_json() if promise else None for unit, promise in self.per_release.items()},
            "total": {unit: promise.to_json() if promise else None for unit, promise in self.total.items()},
            "missing": self.missing,
            "enforced_by": self.enforced_by,
            "budget": [{"what": part.what, "share": round(part.share, 6)} for part in self.budget],
            "curve": [
                {"releases": count, "enforced": round(enforced, 6), "valid": best.to_json()}
                for count, enforced, best in self.curve
            ],
            "notes": list(self.notes),
            "analysis": self.analysis.to_json() if self.analysis else None,
        }


def explain(task: Task) -> Explanation:
    """Explain a task."""
    plan = task.calibrated
    terms, owner = plan.terms, owner_promise(task, plan)
    per_release, per_release_missing = _figures(one_release(plan))
    total, total_missing = _figures(whole_task(task, plan))
    return Explanation(
        mode=terms.mode,
        owner=owner,
        promise=_words(task, plan),
        per_release=per_release,
        total=total,
        missing={"per_release": per_release_missing, "total": total_missing},
        enforced_by=FILTER_NAMES[terms.limit.kind] if terms.promised else None,
        budget=owner.budget,
        curve=_curve(plan) if terms.promised else (),
        notes=_notes(task, plan, owner),
        analysis=analyse_updates(task),
    )


def analyse_updates(task: Task) -> UpdateAnalysis | None:
    """Work out what the batch size means (Crowd-ML 2015, section IV); None unless devices check in as rows come.

    Delays are those of the simulated crowd, in samples that it generates.
    """
    schedule = task.schedule
    if not isinstance(schedule, OnArrival):
        return None
    plan, batch, delays = task.calibrated, schedule.batch, task.crowd.delays
    sanitiser, model = task.built.last.sanitiser, task.model_for(NUMPY)
    numbers = task.releases.size(trees.size(model.zeros()))
    deviation, bound = sanitiser.deviation_of(batch), None
    if task.releases.sends == "gradient":
        row = input_bound(task.data.transform, 2, task.data.features)
        bound = task.privacy.clip or model.gradient_bound(2, row)
    claim, paper = plan.terms.claim, None
    if claim and task.privacy.mechanism == "laplace" and task.target.has_accuracy:
        paper = equation_13(task.features, batch, claim.epsilon - task.privacy.statistics_epsilon)
    means = {"uniform": 0.5, "exponential": 1.0, "fixed": 1.0}
    mean = means.get(delays.law, sum(delays.values) / max(len(delays.values), 1))
    most = {"uniform": 1.0, "fixed": 1.0, "empirical": max(delays.values, default=0.0)}.get(delays.law)
    missed = updates_missed(delays.check_out, delays.check_in, batch * schedule.buffered)
    return UpdateAnalysis(
        batch=batch,
        numbers=numbers,
        features=task.features,
        noise=None if deviation is None else numbers * deviation**2,
        gradient=None if bound is None else bound**2 / batch,
        equation_13=paper,
        labels=task.target.bins,
        missed=mean * missed,
        missed_at_most=None if most is None else most * missed,
    )


def _figures(totals: dict[Unit, UnitTotal]) -> tuple[dict[str, Figure | None], dict[str, str]]:
    """Return ε by unit, and why there is none where there is none."""
    figures: dict[str, Figure | None] = {unit: total.figure for unit, total in totals.items()}
    return figures, {unit: total.missing for unit, total in totals.items() if total.missing}


def _curve(plan: Plan) -> tuple[tuple[int, float, Figure], ...]:
    """ε against releases, at no more than 50 points."""
    terms, limit = plan.terms, plan.terms.limit
    counts = np.unique(np.linspace(1, terms.releases, min(terms.releases, 50)).round().astype(int)).tolist()
    valid = [(count, plan.figure(count, terms.changing)) for count in counts]
    return tuple((n, plan.after(n).epsilon(limit.kind, limit.delta), found) for n, found in valid if found)


def _words(task: Task, plan: Plan) -> str:
    if task.releases.sends == "nothing":
        return "Nothing leaves a device, so nothing needs to be promised."
    if plan.terms.promised:
        return _promised_words(task, plan)
    return plan.last.words(plan.terms) or f"No formal guarantee: {_no_guarantee(task, plan)}"


def _no_guarantee(task: Task, plan: Plan) -> str:
    """Say what leaves a device without noise."""
    sights = sights_of(task)
    if sights is not None:
        noisy = task.algorithm.cut_noise or task.algorithm.upload_noise
        sent = "labels leave a device without noise" if noisy else "sums and weights leave a device as they are"
        return f"{sent}. crowdml audit measures what they tell. {sights.trust}"
    if task.releases.sends == "rows":
        return f"rows and {task.target.noun}s leave a device as they are."
    if task.masking():
        return f"{in_epsilon(task, plan).removeprefix('No formal guarantee: ')} {rests_on(task, plan)}"
    return "what leaves a device carries no noise."


def _promised_words(task: Task, plan: Plan) -> str:
    """Say what is promised, over what, and what enforces it."""
    terms, limit, sample = plan.terms, task.stop.max_releases, plan.terms.unit == "sample"
    epsilon, kind = terms.limit.epsilon, terms.limit.kind
    whom = "Each sample" if sample else "Each device, with all its samples,"
    act, other = ("enter", "it by another") if sample else ("make", "all its rows by as many others")
    times = f"the {terms.releases} releases it may {act}" if terms.releases > 1 else f"the one release it may {act}"
    if limit is not None and limit < terms.releases:
        made = f"the {limit} releases that a device may make" if limit > 1 else "the one release that a device may make"
        times = f"{made}; the noise would do for {terms.releases}"
    counts = f", counts of errors and {task.target.noun}s included" if plan.last.counts else ""
    delta = f" and δ = {terms.delta:g}" if kind != "pure" else ""
    factor = f"e^{epsilon:g}" + (f" = {math.exp(epsilon):.3g}" if epsilon < 700 else "")
    factor += ", but for δ" if delta else ""
    is_promised = "would be promised" if why_only_simulated(task) else "is promised"
    seen = "any sum the server gets" if plan.last.shared else "anything the server might see"
    return (
        f"{whom} {is_promised} ε = {epsilon:g}{delta} over {times}{counts}: replacing {other} changes the "
        f"probability of {seen} by a factor of at most {factor}. "
        f"The device's ledger enforces it by {FILTER_NAMES[kind]}, before anything is sent. "
        f"{rests_on(task, plan) if plan.last.shared else NOBODY}"
    )


def _notes(task: Task, plan: Plan, owner: OwnerPromise) -> tuple[str, ...]:
    notes = []
    fitted = " and ".join(transform.kind for transform in task.data.transform if transform.learns)
    if fitted and plan.promises:
        notes.append(_fit_note(fitted, task, plan))
    if plan.terms.unproven:
        notes.append(plan.terms.unproven)
    if plan.terms.promised:
        limit = plan.terms.limit
        notes.append(budget_words(owner.budget, FILTER_NAMES[limit.kind], limit.epsilon))
        notes.append("hyper-parameters chosen by looking at private rows are a release too: tuning is not charged")
        if task.masking():
            notes.append("when a device takes part is not hidden")
        elif tells_rows(owner.leaves) or owner.members:
            notes.append("how many rows stand behind a message, and when it is sent, are not hidden")
        else:
            notes.append("when a device sends a message is not hidden")
        notes += _on_delta(task, plan) + _on_exactness(plan)
        if plan.terms.unit == "sample" and task.stop.max_releases is None:
            notes.append("without stop.max-releases nothing limits what all releases together say about a device")
        if task.privacy.owner_range:
            low, high = task.privacy.owner_range
            notes.append(
                f"owners may choose their own ε from {low:g} to {high:g}: messages count alike whatever was chosen, "
                "but the size of the noise shows it"
            )
        notes += _on_stability(task, plan)
        notes += owner.sample
        if plan.last.bounds_rows:
            notes.append("what a release says about a whole device grows with the number of its rows")
    return tuple(notes) + _on_running(plan, owner)


def _on_running(plan: Plan, owner: OwnerPromise) -> tuple[str, ...]:
    """Say why only a simulation can run a task, where its words do not say so already."""
    if plan.simulated or not owner.only_simulated:
        return ()
    return (f"only a simulation can run this task, where nobody is promised anything: {owner.only_simulated}",)


def _on_delta(task: Task, plan: Plan) -> list[str]:
    """Say to how many units δ means something."""
    terms = task.privacy
    if plan.terms.limit.kind == "pure":
        return []
    if terms.units is not None:
        return [f"δ = {terms.delta:g} is a promise to {terms.units} {terms.unit}s, as many as the operator declares"]
    if terms.delta < LEAST_DELTA:
        return []
    most = math.ceil(1 / terms.delta) - 1
    return [f"nobody declares how many {terms.unit}s there are; δ = {terms.delta:g} is no promise to more than {most}"]


def _on_exactness(plan: Plan) -> list[str]:
    """Say by how much a promise about Gaussian noise is over-stated, where its sums are not known exactly."""
    total, delta = plan.event.times(plan.terms.uses), plan.terms.delta
    if total.gaussian or plan.terms.limit.kind != "rdp" or not math.isinf(total.pure) or total.mixed or total.whole:
        return []
    ideal = gaussian_epsilon(math.sqrt(2 * total.rho), delta)
    if not ideal:
        return []
    return [
        f"Gaussian noise of this strength would prove ε = {ideal:.3g} if it were continuous; for discrete noise no "
        f"proof is known that is as sharp, so {total.epsilon('rdp', delta) / ideal - 1:.0%} more is charged"
    ]


def _on_stability(task: Task, plan: Plan) -> list[str]:
    """Say how far one sample can move what local steps change."""
    moved = plan.last.moved_by_sample
    if task.releases.sends != "change":
        return []
    if moved is not None:
        return [f"these steps are proven to be stable: one sample moves a message by at most {moved:.3g} in L2"]
    proven = "nothing is proven about one sample but the bound on the whole message"
    if MECHANISMS[task.privacy.mechanism].order == 1:
        return [proven]
    row = input_bound(task.data.transform, 2, task.data.features)
    more = advice(task.model_for(NUMPY), row, task.model.regularisation, task.releases.steps)
    return [f"{proven}; {more}" if more else proven]


def _fit_note(fitted: str, task: Task, plan: Plan) -> str:
    """Say on which rows transforms are fitted."""
    if task.data.public:
        return f"{fitted}: fitted on {task.data.public} public rows that no device holds"
    if plan.terms.promised:
        return f"{fitted}: a simulation must declare rows public to fit on (data.public); private rows are refused"
    return f"{fitted}: fitted on private rows, not accounted"
