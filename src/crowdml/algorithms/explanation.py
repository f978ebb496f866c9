"""What a task means for owners: what leaves a device, what is promised, and what it adds up to.

Everything is taken from the algorithm and the plan that run: the table lists the leaves of a real check-in.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from crowdml.algorithms.leaving import Leaving, leaving
from crowdml.algorithms.stability import largest_rate
from crowdml.algorithms.task import Task
from crowdml.core import NUMPY, record
from crowdml.data import input_bound
from crowdml.privacy import Plan, Sound
from crowdml.privacy.accounting import FILTER_NAMES
from crowdml.privacy.reporting import Figure, sound_figure

MEANINGLESS = 1000.0
"""Beyond this ε a promise says nothing, and is not shown as one."""


@record
class Explanation:
    """What a task means.

    Attributes:
        mode: As in the task file.
        leaving: What leaves a device with every check-in.
        promise: The promise in words.
        per_release: Smallest valid ε of a single release, for a sample and for a device.
        total: Smallest valid ε over the task, for a sample and for a device; None where releases are not limited.
        enforced_by: Name of the sum that decides before anything is sent; None where nothing is promised.
        curve: For the promised unit after 1, 2, … releases: ε as the sum that enforces has it, and the smallest valid.
        notes: What the figures leave out.
    """

    mode: str
    leaving: tuple[Leaving, ...]
    promise: str
    per_release: dict[str, Figure | None]
    total: dict[str, Figure | None]
    enforced_by: str | None
    curve: tuple[tuple[int, float, Figure], ...]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain values, in the layout that `privacy explain --json` writes."""
        return {
            "mode": self.mode,
            "leaving": [vars(own) for own in self.leaving],
            "promise": self.promise,
            "per_release": {unit: own.to_json() if own else None for unit, own in self.per_release.items()},
            "total": {unit: own.to_json() if own else None for unit, own in self.total.items()},
            "enforced_by": self.enforced_by,
            "curve": [
                {"releases": count, "enforced": round(enforced, 6), "valid": best.to_json()}
                for count, enforced, best in self.curve
            ],
            "notes": list(self.notes),
        }


def explain(task: Task) -> Explanation:
    """Explain a task."""
    plan = task.plan(task.model_for(NUMPY))
    sound = plan.sound
    return Explanation(
        mode=plan.mode,
        leaving=leaving(task, plan),
        promise=_words(task, plan),
        per_release=_figures(task, sound, 1, 1),
        total=_figures(task, sound, _uses(task, sound), task.stop.max_releases),
        enforced_by=FILTER_NAMES[sound.filter.kind] if sound else None,
        curve=_curve(sound) if sound else (),
        notes=_notes(task, plan),
    )


def _figures(task: Task, sound: Sound | None, uses: int | None, releases: int | None) -> dict[str, Figure | None]:
    """Return what so many releases say about one sample, and about a whole device.

    None without sound noise, without a limit on releases, or where a device may have so many rows in one that its ε
    means nothing.
    """
    if sound is None:
        return {"sample": None, "device": None}
    delta = task.privacy.delta
    return {
        "sample": sound_figure(sound, uses, delta) if uses else None,
        "device": sound_figure(sound, releases, delta, sound.rows or 1) if releases and _bounded(sound) else None,
    }


def _bounded(sound: Sound) -> bool:
    """Tell whether what a release can say about a whole device is known, and means anything."""
    if sound.update.grid.per == "release":
        return True
    return sound.rows is not None and sound.of_device(sound.rows).promise(sound.filter.delta).epsilon <= MEANINGLESS


def _uses(task: Task, sound: Sound | None) -> int | None:
    """Return how many releases a sample may enter; None where nothing limits them."""
    several = sound.opening_uses - 1 if sound else 0
    most = task.privacy.max_uses and task.privacy.max_uses - several
    return min((own for own in (most, task.stop.max_releases) if own is not None), default=None)


def _curve(sound: Sound) -> tuple[tuple[int, float, Figure], ...]:
    """ε against releases, at no more than 50 points."""
    counts = np.unique(np.linspace(1, sound.releases, min(sound.releases, 50)).round().astype(int)).tolist()
    kind, delta = sound.filter.kind, sound.filter.delta
    rows = None if sound.unit == "sample" else sound.rows or 1
    return tuple((n, sound.after(n).epsilon(kind, delta), sound_figure(sound, n, delta, rows)) for n in counts)


