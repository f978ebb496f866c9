"""On whom a promise rests, whom an owner has to trust, and what counts as the same row; in words.

Where every device adds all the noise its own messages need, a promise rests on that device alone. Where messages are
masked each device adds only a share, so the promise also rests on other devices and on cryptography: it must never be
shown as if it were of the first kind.
"""

from __future__ import annotations

from crowdml.algorithms.recipe import Recipe
from crowdml.privacy import Plan, Promise
from crowdml.task.owners.who_sees import sights_of
from crowdml.task.task import Task

NOBODY = "Nobody but the device itself has to be trusted for that, not even the server."
"""On whom a promise rests where each device adds all its noise; never said where check-ins are aggregated securely."""


def in_epsilon(task: Task, plan: Plan) -> str:
    """Say who is promised what, in ε."""
    terms = plan.terms
    if not terms.promised:
        sums = "the server sees sums over many devices alone, but these carry no noise."
        plain = "what devices send carries no noise, and the server sees it as it is."
        if noise_at_cut(task):
            plain = "first sums of rows carry noise, but labels are open to members of a group."
        return f"No formal guarantee: {sums if task.masking() else plain}"
    whom = "Each sample" if terms.unit == "sample" else "Each device, with all its samples,"
    times = f"the {terms.releases} releases it may enter" if terms.releases > 1 else "the one release it may enter"
    against = "" if plan.last.shared is None else ", against whoever sees nothing but sums over many devices"
    return f"{whom} is promised ε = {terms.limit.epsilon:g}{_delta(terms.limit.delta)} over {times}{against}."


def noise_at_cut(task: Task) -> bool:
    """Tell whether what a net in pieces lets through its first cut carries noise, whatever else does not."""
    return task.releases.sends == "pieces" and task.algorithm.cut_noise > 0


def rests_on(task: Task, plan: Plan) -> str:
    """Say what has to be so for the promise to hold."""
    shared, masking, settings = plan.last.shared, task.masking(), task.secure_aggregation
    if not plan.terms.promised and masking is None:
        return "Nothing is promised."
    if not plan.terms.promised and masking is not None:
        return (
            f"That it sees nothing but sums of at least {masking.least} devices rests on secure aggregation: on its "
            f"cryptography, and on at most {masking.corrupt} of the {masking.invited} invited working together with "
            "the server. What a sum says about one device is not bounded."
        )
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


def short(task: Task, plan: Plan) -> str:
    """Say what the promise rests on in a few words, for a line of a report."""
    shared = plan.last.shared
    if not plan.terms.promised:
        return "nothing is promised" + ("; secure aggregation hides all but sums" if task.masking() else "")
    if shared is None:
        return "this device's own noise and ledger"
    return (
        f"secure aggregation, and {shared.survivors} honest devices in every sum; this device's noise "
        f"alone leaves ε = {alone(plan).epsilon:.3g}"
    )


def trust(task: Task, plan: Plan) -> str:
    """Say whom an owner has to trust, without a formula."""
    masking, sights = task.masking(), sights_of(task)
    if sights is not None:
        return sights.trust
    if task.releases.sends == "nothing":
        return "Nobody: nothing leaves your device."
    if masking is not None:
        open_sums = "" if plan.terms.promised else " Beyond that nothing protects you: the sums carry no noise."
        return (
            f"You have to trust the program on your device, its cryptography, and that of the {masking.invited} "
            f"devices of a sum no more than {masking.corrupt} work together with the server.{open_sums}"
        )
    if plan.terms.promised:
        return (
            "You have to trust the program on your device. For the promise you need not trust the operator, the "
            "server, or other owners."
        )
    return "You have to trust whoever runs the server, and everybody who gets the model: nothing else protects you."


def same_sample(task: Task, plan: Plan) -> tuple[str, ...]:
    """Say what counts as the same sample, and whether the promise depends on it; nothing where there is no promise."""
    if not plan.terms.promised:
        return ()
    if plan.terms.unit == "device":
        return ("the promise is to the whole device: what counts as one sample does not matter",)
    if task.data.id:
        known = f"a sample is what has the same {task.data.id}: read, fed or streamed again, and whatever else is in it"
        doubt = "under another id it is another sample"
    else:
        known = (
            f"a sample is a row with the same numbers (of 32 bits) and {task.target.noun}: read, fed or streamed again"
        )
        doubt = "written with one more digit it is another sample"
    remembered = (
        ("devices remember rows of earlier releases, so a sample counts as used by every release after its first",)
        if isinstance(task.recipe, Recipe) and task.built.remembers_rows
        else ()
    )
    return (
        *remembered,
        f"{known}, it keeps the uses it has had; {doubt}, so a device asks its owner before it sends anything of a "
        "file in which most rows are new and many are gone. Which rows of a stream are equal, and left out, is not "
        "hidden. Nobody knows it again on another device: there it is another sample, with uses of its own. "
        'unit = "device" does not depend on any of this',
    )


def _delta(delta: float) -> str:
    return f", δ = {delta:g}" if delta else ""
