"""admm: every device solves its problem, and prices bring the solutions together.

Guo and Gong, "Practical collaborative learning for crowdsensing in the Internet of Things with differential privacy":
asynchronous consensus ADMM, algorithms 1 and 2. The common model w0 minimises the sum of all devices' losses plus
β·½‖w‖² or β·‖w‖₁. A device keeps a scaled dual λ, its price for being different from the rest. The server waits for
`barrier` check-ins (partial barrier s) and for everybody who was silent in the last `max-delay` - 1 versions (bounded
delay τ); all others go on from the version that they have.

Messages are the paper's: by how much the local model and the dual have changed. In mode `paper` the local model gets
noise before anything is made of it, so duals remember noise, and no bound is proven. `admm-sums` has messages for which
one is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from pydantic import Field

from crowdml.algorithms.contract import Algorithm, SpeedHints, one_phase
from crowdml.algorithms.device_parts.local_solver import Pull, local_solver, solvable
from crowdml.algorithms.device_parts.prox import Prox
from crowdml.algorithms.recipe import Parts, Recipe
from crowdml.algorithms.schedule import Barrier
from crowdml.algorithms.server_parts.consensus import Increments
from crowdml.algorithms.server_parts.step import Tail
from crowdml.core import Array, BadInput, Batch, Settings, Tree, trees
from crowdml.privacy import Releases, classical_scale

UNPROVEN = (
    "the paper bounds a local model for one fixed dual (lemma 1), so for the first iteration only: later duals depend "
    "on the rows themselves, and no bound is proven for them. Its theorem is about one iteration; the ε of a "
    "simulation is what all of them add up to if the lemma held in each"
)


class AdmmSettings(Settings):
    """The `[algorithm]` section of an admm task."""

    kind: Literal["admm"] = "admm"
    rho: float = Field(1.0, gt=0, description="ρ: how strongly local models are held together")
    barrier: int | None = Field(
        None, gt=0, description="s: check-ins the server waits for; not given: all devices, which is synchronous"
    )
    max_delay: int = Field(10, gt=0, description="τ: every device is heard at least once in so many versions")
    devices: int | None = Field(
        None, gt=0, description="n: devices that take part; not given: as many as the simulated crowd has"
    )
    beta: float = Field(0.1, ge=0, description="β: strength of the regulariser on the sum of all losses")
    regulariser: Literal["l2", "l1"] = Field("l2", description="½‖w‖² or ‖w‖₁; biases are left out")
    honest: float = Field(
        1.0,
        gt=0,
        le=1,
        description="γ: in paper mode, part of the devices whose noise counts: each adds 1/(γ·s) of it. With secure "
        "aggregation secure-aggregation.honest says it",
    )
    newton_steps: int = Field(3, gt=0, description="Newton steps of a local solve, from the last solution on")
    average_from: int | None = Field(
        None, gt=0, description="the model is the mean of all versions from this one on; not given: the last one"
    )


def build(parts: Parts) -> Algorithm:
    """Assemble: the paper's messages behind a partial barrier."""
    schedule = barrier(parts)
    # Noise of variance σ²/(γ·s) from each, so that the honest among s have σ² together.
    counted = schedule.least * parts.settings.honest
    sanitiser = parts.sanitiser("local", alone=False, by_rows=False, among=counted)
    if parts.settings.honest != 1 and not sanitiser.adds_noise:
        raise BadInput("without noise nobody's share of it counts", where="algorithm.honest", hint="leave it out")
    device = Prox(solve=solver(parts), sanitiser=sanitiser, zeros=parts.model.zeros, ops=parts.ops)
    server = Increments(sanitiser=sanitiser, **consensus(parts))
    return one_phase(device, server, sanitiser, schedule, SpeedHints(one_trial_at_a_time=True))


def consensus(parts: Parts) -> dict[str, Any]:
    """Return what the server part is made of, whatever messages are."""
    return {
        "model": parts.model,
        "regularised": lambda mean: regularised(parts, mean),
        "devices": parts.devices,
        "tail": Tail(begin=parts.settings.average_from, ops=parts.ops),
        "ops": parts.ops,
    }


def barrier(parts: Parts) -> Barrier:
    """Return whom the server waits for; refuse models that cannot be solved, and barriers that are never reached."""
    if not solvable(parts.model):
        raise BadInput(
            "admm solves each device's problem exactly, and can do so for convex models only",
            where="model.kind",
            hint='use "logistic", "softmax", "svm" or "huber"',
        )
    found = Barrier(least=parts.settings.barrier or parts.devices, max_delay=parts.settings.max_delay)
    if found.least > parts.devices:
        raise BadInput(
            f"the server would wait for {found.least} of {parts.devices} devices for ever",
            where="algorithm.barrier",
            hint=f"at most {parts.devices}",
        )
    return found


def solver(parts: Parts) -> Callable[[Tree, Tree, Batch], Tree]:
    """Return `solve(centre, start, batch)`: a device's local problem."""
    solve = local_solver(parts.model, parts.ops)
    pull = Pull(rho=parts.hyper["rho"], decay=parts.hyper["regularisation"], steps=parts.settings.newton_steps)
    return lambda centre, start, batch: solve(centre, start, batch, pull)


def regularised(parts: Parts, mean: Tree) -> Tree:
    """Equation (11): argmin β·r(w) + ½ nρ ‖w - mean‖²."""
    xp, strength = parts.ops.xp, parts.hyper["beta"] / (parts.devices * parts.hyper["rho"])

    def of_leaf(path: str, leaf: Array) -> Array:
        if not path.endswith("/w"):
            return leaf
        if parts.settings.regulariser == "l2":
            return leaf / (1 + strength)
        return xp.sign(leaf) * xp.maximum(xp.abs(leaf) - strength, xp.float32(0))

    return trees.map_paths(of_leaf, mean)


def cohort_size(settings: Any) -> int:
    """Return how many check-ins a secure sum has at least."""
    found = settings.barrier or settings.devices
    if found is None:
        raise BadInput(
            "how many check-ins are there in a secure sum at least?",
            where="algorithm.barrier",
            hint="such as barrier = 100; as many as there are devices is synchronous",
        )
    return int(found)


ADMM = Recipe(
    settings=AdmmSettings,
    hyper={"rho": "rho", "beta": "beta"},
    build=build,
    releases=lambda settings: Releases(
        sends="message", sensitivity_factor=1 / settings.rho, paper_scale=classical_scale, unproven=UNPROVEN
    ),
    cohort_size=cohort_size,
    live=True,
    sums_only=True,
)
