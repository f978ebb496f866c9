"""What a task means for owners: what leaves a device, what is promised, and what it adds up to.

Everything is taken from the algorithm and the plan that run: the table lists the leaves of a real check-in.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from crowdml.algorithms.leaving import Leaving, leaving
from crowdml.algorithms.live import require_live
from crowdml.algorithms.promise_words import NOBODY, promise_words, rests_on
from crowdml.algorithms.stability import advice
from crowdml.algorithms.task import Task
from crowdml.core import NUMPY, BadInput, record
from crowdml.data import input_bound
from crowdml.privacy import Plan, Sound
from crowdml.privacy.accounting import FILTER_NAMES
from crowdml.privacy.meaning import LARGEST_EPSILON
from crowdml.privacy.promise import gaussian_epsilon
from crowdml.privacy.reporting import Figure, sound_figure

ROW_COUNTS = ("samples", "rows", "counted")
"""Parts of a message that say how many rows stand behind it."""

LEAST_DELTA = 1e-15
"""Below this δ nobody has to be told how many units it is a promise to: there are not so many."""


@record
class Explanation:
    """What a task means.

    Attributes:
        mode: As in the task file.
        leaving: What leaves a device with every check-in.
        promise: The promise in words.
        per_release: Smallest valid ε of a single release, for a sample and for a device.
        total: Smallest valid ε over the task, for a sample and for a device.
        missing: Why there is no such figure, where it is None: by `per_release` and `total`, then by unit.
        enforced_by: Name of the sum that decides before anything is sent; None where nothing is promised.
        curve: For the promised unit after 1, 2, … releases: ε as the sum that enforces has it, and the smallest valid.
        notes: What the figures leave out.
    """

    mode: str
    leaving: tuple[Leaving, ...]
    promise: str
    per_release: dict[str, Figure | None]
    total: dict[str, Figure | None]
    missing: dict[str, dict[str, str]]
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
            "missing": self.missing,
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
    sound, parts = plan.sound, leaving(task, plan)
    per_release, per_release_missing = _figures(task, sound, 1, 1)
    total, total_missing = _figures(task, sound, _uses(task), task.stop.max_releases)
    return Explanation(
        mode=plan.mode,
        leaving=parts,
        promise=_words(task, plan),
        per_release=per_release,
        total=total,
        missing={"per_release": per_release_missing, "total": total_missing},
        enforced_by=FILTER_NAMES[sound.filter.kind] if sound else None,
        curve=_curve(sound) if sound else (),
        notes=_notes(task, plan, parts),
    )


def _figures(
    task: Task, sound: Sound | None, uses: int | None, releases: int | None
) -> tuple[dict[str, Figure | None], dict[str, str]]:
    """Return what so many releases say about one sample and about a whole device, or why there is no figure."""
    figures: dict[str, Figure | None] = {"sample": None, "device": None}
    if sound is None:
        return figures, dict.fromkeys(figures, "nothing is promised")
    by_rows, missing = sound.update.grid.per == "example", dict[str, str]()
    for unit, count in (("sample", uses), ("device", releases)):
        if count is None:
            missing[unit] = "not limited"
        elif unit == "device" and by_rows and sound.rows is None:
            missing[unit] = "grows with its rows"
        else:
            found = sound_figure(sound, count, task.privacy.delta, None if unit == "sample" else sound.rows or 1)
            if found.epsilon <= LARGEST_EPSILON:
                figures[unit] = found
            else:
                missing[unit] = f"ε above {LARGEST_EPSILON:g}: says nothing"
    return figures, missing


def _uses(task: Task) -> int | None:
    """Return how many releases a sample may enter; None where nothing limits them.

    A device counts uses only where samples are promised something; elsewhere a sample may be in every release.
    """
    limits = (task.most_uses, task.stop.max_releases)
    return min((limit for limit in limits if limit is not None), default=None)


def _curve(sound: Sound) -> tuple[tuple[int, float, Figure], ...]:
    """ε against releases, at no more than 50 points."""
    counts = np.unique(np.linspace(1, sound.releases, min(sound.releases, 50)).round().astype(int)).tolist()
    kind, delta = sound.filter.kind, sound.filter.delta
    rows = None if sound.unit == "sample" else sound.rows or 1
    return tuple((n, sound.after(n).epsilon(kind, delta), sound_figure(sound, n, delta, rows)) for n in counts)


def _words(task: Task, plan: Plan) -> str:
    terms = task.privacy
    if task.recipe.perturbs == "nothing":
        return "Nothing leaves a device, so nothing needs to be promised."
    if plan.steps:
        return (
            f"Noise inside local steps, for simulation only: ε = {terms.epsilon:g} and δ = {terms.delta:g} for one "
            f"sample over all {plan.steps.steps * plan.steps.releases} steps; no owner is promised anything."
        )
    if plan.sound is None and plan.claim:
        delta = f" and δ = {plan.claim.delta:g}" if plan.claim.delta else ""
        times = "once for the whole task, since rows are sent once" if plan.inputs else "for each release"
        return (
            f"A paper's formula, for simulation only. It claims ε = {plan.claim.epsilon:g}{delta} {times}; no owner is "
            "promised anything."
        )
    return _sound_words(task, plan.sound) if plan.sound else f"No formal guarantee: {_no_guarantee(task, plan)}"


def _no_guarantee(task: Task, plan: Plan) -> str:
    if plan.given:
        return "for noise given by its standard deviation no ε can be stated."
    if task.recipe.sliced:
        noisy = task.algorithm.cut_noise or task.algorithm.upload_noise
        sent = "labels leave a device without noise" if noisy else "sums and weights leave a device as they are"
        return f"{sent}. crowdml audit measures what they tell."
    if task.recipe.perturbs == "inputs":
        return "rows and labels leave a device as they are."
    if task.masking():
        words = promise_words(task, plan)
        return f"{words.promise.removeprefix('No formal guarantee: ')} {words.rests_on}"
    return "what leaves a device carries no noise."


def _sound_words(task: Task, sound: Sound) -> str:
    """Say what is promised, over what, and what enforces it."""
    terms, limit, sample = task.privacy, task.stop.max_releases, sound.unit == "sample"
    assert terms.epsilon is not None  # noqa: S101  a sound plan has one
    whom = "Each sample" if sample else "Each device, with all its samples,"
    act, other = ("enter", "it by another") if sample else ("make", "all its rows by as many others")
    times = f"the {sound.releases} releases it may {act}" if sound.releases > 1 else f"the one release it may {act}"
    if limit is not None and limit < sound.releases:
        made = f"the {limit} releases that a device may make" if limit > 1 else "the one release that a device may make"
        times = f"{made}; the noise would do for {sound.releases}"
    counts = ", counts of errors and labels included" if sound.statistics else ""
    delta = f" and δ = {terms.delta:g}" if sound.filter.kind != "pure" else ""
    factor = f"e^{terms.epsilon:g}" + (f" = {math.exp(terms.epsilon):.3g}" if terms.epsilon < 700 else "")
    factor += ", but for δ" if delta else ""
    is_promised = "would be promised" if _on_running(task) else "is promised"
    seen = "any sum the server gets" if sound.update.shared else "anything the server might see"
    return (
        f"{whom} {is_promised} ε = {terms.epsilon:g}{delta} over {times}{counts}: replacing {other} changes the "
        f"probability of {seen} by a factor of at most {factor}. "
        f"The device's ledger enforces it by {FILTER_NAMES[sound.filter.kind]}, before anything is sent. "
        f"{rests_on(task, sound) if sound.update.shared else NOBODY}"
    )


def _notes(task: Task, plan: Plan, parts: tuple[Leaving, ...]) -> tuple[str, ...]:
    notes = []
    fitted = " and ".join(own.kind for own in task.data.transform if own.learns)
    if fitted and plan.promises:
        notes.append(_fit_note(fitted, task))
    if plan.claim and task.recipe.paper and task.recipe.paper.unproven:
        notes.append(task.recipe.paper.unproven)
    if plan.sound:
        notes.append("hyper-parameters chosen by looking at private rows are a release too: tuning is not charged")
        if task.masking():
            notes.append("when a device takes part is not hidden")
        elif any(part.name.split("/")[-1] in ROW_COUNTS and part.protection == "in clear" for part in parts):
            notes.append("how many rows stand behind a message, and when it is sent, are not hidden")
        else:
            notes.append("when a device sends a message is not hidden")
        notes += _on_delta(task, plan.sound) + _on_exactness(task, plan.sound)
        if plan.sound.unit == "sample" and task.stop.max_releases is None:
            notes.append("without stop.max-releases nothing limits what all releases together say about a device")
        if task.privacy.owner_range:
            low, high = task.privacy.owner_range
            notes.append(
                f"owners may choose their own ε from {low:g} to {high:g}: messages count alike whatever was chosen, "
                "but the size of the noise shows it"
            )
        notes += _on_stability(task, plan.sound)
        notes += _on_samples(task, plan.sound)
        if plan.sound.update.grid.per == "example":
            notes.append("what a release says about a whole device grows with the number of its rows")
    return tuple(notes) + _on_running(task)


def _on_running(task: Task) -> tuple[str, ...]:
    """Say why only a simulation can run a task, where its words do not say so already."""
    try:
        if task.privacy.mode != "paper":
            require_live(task)
    except BadInput as error:
        return (f"only a simulation can run this task, where nobody is promised anything: {error.what}",)
    return ()


def _on_delta(task: Task, sound: Sound) -> list[str]:
    """Say to how many units δ means something."""
    terms = task.privacy
    if sound.filter.kind == "pure":
        return []
    if terms.units is not None:
        return [f"δ = {terms.delta:g} is a promise to {terms.units} {terms.unit}s, as many as the operator declares"]
    if terms.delta < LEAST_DELTA:
        return []
    most = math.ceil(1 / terms.delta) - 1
    return [f"nobody declares how many {terms.unit}s there are; δ = {terms.delta:g} is no promise to more than {most}"]


def _on_exactness(task: Task, sound: Sound) -> list[str]:
    """Say by how much a promise about Gaussian noise is over-stated."""
    total, delta = sound.event.times(sound.uses), task.privacy.delta
    if sound.filter.kind != "rdp" or not math.isinf(total.pure) or total.mixed or sound.update.shared:
        return []
    ideal = gaussian_epsilon(math.sqrt(2 * total.rho), delta)
    return [
        f"Gaussian noise of this strength would prove ε = {ideal:.3g} if it were continuous; for noise on integers no "
        f"proof is known that is as sharp, so {total.epsilon('rdp', delta) / ideal - 1:.0%} more is charged"
    ]


def _on_stability(task: Task, sound: Sound) -> list[str]:
    """Say how far one sample can move what local steps change."""
    if sound.sends != "change":
        return []
    if sound.update.stable:
        moved = sound.update.stable.bound
        return [f"these steps are proven to be stable: one sample moves a message by at most {moved:.3g} in L2"]
    proven = "nothing is proven about one sample but the bound on the whole message"
    if sound.update.grid.order == 1 or task.recipe.sound is None:
        return [proven]
    row = input_bound(task.data.transform, 2, task.data.features)
    more = advice(task.model_for(NUMPY), row, task.model.regularisation, task.recipe.sound(task.algorithm).steps)
    return [f"{proven}; {more}" if more else proven]


def _on_samples(task: Task, sound: Sound) -> list[str]:
    """Say what counts as the same sample, and whether the promise depends on it."""
    if sound.unit == "device":
        return ["the promise is to the whole device: what counts as one sample does not matter"]
    if task.data.id:
        known = f"a sample is what has the same {task.data.id}: read, fed or streamed again, and whatever else is in it"
        doubt = "under another id it is another sample"
    else:
        known = "a sample is a row with the same numbers (of 32 bits) and label: read, fed or streamed again"
        doubt = "written with one more digit it is another sample"
    return [
        f"{known}, it keeps the uses it has had; {doubt}, so a device asks its owner before it sends anything of a "
        "file in which most rows are new and many are gone. Which rows of a stream are equal, and left out, is not "
        'hidden. unit = "device" does not depend on any of this'
    ]


def _fit_note(fitted: str, task: Task) -> str:
    """Say on which rows transforms are fitted."""
    if task.data.public:
        return f"{fitted}: fitted on {task.data.public} public rows that no device holds"
    if task.privacy.mode == "sound":
        return f"{fitted}: a simulation must declare rows public to fit on (data.public); private rows are refused"
    return f"{fitted}: fitted on private rows, not accounted"
