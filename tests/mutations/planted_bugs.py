"""Bugs that break a promise without anybody noticing at work, each planted by a patch, and what must catch it.

A bug is caught by the audit of a small task, which must come out as broken, or by named tests, one of which must fail.
Nothing here is imported by the product: patches are undone when the block ends.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import numpy as np

from crowdml.audit import neighbours
from crowdml.core import CheckIn, trees
from crowdml.core.ops import ZeroCoins
from crowdml.device.entropy_coins import DeviceCoins
from crowdml.device.sending import Sender
from crowdml.privacy.ledger.ledger_chain import LedgerChain
from crowdml.privacy.noise.counts import CountNoise
from crowdml.privacy.noise.grid import round_checked, to_levels
from crowdml.privacy.noise.samplers import OsWords
from crowdml.privacy.sanitisers import grid as on_grid
from crowdml.privacy.sanitisers import grid_steps
from crowdml.privacy.sanitisers.grid import OnGrid
from crowdml.privacy.sanitisers.grid_steps import InTurn
from crowdml.privacy.sanitisers.walks import Stable
from crowdml.server.store import batch_writes
from crowdml.task import Task
from tests.audit.attacked_tasks import attacked_task

LAWS = ("discrete_laplace", "rounded_gaussian", "discrete_gaussian", "skellam")


@dataclass(frozen=True)
class PlantedBug:
    """A bug, and what must catch it.

    Attributes:
        name: What is wrong.
        plant: `plant(stack)`: enters the patches that plant it.
        audited: Tasks whose audit must come out as broken, by name.
        tests: Tests of which at least one must fail.
    """

    name: str
    plant: Callable[[ExitStack], None]
    audited: dict[str, Callable[[], Task]]
    tests: tuple[str, ...] = ()


def patch(stack: ExitStack, where: Any, name: str, made: Any) -> None:
    """Put something in the place of an attribute until the stack is closed."""
    stack.enter_context(mock.patch.object(where, name, made))


def no_noise(stack: ExitStack) -> None:
    """Samplers answer zero."""
    for law in LAWS:
        patch(stack, DeviceCoins, law, lambda self, stage, scale, shape: np.zeros(shape, np.int32))


def half_noise(stack: ExitStack) -> None:
    """Samplers draw at half the scale."""
    for law in LAWS:
        drawn = getattr(DeviceCoins, law)
        patch(stack, DeviceCoins, law, lambda self, stage, scale, shape, d=drawn: d(self, stage, scale / 2, shape))


def bound_in_another_norm(stack: ExitStack) -> None:
    """Vectors are clipped in L2 where the noise is Laplace's, and the check of the integers is left out."""
    clipped, rounded = to_levels, round_checked

    def unchecked(grid: Any, x: Any, coins: Any, stage: str, ops: Any) -> Any:
        return rounded(replace(grid, limit=1 << 60), x, coins, stage, ops)

    patch(stack, on_grid, "to_levels", lambda grid, vectors, ops: clipped(replace(grid, order=2), vectors, ops))
    patch(stack, on_grid, "round_checked", unchecked)


def no_clip(stack: ExitStack) -> None:
    """Vectors are neither clipped nor checked, but for the size of an integer."""

    def scaled(grid: Any, vectors: Any, ops: Any) -> Any:
        return vectors * np.float32(grid.levels / grid.radius)

    def rounded(grid: Any, x: Any, coins: Any, stage: str, ops: Any) -> Any:
        return np.rint(np.clip(np.nan_to_num(x), -20.0 * grid.levels, 20.0 * grid.levels)).astype(np.int32)

    for where in (on_grid, grid_steps):
        patch(stack, where, "to_levels", scaled)
        patch(stack, where, "round_checked", rounded)


def long_rows_in_steps(stack: ExitStack) -> None:
    """Local steps believe that rows are as short as the proof says."""

    def believed(self: Stable, batch: Any) -> Any:
        return replace(batch, rows=batch.rows.astype(np.float64), mask=batch.mask.astype(np.float64))

    patch(stack, Stable, "bounded", believed)


def long_rows(stack: ExitStack) -> None:
    """Nor does the transform shorten them."""
    long_rows_in_steps(stack)
    patch(stack, neighbours, "compose", lambda fitted: lambda rows: rows)


def counts_in_clear(stack: ExitStack) -> None:
    """Counts are sent as they are."""
    patch(stack, CountNoise, "add", lambda self, counts, given, coins: counts)


def noise_kept(stack: ExitStack) -> None:
    """A device draws its noise once, and adds it to every release."""
    fresh = OnGrid.noise

    def kept(self: OnGrid, release: Any, memory: Any, coins: Any) -> Any:
        check_in, _ = fresh(self, release, (), coins)
        if not trees.leaves(memory):
            return check_in, trees.map(lambda noisy, plain: noisy - plain, check_in.update, release.update)
        update = trees.map(lambda plain, noise: plain + noise, release.update, memory)
        return CheckIn(update=update, weight=check_in.weight, counts=check_in.counts), memory

    patch(stack, OnGrid, "noise", kept)


def noise_of_steps_drawn_once(stack: ExitStack) -> None:
    """A device draws noise for its first step, and adds it in every later one."""
    fresh = InTurn.noised

    def kept(self: InTurn, total: Any, coins: Any) -> Any:
        if "noise" not in coins.__dict__:
            coins.noise = fresh(self, np.zeros_like(total), coins)
        return total + coins.noise

    patch(stack, InTurn, "noised", kept)


