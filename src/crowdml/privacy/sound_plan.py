"""The plan of a sound task: every term checked, then calibrated. Whatever could not be proven is refused here."""

from __future__ import annotations

from collections.abc import Callable

from crowdml.core import BadInput, record
from crowdml.privacy.banded import require_gaussian
from crowdml.privacy.calibration import calibrate, calibrate_shared, for_owner, share_statistics, split_statistics
from crowdml.privacy.grid import Per, make_fine_grid, make_grid
from crowdml.privacy.meaning import require_meaningful
from crowdml.privacy.mechanisms import NoiseLaw, Shared
from crowdml.privacy.moments import moments_grid, moments_sound
from crowdml.privacy.private_steps import LocalSteps
from crowdml.privacy.settings import PrivacySettings
from crowdml.privacy.sound import SOUND_LAWS, Sends, SharedStatistics, Sound, SoundStatistics, Stability

LEAST_RADIUS = 1e-280
"""Below this a level would be no normal double, and a proof in levels would not be one of lengths."""


@record
class Releases:
    """What an algorithm releases, as far as a sound plan must know.

    Attributes:
        sound: Whether the algorithm has a sound form.
        sends: A gradient, or what local steps have changed.
        size: Numbers in a message.
        rows: Rows behind a release at most; None where a device sends as many as it has.
        limit: Releases of one device at most (`stop.max-releases`).
        stable: A proof that one sample moves what is sent by little; None where there is none.
        local: The local steps behind a release; None where there are none.
        shared: Law and least number of shares of noise where releases are masked; None where each is seen alone.
        features: Numbers in a row as the model sees it, with a constant for a bias.
        opening: Uses that the squares of all rows count for, which are sent first; 0 where they are not.
        classes: Number of labels.
    """

    sound: bool = False
    sends: Sends = "gradient"
    size: int = 1
    rows: int | None = 1
    limit: int | None = None
    stable: Stability | None = None
    local: LocalSteps | None = None
    shared: Shared | None = None
    features: int = 1
    opening: int = 0
    classes: int = 2


def make_sound(
    terms: PrivacySettings, bound_of: Callable[[int], float | None], counts: bool, releases: Releases
) -> Sound:
    """Check the terms and calibrate.

    A gradient is a sum over examples, so for samples each example is bounded. What local steps have changed is no such
    sum: it is bounded as a whole, and so is everything that is promised to devices. The bound on a whole message also
    holds for the change of one sample, since that changes the message from one bounded vector to another; unless the
    steps are proven to be more stable than that (in L2, so for Gaussian noise).
    """
    epsilon, uses = _checked(terms, releases)
    law = SOUND_LAWS[terms.mechanism]
    if releases.sends == "moments" or releases.opening:
        return _with_moments(terms, epsilon, uses, bound_of, releases)
    per: Per = "example" if terms.unit == "sample" and releases.sends == "gradient" else "release"
    radius = _radius(terms, law, bound_of, releases)
    stable = releases.stable if law.order == 2 and per == "release" and radius >= LEAST_RADIUS else None
    grid = make_fine_grid(releases.size, radius) if stable else make_grid(law.order, releases.size, radius, per)
    rows = 1 if terms.unit == "sample" else releases.rows or 1
    counted = counts and terms.statistics_epsilon > 0
    if counted and terms.unit == "device" and releases.rows is None:
        raise BadInput(
            "nothing bounds the rows that a device counts", where="privacy.statistics-epsilon", hint="leave it out"
        )
    statistics: SoundStatistics | SharedStatistics | None
    if releases.shared:
        _require_shared(terms, law)
        part, given = terms.statistics_epsilon / epsilon, (epsilon, terms.delta, uses)
        own = share_statistics(releases.shared, part, *given, releases.classes, rows) if counted else None
        mechanism, filter_ = calibrate_shared(releases.shared, grid, *given, stable, terms.unit, own)
        statistics = own
    else:
        statistics = split_statistics(terms.statistics_epsilon, uses, rows) if counted else None
        mechanism, filter_ = calibrate(law, grid, epsilon, terms.delta, uses, statistics, stable, terms.unit)
    low, high = terms.owner_range or (epsilon, epsilon)
    made = Sound(
        update=mechanism,
        statistics=statistics,
        filter=filter_,
        unit=terms.unit,
        uses=uses,
        sends=releases.sends,
        rows=releases.rows,
        share=terms.statistics_epsilon / epsilon,
        owner_range=(low, high),
    )
    for_owner(made, low)  # what cannot be kept is refused before an owner chooses it
    return made


def _with_moments(
    terms: PrivacySettings, epsilon: float, uses: int, bound_of: Callable[[int], float | None], releases: Releases
) -> Sound:
    """Calibrate squares of rows, and gradients that follow them."""
    moments = moments_grid(releases.features, labels=not releases.opening)
    gradients = None
    if releases.opening:
        gradients = make_grid(2, releases.size, _radius(terms, SOUND_LAWS["gaussian"], bound_of, releases), "example")
    return moments_sound(terms, epsilon, uses, moments, gradients, releases.opening, releases.shared)


def _require_shared(terms: PrivacySettings, law: NoiseLaw) -> None:
    """Refuse what has no meaning where the noise of many protects each."""
    if law.order != 2:
        raise BadInput(
            "noise on masked sums needs a bound in L2",
            where="privacy.mechanism",
            hint='use mechanism = "gaussian"; sums.law chooses between discrete Gaussian and Skellam shares',
        )
    if terms.owner_range is not None:
        raise BadInput(
            "in a masked sum everybody's noise protects everybody: owners cannot choose an ε of their own",
            where="privacy.owner-range",
            hint="leave it out",
        )


