"""Sound mode: every term checked, then calibrated. Whatever could not be proven is refused here.

ε is a *total*: over all releases a sample may enter (`max-uses`, unit sample) or a device may make (`max-releases`,
unit device), counts included.
"""

from __future__ import annotations

from crowdml.core import BadInput
from crowdml.privacy.accounting import Filter, FilterKind
from crowdml.privacy.calibration.first_cut_plan import first_cut_plan
from crowdml.privacy.calibration.least_noise import Wanted, calibrate, calibrate_shared, noise_for
from crowdml.privacy.calibration.term_checks import (
    refuse_given,
    refuse_steps,
    require_bound,
    require_gaussian,
    require_limit,
    require_meaningful,
    require_parts,
    require_replace,
    require_step_noise,
    stated,
)
from crowdml.privacy.gaussian import gaussian_budget
from crowdml.privacy.noise.grid import Grid, Per, Stability, make_fine_grid, make_grid, moments_grid
from crowdml.privacy.noise.laws import SOUND_LAWS, NoiseLaw
from crowdml.privacy.plan import Plan
from crowdml.privacy.releases import ModelBounds, Releases
from crowdml.privacy.renyi import rho_budget
from crowdml.privacy.sanitisers.base import Sanitiser
from crowdml.privacy.sanitisers.grid import OnGrid
from crowdml.privacy.sanitisers.grid_steps import GridSteps
from crowdml.privacy.settings import PrivacySettings

LEAST_RADIUS = 1e-280
"""Below this a level would be no normal double, and a proof in levels would not be one of lengths."""


def sound_plan(settings: PrivacySettings, releases: Releases, model: ModelBounds) -> Plan:
    """Check the terms and calibrate.

    A gradient is a sum over examples, so for samples each example is bounded. What local steps have changed is no such
    sum: it is bounded as a whole, and so is everything that is promised to devices. The bound on a whole message also
    holds for the change of one sample, since that changes the message from one bounded vector to another; unless the
    steps are proven to be more stable than that (in L2, so for Gaussian noise).
    """
    refuse_steps(settings)
    if releases.sends == "pieces":
        return first_cut_plan(settings, releases, model)
    epsilon, uses = _checked(settings, releases, model)
    if settings.noise_at == "steps":
        return _in_steps(settings, releases, model, epsilon, uses)
    if releases.sends == "moments" or releases.first_uses:
        return _with_moments(settings, releases, model, epsilon, uses)
    law = SOUND_LAWS[settings.mechanism]
    grid, stable = _grid(settings, law, releases, model)
    counted = releases.counts and settings.statistics_epsilon > 0
    if counted and settings.unit == "device" and releases.rows is None:
        raise BadInput(
            "nothing bounds the rows that a device counts", where="privacy.statistics-epsilon", hint="leave it out"
        )
    wanted = Wanted(
        epsilon=epsilon,
        delta=settings.delta,
        uses=uses,
        unit=settings.unit,
        rows=1 if settings.unit == "sample" else releases.rows or 1,
        statistics=settings.statistics_epsilon if counted else 0.0,
        label_share=settings.label_share,
    )
    if model.shared:
        _require_shared(settings, law)
        mechanism, counts, limit = calibrate_shared(model.shared, grid, stable, wanted, model.classes)
    else:
        mechanism, counts, limit = calibrate(law, grid, stable, wanted)
    made = OnGrid(mechanism=mechanism, counts=counts, one_epsilon=model.shared is not None)
    return _offered(settings, releases, made, epsilon, uses, limit)


def _offered(
    settings: PrivacySettings, releases: Releases, made: Sanitiser, epsilon: float, uses: int, limit: Filter
) -> Plan:
    """Return the plan, from which owners may choose their ε; what cannot be kept is refused before one does."""
    low, high = settings.owner_range or (epsilon, epsilon)
    share = settings.statistics_epsilon / epsilon
    terms = stated(
        settings,
        uses=uses,
        rows=releases.rows,
        filter=limit,
        share=share,
        label_share=settings.label_share,
        owner_range=(low, high),
    )
    plan = Plan(terms=terms, sanitisers=(made,) * releases.phases)
    plan.for_owner(low)
    return plan