def noise_after_memory(stack: ExitStack) -> None:
    """What a rate remembers of a step has no noise: that is added to what is sent."""
    noisy = InTurn.take

    def take(self: InTurn, parameters: Any, memory: Any, begin: Any, batch: Any, coins: Any) -> Any:
        change, _, taken = noisy(self, parameters, memory, begin, batch, coins)
        return change, noisy(self, parameters, memory, begin, batch, ZeroCoins())[1], taken

    patch(stack, InTurn, "take", take)


def seed_reused(stack: ExitStack) -> None:
    """The words of every check-in come from one seed."""

    def begun(self: DeviceCoins, words: Any = None) -> None:
        self._words = words or Seeded()

    patch(stack, DeviceCoins, "__init__", begun)


class Seeded(OsWords):
    """Words of a generator that always begins alike."""

    def __init__(self) -> None:
        self._generator = np.random.default_rng(7)

    def take(self, count: int) -> Any:
        """Draw from the generator."""
        return self._generator.integers(0, 1 << 64, count, np.uint64)


def drawn_anew(stack: ExitStack) -> None:
    """What must be sent again has other noise."""
    stored = Sender.unsettled

    def other(self: Sender) -> Any:
        return [replace(each, body=each.body[:-1] + bytes([each.body[-1] ^ 1])) for each in stored(self)]

    patch(stack, Sender, "unsettled", other)


def retries_are_free(stack: ExitStack) -> None:
    """A second release from one version is taken for a resend of the first."""
    charged = LedgerChain.charge

    def once(self: LedgerChain, task: str, key: str, body: bytes, samples: Any, version: int, *more: Any) -> Any:
        seen = self.__dict__.setdefault("seen", set())
        if (task, version) in seen:
            return None
        seen.add((task, version))
        return charged(self, task, key, body, samples, version, *more)

    patch(stack, LedgerChain, "charge", once)


def lease_without_fence(stack: ExitStack) -> None:
    """Whoever believes to hold the lease stores, wherever the task is by now."""
    fence = " AND version = ? AND check_ins = ?"
    for name in ("ADVANCE", "TURN"):
        fenced = getattr(batch_writes, name)
        assert fence in fenced
        patch(stack, batch_writes, name, fenced.replace(fence, " AND ? >= 0 AND ? >= 0"))


def one(mechanism: str, **more: Any) -> Callable[[], Task]:
    """Make a task with one release of crowd-sgd."""
    return lambda: attacked_task("crowd-sgd", mechanism=mechanism, uses=1, **more)


def steps() -> Task:
    """Make a task whose promise rests on the stability of its steps."""
    task = attacked_task(
        "local-sgd", uses=1, changes=("privacy.clip=5.0", "algorithm.rate={ kind = 'constant', c = 0.5 }")
    )
    assert task.calibrated.last.moved_by_sample is not None
    return task


BOTH = {"laplace": one("laplace"), "gaussian": one("gaussian")}
IN_STEPS = {"noise in steps": lambda: attacked_task("fedavg", steps=True, uses=1)}
IN_SUMS = {"a secure sum": lambda: attacked_task("fedsgd", law="discrete-gaussian", uses=1)}
LEDGER = "tests/device/test_ledger_store.py::"
DEVICE = "tests/device/test_device.py::"
STORE = "tests/contract/test_store.py::"
STEPS = "tests/privacy/sanitisers/test_grid_steps.py::"
STABLE = "tests/privacy/stability/test_stability.py::"

BUGS = (
    PlantedBug("no noise", no_noise, BOTH | IN_SUMS | IN_STEPS),
    PlantedBug("half the noise", half_noise, BOTH | IN_SUMS | IN_STEPS),
    PlantedBug("Laplace noise with a bound in L2", bound_in_another_norm, {"laplace": one("laplace")}),
    PlantedBug("nothing is clipped", no_clip, BOTH | IN_STEPS),
    PlantedBug("row norm not enforced", long_rows, {"stable steps": steps}),
    PlantedBug(
        "row norm not enforced in steps",
        long_rows_in_steps,
        {},
        (f"{STABLE}test_rows_are_numbers_and_no_longer_than_the_proof_says",),
    ),
    PlantedBug(
        "counts in clear",
        counts_in_clear,
        {"counts": one("gaussian", epsilon=1.0, changes=("privacy.statistics-epsilon=0.2",))},
    ),
    PlantedBug("noise kept in the state", noise_kept, BOTH),
    PlantedBug("a seed used again", seed_reused, BOTH | IN_STEPS),
    PlantedBug(
        "noise of the first step in all steps",
        noise_of_steps_drawn_once,
        {},
        (f"{STEPS}test_noise_of_the_planned_scale_goes_into_every_step_before_the_next",),
    ),
    PlantedBug(
        "what a rate remembers has no noise",
        noise_after_memory,
        {},
        (f"{STEPS}test_whatever_is_kept_is_made_of_noisy_sums",),
    ),
    PlantedBug(
        "noise drawn anew for a resend",
        drawn_anew,
        {},
        (f"{DEVICE}test_killed_between_charge_and_receipt",),
    ),
    PlantedBug(
        "a ledger that skips retries",
        retries_are_free,
        {},
        (f"{LEDGER}test_a_release_that_is_made_anew_is_charged_anew",),
    ),
    PlantedBug(
        "lease without fencing",
        lease_without_fence,
        {},
        (f"{STORE}test_two_writers_cannot_both_apply[sqlite]",),
    ),
)
"""Every bug that must be caught."""