def _radius(
    terms: PrivacySettings, law: NoiseLaw, bound_of: Callable[[int], float | None], releases: Releases
) -> float:
    """Return what no vector exceeds: as the terms say, or what the model itself proves of a gradient."""
    if terms.clip:
        return terms.clip
    if releases.sends == "change":
        raise BadInput(
            "nothing bounds what local steps change",
            where="privacy.clip",
            hint=f"give clip, the longest change of all parameters together in L{law.order}, such as clip = 1.0",
        )
    radius = bound_of(law.order)
    if radius is None or radius == 0.0:
        raise BadInput(
            "nothing bounds the gradient of one example" if radius is None else "every row is zero",
            where="privacy.clip",
            hint=f"give clip, or end data.transform with a norm of order {law.order} and use a linear model",
        )
    return radius


def _checked(terms: PrivacySettings, releases: Releases) -> tuple[float, int]:
    """Refuse, with what would be right; return ε and the number of uses."""
    _check_form(terms, releases)
    epsilon = terms.epsilon
    if epsilon is None:
        raise BadInput(
            "sound mode needs epsilon, the total over the task",
            where="privacy.epsilon",
            hint='such as epsilon = 8.0; mode = "none" promises nothing',
        )
    require_meaningful(terms)
    if not SOUND_LAWS[terms.mechanism].pure and terms.delta == 0:
        raise BadInput(
            f'"{terms.mechanism}" needs delta above zero', where="privacy.delta", hint="such as delta = 1e-6"
        )
    if terms.statistics_epsilon >= epsilon:
        raise BadInput(
            f"statistics-epsilon = {terms.statistics_epsilon} leaves nothing of epsilon = {epsilon}",
            where="privacy.statistics-epsilon",
            hint="it is a part of epsilon: make it smaller",
        )
    _check_owners(terms, epsilon)
    return epsilon, _uses(terms, releases)


def _check_owners(terms: PrivacySettings, epsilon: float) -> None:
    if terms.owner_range is None:
        return
    if not terms.owner_range[0] <= epsilon <= terms.owner_range[1]:
        raise BadInput(
            f"epsilon = {epsilon:g} is outside of owner-range",
            where="privacy.owner-range",
            hint="it is what an owner gets who chooses nothing",
        )


def _check_fresh(terms: PrivacySettings) -> None:
    """Refuse noise that is given or correlated instead of being worked out from ε, fresh for each release."""
    if terms.noise_sequence == "banded":
        require_gaussian(terms)
        raise BadInput(
            "matrix-factorisation noise is neither fresh nor on the grid: no sound task may use it",
            where="privacy.noise-sequence",
            hint='simulation only, with mode = "paper"; leave it out for fresh noise',
        )
    given = {
        "noise-scale": terms.noise_scale,
        "noise-factor": terms.noise_factor,
        "noise-bands": terms.noise_bands,
        "noise-sequence": None if terms.noise_sequence == "iid" else terms.noise_sequence,
    }
    for name in (name for name, value in given.items() if value is not None):
        raise BadInput(
            "sound mode works the noise out from epsilon, the same for every release",
            where=f"privacy.{name}",
            hint='leave it out, or use mode = "paper" in a simulation',
        )


def _check_form(terms: PrivacySettings, releases: Releases) -> None:
    _check_fresh(terms)
    if terms.noise_at == "steps":
        raise BadInput(
            "noise inside local steps is Gaussian in floating point, on sums that are no integers: no ε can be "
            "promised for it, only a simulation may add it",
            where="privacy.noise-at",
            hint='mode = "paper" in a simulation; live, clip every row on the grid by "crowd-sgd" or "fedsgd", or the '
            'whole change with unit = "device"',
        )
    if not releases.sound:
        raise BadInput(
            "this algorithm has no sound form yet: nothing it sends is on the grid",
            where="privacy.mode",
            hint='use "crowd-sgd", "local-sgd", "fedavg", "fedsgd", "admm" or "consensus-newton", or mode = "paper" in '
            'a simulation, or "none"',
        )
    if terms.adjacency == "add-remove":
        seen = (
            "the number of samples travels"
            if releases.sends == "gradient"
            else "who takes part, and how often, is seen"
        )
        raise BadInput(
            f"{seen} in clear, so add-remove is not protected",
            where="privacy.adjacency",
            hint='use adjacency = "replace"',
        )
    if terms.mechanism not in SOUND_LAWS:
        raise BadInput(
            f'"{terms.mechanism}" cannot be named in sound mode',
            where="privacy.mechanism",
            hint='use "laplace" or "gaussian": on the grid they are discrete, and exact samplers exist for them',
        )


def _uses(terms: PrivacySettings, releases: Releases) -> int:
    if terms.unit == "sample":
        if terms.max_uses is None:
            raise BadInput(
                "epsilon is a total: over how many releases of one sample?",
                where="privacy.max-uses",
                hint="max-uses = 1 for a single pass; in a simulation as many as crowd.passes",
            )
        return terms.max_uses
    if releases.limit is None:
        raise BadInput(
            "epsilon is a total: over how many releases of one device?",
            where="stop.max-releases",
            hint="such as max-releases = 10",
        )
    return releases.limit
