"""admm: every device solves its own problem, and prices bring the solutions together.

Guo and Gong, "Practical collaborative learning for crowdsensing in the Internet of Things with differential privacy":
asynchronous consensus ADMM, algorithms 1 and 2. The common model w0 minimises the sum of all devices' losses plus
β·½‖w‖² or β·‖w‖₁. A device keeps a scaled dual λ, its price for being different from the rest. The server waits for
`barrier` check-ins (partial barrier s) and for everybody who was silent in the last `max-delay` - 1 versions (bounded
delay τ); all others go on from the version that they have.

Modes `none` and `paper` are the paper's messages: by how much the local model and the dual have changed. In mode
`paper` the local model gets noise before anything is made of it, so duals remember noise.

Mode `sound` sends one vector instead: 2λ' - λ, which is w + λ' - w0, relative to the public version that the device
started from. It is clipped as a whole, becomes integers, and gets fresh noise; duals stay exact and never see noise. So
every sum costs what its bound says, whatever devices remember (docs/how-to/mask-sums.md).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from pydantic import Field

from crowdml.algorithms.contract import Algorithm, Barrier, Counts, Parts
from crowdml.algorithms.grid_gradient import grid_change, sanitise_grid
from crowdml.algorithms.prox import Pull, local_solver, solvable
from crowdml.algorithms.recipes.contract import PaperForm, Recipe, SoundForm
from crowdml.algorithms.tail import Tail
from crowdml.core import Array, BadInput, Batch, Coins, Settings, trees
from crowdml.core.ops import Tree
from crowdml.privacy import add_noise, classical_scale


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
    newton_steps: int = Field(3, gt=0, description="Newton steps of a local solve, from the last solution on")
    average_from: int | None = Field(
        None, gt=0, description="the model is the mean of all versions from this one on; not given: the last one"
    )


def build(parts: Parts) -> Algorithm:
    """Assemble the algorithm: the paper's messages, or one vector in sound mode."""
    settings = _settings(parts)
    if not solvable(parts.model):
        raise BadInput(
            "admm solves each device's problem exactly, and can do so for convex models only",
            where="model.kind",
            hint='use "logistic", "softmax", "svm" or "huber"',
        )
    barrier = Barrier(least=settings.barrier or parts.devices, max_delay=settings.max_delay)
    if barrier.least > parts.devices:
        raise BadInput(
            f"the server would wait for {barrier.least} of {parts.devices} devices for ever",
            where="algorithm.barrier",
            hint=f"at most {parts.devices}",
        )
    half = _one_vector(parts) if parts.plan.sound else _as_in_the_paper(parts)

    def ready(counts: Counts) -> bool:
        return counts.received >= barrier.least and counts.longest < barrier.max_delay - 1

    return Algorithm(
        takes="sums",
        batch=1,
        buffer=1,
        always_ready=False,
        row_init=lambda: (),
        check_out=lambda server: server["parameters"],
        accepts=lambda staleness: staleness < barrier.max_delay,
        ready=ready,
        parameters=lambda server: server["tail"]["mean"] if settings.average_from else server["parameters"],
        solves=True,
        barrier=barrier,
        **half,
    )


def _as_in_the_paper(parts: Parts) -> dict[str, Any]:
    """Algorithm 1, lines 12 to 15, and algorithm 2: changes of noisy local models and of the duals made of them."""
    xp, model, solve, noise = parts.ops.xp, parts.model, _solver(parts), parts.plan.gradient
    barrier = _settings(parts).barrier or parts.devices

    def device_init() -> Tree:
        return {"local": model.zeros(), "sent": model.zeros(), "dual": model.zeros()}

    def device_step(broadcast: Tree, device: Tree, batch: Batch, coins: Coins) -> tuple[Tree, Tree]:
        local = solve(_minus(broadcast, device["dual"]), device["local"], batch)
        sent = local
        if noise:
            # Each of at least s devices adds its part, N(0, σ²/s), and keeps what came out of it.
            sent = add_noise(noise.law, local, parts.hyper["noise"] / barrier**0.5, coins, "local")
        apart = _minus(sent, broadcast)
        release = {"change": _minus(sent, device["sent"]), "dual": apart}
        return release, {"local": local, "sent": sent, "dual": _plus(device["dual"], apart)}

    def init(coins: Coins) -> Tree:
        zero = model.zeros()
        return {
            "parameters": model.init(coins),
            "mean": zero,
            "version": xp.int32(0),
            "tail": _tail(parts).empty(zero),
            "window": zero,
        }

    def absorb(server: Tree, row: Tree, check_in: Tree, stale: Array) -> tuple[Tree, Tree]:
        both = _plus(check_in["change"], check_in["dual"])
        return server | {"window": _plus(server["window"], both)}, row

    def commit(server: Tree) -> tuple[Tree, Tree]:
        # w̄ and λ̄ are only ever used as a sum.
        mean = trees.map(lambda old, new: old + new / parts.devices, server["mean"], server["window"])
        return _committed(parts, server, _regularised(parts, mean), {"mean": mean, "window": model.zeros()}), {}

    return {
        "init": init,
        "device_init": device_init,
        "device_step": device_step,
        "sanitise": lambda release, coins: release,
        "absorb": absorb,
        "commit": commit,
    }