def _in_steps(settings: PrivacySettings, releases: Releases, model: ModelBounds, epsilon: float, uses: int) -> Plan:
    """Calibrate noise inside local steps, of which a sample is in one per release."""
    local = releases.steps
    if local is None or not local.by_walk:
        raise BadInput(
            "there are no local steps to put noise into, or more is sent than what they have changed",
            where="privacy.noise-at",
            hint='use "local-sgd" with local-steps of at least 1, or "fedavg"; or noise-at = "message"',
        )
    if local.epochs != 1:
        raise BadInput(
            f"with {local.epochs} epochs a row is in several steps of a release, some of them the same",
            where="algorithm.epochs",
            hint="epochs = 1, and as many more rounds: an epoch would cost as much as a round",
        )
    _require_step_terms(settings, model)
    law = SOUND_LAWS[settings.mechanism]
    grid = make_grid(law.order, model.size, _radius(settings, law, releases, model), "example")
    wanted = Wanted(epsilon=epsilon, delta=settings.delta, uses=uses, unit="sample")
    mechanism, _, limit = calibrate(law, grid, None, wanted)
    made = GridSteps(mechanism=mechanism, part=local.part, by_layer=settings.clipping == "per-layer")
    return _offered(settings, releases, made, epsilon, uses, limit)


def _require_step_terms(settings: PrivacySettings, model: ModelBounds) -> None:
    """Refuse what is not proven of steps that go through the rows, with what would be right."""
    require_step_noise(settings)
    if settings.unit != "sample":
        raise BadInput(
            "noise in local steps promises something to samples: a device is in all of them",
            where="privacy.unit",
            hint='unit = "sample"; for whole devices noise-at = "message"',
        )
    if settings.sampling not in (None, "in-turn"):
        raise BadInput(
            f'sampling = "{settings.sampling}" costs less by divergences of many orders, and a ledger adds up one sum',
            where="privacy.sampling",
            hint='leave it out: rows go in turn, each in one step of a release; mode = "paper" simulates the others',
        )
    why = "rows go in turn, and noise follows from epsilon"
    refuse_given(settings, ("sampling_rate", "noise_multiplier", "statistics_epsilon"), why)
    if model.shared:
        raise BadInput(
            "what steps have changed has its noise already: there is nothing left for others to share",
            where="secure-aggregation.enabled",
            hint='leave it out, or noise-at = "message"',
        )


def _grid(
    settings: PrivacySettings, law: NoiseLaw, releases: Releases, model: ModelBounds
) -> tuple[Grid, Stability | None]:
    """Return the bound on what is sent, and a proof of stability where it helps."""
    per: Per = "example" if settings.unit == "sample" and releases.sends == "gradient" else "release"
    radius = _radius(settings, law, releases, model)
    if model.stable and law.order == 2 and per == "release" and radius >= LEAST_RADIUS:
        return make_fine_grid(model.size, radius), model.stable
    return make_grid(law.order, model.size, radius, per), None


def _with_moments(settings: PrivacySettings, releases: Releases, model: ModelBounds, epsilon: float, uses: int) -> Plan:
    """Split a budget evenly between uses; squares sent first count for several, and gradients for one each.

    So squares can be sent again where a sum was given up: that costs uses as it did before.
    """
    gradients = None
    if releases.first_uses:
        gradients = make_grid(2, model.size, _radius(settings, SOUND_LAWS["gaussian"], releases, model), "example")
    _require_moments(settings, uses, gradients, releases.first_uses)
    kind, budget = _sum_of_gaussians(epsilon, settings.delta, model)
    each = budget * (1 - 1e-9) / uses
    limit = Filter(kind=kind, epsilon=epsilon, delta=settings.delta)
    first_uses, only_choice = max(releases.first_uses, 1), (epsilon, epsilon)
    terms = stated(settings, uses=uses, filter=limit, first_uses=first_uses, owner_range=only_choice)
    moments = moments_grid(model.features, labels=not releases.first_uses)
    if gradients is None:
        only = OnGrid(mechanism=noise_for(moments, each, model.shared), one_epsilon=True)
        return Plan(terms=terms, sanitisers=(only,) * releases.phases)
    last = OnGrid(mechanism=noise_for(gradients, each, model.shared), one_epsilon=True)
    squares = noise_for(moments, last.mechanism.event.rho * releases.first_uses, model.shared)
    return Plan(terms=terms, sanitisers=(OnGrid(mechanism=squares, first=True, one_epsilon=True), last))


def _sum_of_gaussians(epsilon: float, delta: float, model: ModelBounds) -> tuple[FilterKind, float]:
    """Return the sum that needs least noise, and its budget; of shares only Rényi divergences are known."""
    shared = model.shared
    whole = shared is not None and shared.event(1, 1, shared.least_scale).whole
    rho, exact = rho_budget(epsilon, delta, whole), 0.0 if shared else gaussian_budget(epsilon, delta)
    return ("gaussian", exact) if exact > rho else ("rdp", rho)