def _words(task: Task, plan: Plan) -> str:
    if task.recipe.perturbs == "nothing":
        return "Nothing leaves a device, so nothing needs to be promised."
    if plan.steps:
        return (
            f"Noise inside local steps, for simulation only: ε = {task.privacy.epsilon:g} and "
            f"δ = {task.privacy.delta:g} for one sample over all {plan.steps.steps * plan.steps.releases} steps; no "
            "owner is promised anything."
        )
    if plan.sound is None and plan.promises:
        return (
            f"A paper's formula, for simulation only. It claims ε = {task.privacy.epsilon:g} for each release; no "
            "owner is promised anything."
        )
    if plan.given:
        return "No formal guarantee: for noise given by its standard deviation no ε can be stated."
    if task.recipe.sliced:
        return (
            "No formal guarantee: sums and weights leave a device as they are. crowdml audit measures what they tell."
        )
    if plan.sound is None:
        return "No formal guarantee: what leaves a device carries no noise."
    sound, terms = plan.sound, task.privacy
    whom = "Each sample" if sound.unit == "sample" else "Each device, with all its samples,"
    times = f"the {sound.releases} releases it may enter" if sound.releases > 1 else "the one release it may enter"
    delta = f" and δ = {terms.delta:g}" if sound.filter.kind != "pure" else ""
    return (
        f"{whom} is promised ε = {terms.epsilon:g}{delta} over {times}, statistics included: replacing it by another "
        f"changes the probability of anything the server might see by a factor of at most "
        f"e^{terms.epsilon:g} = {math.exp(min(terms.epsilon or 0.0, 700)):.3g}{', but for δ' if delta else ''}. The "
        f"device's ledger enforces it by {FILTER_NAMES[sound.filter.kind]}, before anything is sent. "
        f"{_trust(task, sound)}"
    )


def _trust(task: Task, sound: Sound) -> str:
    """Say on whom the promise depends."""
    if sound.update.shared is None:
        return "Nobody has to be trusted for that, not even the server."
    masking = task.masking()
    assert masking is not None  # noqa: S101  shares of noise belong to masked sums
    return (
        f"It rests on masks and on others: in each sum at least {sound.update.shared.survivors} honest devices add "
        f"their share of the noise, since it holds at least {masking.least} of the {masking.invited} invited and at "
        f"most {1 - task.sums.honest:.0%} of these work together with the server. The server may break the rules; on "
        "what that rests stands in the threat model. A sum may be given up after vectors were sent: each attempt has "
        f"fresh noise and is charged as a release, and a device sends to at most {masking.attempts} of one version."
    )


def _notes(task: Task, plan: Plan) -> tuple[str, ...]:
    notes = []
    fitted = " and ".join(own.kind for own in task.data.transform if own.learns)
    if fitted and plan.promises:
        notes.append(_fit_note(fitted, task))
    if plan.sound:
        notes.append("hyper-parameters chosen by looking at private rows are a release too: tuning is not charged")
        if task.masking():
            notes.append("when a device takes part is not hidden")
        else:
            notes.append("how many rows a device has, and when it checks in, are not hidden")
        if plan.sound.unit == "sample" and task.stop.max_releases is None:
            notes.append("without stop.max-releases nothing limits what all releases together say about a device")
        if task.privacy.owner_range:
            low, high = task.privacy.owner_range
            notes.append(
                f"owners may choose their own ε from {low:g} to {high:g}: messages count alike whatever was chosen, "
                "but the size of the noise shows it"
            )
        notes += _on_stability(task, plan.sound)
        if not _bounded(plan.sound):
            notes.append("what a release says about a whole device grows with the number of its rows")
    return tuple(notes)


def _on_stability(task: Task, sound: Sound) -> list[str]:
    """Say how far one sample can move what local steps change."""
    if sound.sends != "change":
        return []
    if sound.update.stable:
        moved = sound.update.stable.moved
        return [f"these steps are proven to be stable: one sample moves a message by at most {moved:.3g} in L2"]
    model, row = task.model_for(NUMPY), input_bound(task.data.transform, 2, task.data.features)
    largest = largest_rate(model, row, task.model.regularisation)
    if largest is None or sound.update.grid.order == 1 or not hasattr(task.algorithm, "rate"):
        return ["nothing is proven about one sample but the bound on the whole message"]
    return [
        "nothing is proven about one sample but the bound on the whole message; with a constant or falling rate of at "
        f"most {largest:.3g} these steps would be stable, and need less noise for samples"
    ]


def _fit_note(fitted: str, task: Task) -> str:
    """Say on which rows transforms are fitted."""
    if task.data.public:
        return f"{fitted}: fitted on {task.data.public} public rows that no device holds"
    if task.privacy.mode == "sound":
        return f"{fitted}: a simulation must declare rows public to fit on (data.public); private rows are refused"
    return f"{fitted}: fitted on private rows, not accounted"