def _one_vector(parts: Parts) -> dict[str, Any]:
    """Sound mode: exact duals, one clipped vector relative to a public version, fresh noise."""
    xp, model, solve, settings = parts.ops.xp, parts.model, _solver(parts), _settings(parts)
    assert parts.plan.sound is not None  # noqa: S101  `build` has asked
    step, kept = parts.plan.sound.update.grid.step, settings.max_delay

    def device_init() -> Tree:
        return {"local": model.zeros(), "dual": model.zeros()}

    def device_step(broadcast: Tree, device: Tree, batch: Batch, coins: Coins) -> tuple[Tree, Tree]:
        centre = _minus(broadcast, device["dual"])
        local = solve(centre, device["local"], batch)
        dual = _minus(local, centre)
        told = trees.map(lambda new, old: 2 * new - old, dual, device["dual"])
        return {"change": grid_change(parts, told, coins), "weight": xp.int32(1)}, {"local": local, "dual": dual}

    def init(coins: Coins) -> Tree:
        first = model.init(coins)
        return {
            "parameters": first,
            "past": trees.map(lambda leaf: xp.stack([leaf] * kept), first),
            "version": xp.int32(0),
            "tail": _tail(parts).empty(first),
            "window": _empty(model.zeros(), xp),
        }

    def absorb(server: Tree, row: Tree, check_in: Tree, stale: Array) -> tuple[Tree, Tree]:
        # Members of a masked sum may have begun with different versions: then their mean stands for each.
        began = (server["version"] - xp.atleast_1d(stale)) % kept
        read = trees.map(lambda leaf: xp.mean(xp.take(leaf, began, axis=0), axis=0), server["past"])
        told = trees.map(lambda leaf: leaf.astype(xp.float32) * xp.float32(step), check_in["change"])
        # A sum of several says how many they are.
        weight = check_in["weight"].astype(xp.float32)
        window = {
            "sum": trees.map(lambda total, own, base: total + own + weight * base, server["window"]["sum"], told, read),
            "count": server["window"]["count"] + weight,
        }
        return server | {"window": window}, row

    def commit(server: Tree) -> tuple[Tree, Tree]:
        count = server["window"]["count"]
        share = count / parts.devices
        mean = trees.map(lambda total: total / xp.maximum(count, xp.float32(1)), server["window"]["sum"])
        # Those who were not heard are taken to be where the model is: then what they would say needs no memory.
        new = trees.map(lambda old, own: old + share * (own - old), server["parameters"], _regularised(parts, mean))
        slot = (server["version"] + xp.int32(1)) % kept
        past = trees.map(lambda ring, own: _put(ring, slot, own, xp), server["past"], new)
        return _committed(parts, server, new, {"past": past, "window": _empty(model.zeros(), xp)}), {}

    return {
        "init": init,
        "device_init": device_init,
        "device_step": device_step,
        "sanitise": lambda release, coins: release | {"change": sanitise_grid(parts, release["change"], coins)},
        "absorb": absorb,
        "commit": commit,
    }


def _committed(parts: Parts, server: Tree, new: Tree, rest: Tree) -> Tree:
    version = server["version"] + parts.ops.xp.int32(1)
    tail = _tail(parts).add(server["tail"], new, version)
    return server | {"parameters": new, "version": version, "tail": tail} | rest


def _solver(parts: Parts) -> Callable[[Tree, Tree, Batch], Tree]:
    solve = local_solver(parts.model, parts.ops)
    pull = Pull(rho=parts.hyper["rho"], decay=parts.hyper["regularisation"], steps=_settings(parts).newton_steps)
    return lambda centre, start, batch: solve(centre, start, batch, pull)


def _regularised(parts: Parts, mean: Tree) -> Tree:
    """Equation (11): argmin β·r(w) + ½ nρ ‖w - mean‖²."""
    xp, strength = parts.ops.xp, parts.hyper["beta"] / (parts.devices * parts.hyper["rho"])

    def of_leaf(path: str, leaf: Array) -> Array:
        if not path.endswith("/w"):
            return leaf
        if _settings(parts).regulariser == "l2":
            return leaf / (1 + strength)
        return xp.sign(leaf) * xp.maximum(xp.abs(leaf) - strength, xp.float32(0))

    return trees.map_paths(of_leaf, mean)


def _tail(parts: Parts) -> Tail:
    return Tail(begin=_settings(parts).average_from, ops=parts.ops)


def _empty(zero: Tree, xp: Any) -> Tree:
    return {"sum": zero, "count": xp.float32(0)}


def _put(ring: Array, slot: Array, own: Array, xp: Any) -> Array:
    here = (xp.arange(len(ring)) == slot).reshape(-1, *[1] * own.ndim)
    return xp.where(here, own[None], ring)


def _plus(one: Tree, other: Tree) -> Tree:
    return trees.map(lambda a, b: a + b, one, other)


def _minus(one: Tree, other: Tree) -> Tree:
    return trees.map(lambda a, b: a - b, one, other)


def _settings(parts: Parts) -> AdmmSettings:
    assert isinstance(parts.settings, AdmmSettings)  # noqa: S101  the registry pairs settings and recipe
    return parts.settings


def _together(own: AdmmSettings) -> int:
    found = own.barrier or own.devices
    if found is None:
        raise BadInput(
            "how many check-ins are there in a masked sum at least?",
            where="algorithm.barrier",
            hint="such as barrier = 100; as many as there are devices is synchronous",
        )
    return found


UNPROVEN = (
    "the paper bounds a local model for one fixed dual (lemma 1), so for the first iteration only: later duals depend "
    "on the rows themselves, and no bound is proven for them. Its theorem is about one iteration; the ε of a "
    "simulation is what all of them add up to if the lemma held in each"
)
ADMM = Recipe(
    settings=AdmmSettings,
    hyper={"rho": "rho", "beta": "beta"},
    build=build,
    paper=PaperForm(reach=lambda own: 1 / own.rho, scale=classical_scale, unproven=UNPROVEN),
    sound=lambda own: SoundForm(sends="change", rows=None),
    together=_together,
    live=True,
    sums_only=True,
)