def _require_moments(terms: PrivacySettings, uses: int, gradients: Grid | None, first_uses: int) -> None:
    """Refuse what the bound on squares does not cover."""
    if terms.unit != "sample":
        raise BadInput(
            "squares of rows are bounded row by row, so they promise something to samples",
            where="privacy.unit",
            hint='use unit = "sample", or kind = "admm-sums" for devices',
        )
    if terms.mechanism != "gaussian":
        raise BadInput("squares of rows are bounded in L2", where="privacy.mechanism", hint='use "gaussian"')
    refuse_given(terms, ("owner_range",), "there is one ε for all here")
    if gradients and uses <= first_uses:
        raise BadInput(
            f"squares count for {first_uses} use{'s' * (first_uses > 1)}, and then there is nothing left for gradients",
            where="privacy.max-uses",
            hint=f"at least {first_uses + 1}, such as {first_uses + 10}",
        )


def _require_shared(terms: PrivacySettings, law: NoiseLaw) -> None:
    """Refuse what has no meaning where the noise of many protects each."""
    if law.order != 2:
        raise BadInput(
            "noise under secure aggregation needs a bound in L2",
            where="privacy.mechanism",
            hint='use mechanism = "gaussian"; secure-aggregation.law chooses the law of the shares',
        )
    refuse_given(
        terms,
        ("owner_range",),
        "under secure aggregation everybody's noise protects everybody: owners cannot choose an ε of their own",
    )
    refuse_given(terms, ("label_share",), "counts in a secure sum are one vector with noise of one size")


def _radius(terms: PrivacySettings, law: NoiseLaw, releases: Releases, model: ModelBounds) -> float:
    """Return what no vector exceeds: as algorithm or terms say, or what the model itself proves of a gradient."""
    if releases.bound is not None:
        refuse_given(terms, ("clip",), "the algorithm clips by itself, at a length that it learns")
        if law.order != 2:
            raise BadInput(
                "what the algorithm sends is bounded in L2", where="privacy.mechanism", hint='use "gaussian"'
            )
        return releases.bound
    if terms.clip:
        return terms.clip
    if releases.sends == "change":
        raise BadInput(
            "nothing bounds what local steps change",
            where="privacy.clip",
            hint=f"give clip, the longest change of all parameters together in L{law.order}, such as clip = 1.0",
        )
    return require_bound(model.gradient(law.order), law.order)


def _checked(terms: PrivacySettings, releases: Releases, model: ModelBounds) -> tuple[float, int]:
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
    require_parts(terms, epsilon, SOUND_LAWS[terms.mechanism].pure, "1e-6")
    if terms.owner_range is not None and not terms.owner_range[0] <= epsilon <= terms.owner_range[1]:
        raise BadInput(
            f"epsilon = {epsilon:g} is outside of owner-range",
            where="privacy.owner-range",
            hint="it is what an owner gets who chooses nothing",
        )
    return epsilon, _uses(terms, model.limit)


def _check_fresh(terms: PrivacySettings) -> None:
    """Refuse noise that is given or correlated instead of being worked out from ε, fresh for each release."""
    if terms.noise_sequence == "banded":
        require_gaussian(terms)
        raise BadInput(
            "matrix-factorisation noise is neither fresh nor on the grid: no sound task may use it",
            where="privacy.noise-sequence",
            hint='simulation only, with mode = "paper"; leave it out for fresh noise',
        )
    refuse_given(
        terms,
        ("noise_scale", "noise_factor", "noise_bands", "noise_sequence"),
        "sound mode works the noise out from epsilon, the same for every release",
        'leave it out, or use mode = "paper" in a simulation',
    )


def _check_form(terms: PrivacySettings, releases: Releases) -> None:
    _check_fresh(terms)
    if not releases.on_grid:
        raise BadInput(
            "this algorithm has no sound form yet: nothing it sends is on the grid",
            where="privacy.mode",
            hint='use "crowd-sgd", "local-sgd", "fedavg", "fedsgd", "admm-sums" or "consensus-newton", or '
            'mode = "paper" in a simulation, or "none"',
        )
    by_rows = releases.sends == "gradient"
    require_replace(terms, "the number of samples travels" if by_rows else "who takes part, and how often, is seen")
    if terms.mechanism not in SOUND_LAWS:
        raise BadInput(
            f'"{terms.mechanism}" cannot be named in sound mode',
            where="privacy.mechanism",
            hint='use "laplace" or "gaussian": on the grid they are integers, and exact samplers exist for them',
        )


def _uses(terms: PrivacySettings, limit: int | None) -> int:
    if terms.unit == "device":
        return require_limit(limit)
    if terms.max_uses is None:
        raise BadInput(
            "epsilon is a total: over how many releases of one sample?",
            where="privacy.max-uses",
            hint="max-uses = 1 for a single pass; in a simulation as many as crowd.passes",
        )
    return terms.max_uses
