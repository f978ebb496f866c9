"""Settings of stable steps, and neighbours that try to break their proof: for tests and for the attack."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from crowdml.algorithms import Algorithm
from crowdml.algorithms.device_parts.local_steps import LocalSteps
from crowdml.core import NUMPY, Batch, Broadcast, trees
from crowdml.privacy import Plan
from crowdml.privacy.noise.grid import sample_sensitivity
from crowdml.privacy.sanitisers.walks import Stable
from crowdml.task import Task, parse
from tests.support.phases import stepped
from tests.support.plans import update_of

FEATURES = 5


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One task with stable steps, and a device's number of rows.

    Attributes:
        kind: The model.
        recipe: The algorithm.
        bias: Whether the model has a bias.
        regularisation: Strength of the regulariser.
        rate: The rate; `largest` finds the largest that is proven.
        clip: Bound on the whole message.
        part: Rows per step.
        count: Steps (local-sgd), or rows of a device in steps of `part`, for one epoch.
        epochs: Times through the rows (fedavg).
        row: Bound on a row's norm.
        epsilon: What is promised for one release.
    """

    kind: str = "softmax"
    recipe: str = "local-sgd"
    bias: bool = False
    regularisation: float = 0.0
    rate: float = 1.0
    clip: float = 1.0
    part: int = 2
    count: int = 2
    epochs: int = 1
    row: float = 1.0
    features: int = FEATURES
    epsilon: float = 4.0
    changes: tuple[str, ...] = ()

    @property
    def outputs(self) -> int:
        """Numbers that the model gives for a row."""
        return 2 if self.kind == "softmax" else 1

    @property
    def smooth(self) -> float:
        """β + λ, in real numbers."""
        curvature = {"softmax": 0.5, "logistic": 0.25, "huber": 1.0}[self.kind]
        return curvature * (self.row**2 + self.bias) + self.regularisation

    @property
    def steepest(self) -> float:
        """c: the longest gradient of one row."""
        return (math.sqrt(2) if self.kind == "softmax" else 1.0) * math.sqrt(self.row**2 + self.bias)

    @property
    def moved(self) -> float:
        """What one sample moves, in real numbers."""
        return self.epochs * 2 * self.steepest * self.rate / self.part

    def at_largest(self) -> Setting:
        """Return the same with the largest rate that is proven."""
        return replace(self, rate=2 / self.smooth)

    def around(self, length: float) -> Setting:
        """Return the same with a clip that leaves messages as they are which begin at parameters of this length."""
        steps = self.count * self.epochs
        pull = min(steps * self.rate * self.regularisation, 1.0) * length
        return replace(self, clip=1.1 * (steps * self.rate * self.steepest + pull))

    def task(self) -> Task:
        """Make the task."""
        steps = f"local-steps = {self.count}" if self.recipe == "local-sgd" else f"epochs = {self.epochs}"
        return parse(
            f"""
crowdml = 1
name = "stable"
[data]
features = {self.features}
labels = ["a", "b"]
transform = [{{ kind = "norm", order = 2, at-most = {self.row!r} }}]
[model]
kind = "{self.kind}"
bias = {str(self.bias).lower()}
regularisation = {self.regularisation!r}
[algorithm]
kind = "{self.recipe}"
{steps}
local-batch = {self.part}
rate = {{ kind = "constant", c = {self.rate!r} }}
[privacy]
mechanism = "gaussian"
epsilon = {self.epsilon!r}
delta = 1e-5
clip = {self.clip!r}
max-uses = 1
[stop]
max-releases = 1
""",
            changes=self.changes,
        )


@dataclass(frozen=True, kw_only=True)
class Neighbours:
    """Parameters and rows, one of which is replaced.

    Attributes:
        w: Weights, shape (outputs, features), with the biases as a last column where there are any.
        rows: The device's rows.
        labels: Their labels.
        row: What stands for the last row on the other device.
        label: Its label.
    """

    w: Any
    rows: Any
    labels: Any
    row: Any
    label: int

    def broadcast(self, bias: bool) -> Any:
        """Return the parameters as a server sends them."""
        w = self.w.astype(np.float32)
        return ({"w": w[:, :-1], "b": w[:, -1]} if bias else {"w": w},)

    def batches(self, setting: Setting) -> tuple[Batch, Batch]:
        """Return the rows of both devices in the order of their steps."""
        other, labels = self.rows.copy(), self.labels.copy()
        other[-1], labels[-1] = self.row, self.label
        order = np.tile(np.arange(len(self.rows)), setting.epochs)
        mask = np.ones(len(order), np.float32)
        return tuple(  # type: ignore[return-value]
            Batch(rows=rows[order].astype(np.float32), targets=marks[order].astype(np.int32), mask=mask)
            for rows, marks in ((self.rows, self.labels), (other, labels))
        )


class Given:
    """Coins from a seed that answer the same to every asker; on a fine grid nobody may ask for another try."""

    def __init__(self, seed: int, fine: bool = True) -> None:
        self.seed, self.fine = seed, fine

    def uniform(self, stage: str, shape: tuple[int, ...]) -> Any:
        return np.random.default_rng([self.seed, *stage.encode()]).random(shape).astype(np.float32)

    def laplace(self, stage: str, shape: tuple[int, ...]) -> Any:
        raise TypeError("a device never draws continuous noise")

    gaussian = laplace

    def discrete_laplace(self, stage: str, scale: float, shape: tuple[int, ...]) -> Any:
        raise AssertionError("no noise is asked for")

    rounded_gaussian = discrete_laplace

    def retry(self, number: Any) -> Given:
        assert not self.fine, "on a fine grid no bounded vector is ever too long"
        return Given(self.seed + 1 + int(number), fine=False)


def sound(of: Task) -> Plan:
    """Return the plan, which has to promise something."""
    assert of.calibrated.terms.promised
    return of.calibrated


def started(algorithm: Algorithm, broadcast: Any) -> Broadcast:
    """Return what a device checks out where the parameters are these."""
    server = algorithm.last.server
    return replace(server.check_out(server.init(Given(0))), parameters=broadcast)


def integers(algorithm: Algorithm, start: Broadcast, batch: Batch, coins: Any) -> Any:
    """Return what a device would send, without noise, as one vector."""
    release, _ = stepped(algorithm.last, start, batch, coins)
    return np.concatenate([leaf.ravel().astype(np.int64) for leaf in trees.leaves(release.update)])


def walk_of(setting: Setting) -> Stable:
    """Return the walk of a setting's device."""
    device = setting.task().build(NUMPY).last.device
    assert isinstance(device, LocalSteps) and isinstance(device.walk, Stable)
    return device.walk


@dataclass(frozen=True)
class Bench:
    """A setting, built once: the algorithm, its plan and what is claimed of one sample, in levels."""

    setting: Setting
    algorithm: Algorithm
    plan: Plan
    claim: float

    @staticmethod
    def of(setting: Setting) -> Bench:
        """Build it."""
        task = setting.task()
        plan = sound(task)
        return Bench(setting, task.build(NUMPY), plan, sample_sensitivity(update_of(plan).grid, update_of(plan).stable))

    def coins(self, seed: int) -> Given:
        """Return coins for the grid: it is fine only where the steps are proven to be stable."""
        return Given(seed, fine=update_of(self.plan).stable is not None)

    def apart(self, pair: Neighbours, seed: int = 1) -> float:
        """Return how far apart two neighbours are in levels, as a share of the claim."""
        start = started(self.algorithm, pair.broadcast(self.setting.bias))
        coins = self.coins(seed)
        one, other = (integers(self.algorithm, start, batch, coins) for batch in pair.batches(self.setting))
        return float(np.linalg.norm((one - other).astype(float))) / self.claim


def saturating(setting: Setting, length: float) -> Neighbours:
    """Return neighbours with nearly opposite gradients, as long as they can be.

    The parameters look at the second feature alone and are sure of it. The two rows differ in its sign, and have the
    wrong label each; most of their length is in the first feature, where both push, in opposite directions. All other
    rows are surely right, so that nothing else moves.
    """
    tilt = min(0.5, 25 / (length * setting.row))
    w = np.zeros((setting.outputs, setting.features + setting.bias))
    w[:, 1] = (length, -length)[: setting.outputs] if setting.kind == "softmax" else -length
    row, other = np.zeros(setting.features), np.zeros(setting.features)
    row[:2] = np.array([math.sqrt(1 - tilt**2), tilt]) * setting.row
    other[:2] = row[:2] * (1, -1)
    rows = np.zeros((setting.part * setting.count, setting.features))
    rows[:, 1] = setting.row
    rows[-1] = row
    labels = np.zeros(len(rows), int)
    labels[-1] = 1
    return Neighbours(w=w, rows=rows, labels=labels, row=other, label=0)


def level(setting: Setting) -> Neighbours:
    """Return opposite rows with one label, at parameters of zero: each pushes half as far as it could."""
    rows = np.zeros((setting.part * setting.count, setting.features))
    rows[-1, 0] = setting.row
    labels = np.arange(len(rows)) % 2
    labels[-1] = 1
    w = np.zeros((setting.outputs, setting.features + setting.bias))
    return Neighbours(w=w, rows=rows, labels=labels, row=-rows[-1], label=1)


def at_border(setting: Setting, far: float, rng: np.random.Generator) -> Neighbours:
    """Return rows of whose mean gradient one decides to which double w - ηg would be rounded.

    All rows but one push by nearly half the distance between two doubles (or an odd multiple), and the last adds to it
    or does not.
    """
    half = np.spacing(abs(float(np.float32(far)))) / 2
    wanted = half / (setting.rate * setting.row)
    share = wanted * (2 * rng.integers(0, 3) + 1) * setting.part / max(setting.part - 1, 1)
    share = float(np.clip(share * (1 - rng.uniform(0, 1) / setting.part), -1, 1))
    rows = np.zeros((setting.part * setting.count, setting.features))
    rows[:, 0], rows[:, 1] = share * setting.row, math.sqrt(1 - share**2) * setting.row
    rows[-1] = 0
    rows[-1, 0] = setting.row
    w = np.zeros((setting.outputs, setting.features + setting.bias))
    w[0, 0] = far
    # Where the first output is the score of label 1 (or the only one), far > 0 is surely wrong about label 0.
    wrong = 0 if setting.outputs == 1 else 1
    labels = np.full(len(rows), wrong)
    return Neighbours(w=w, rows=rows, labels=labels, row=rows[-1], label=1 - wrong)


EXTREMES = (0.0, 1e-45, 1e-30, 1.0, 30.0, 6e5, 1e6, 1e20, 3.4e38, math.nan, math.inf)
"""Sizes of numbers in a broadcast, or in rows."""


def anything(setting: Setting, rng: np.random.Generator) -> Neighbours:
    """Return rows, labels and parameters of any size, and any row in place of the last."""
    rows = rng.standard_normal((setting.part * setting.count, setting.features))
    with np.errstate(all="ignore"):
        rows *= rng.choice((1e-45, 1e-20, 1.0, setting.row, 10 * setting.row, 1e30))
        w = rng.standard_normal((setting.outputs, setting.features + setting.bias)) * rng.choice(EXTREMES)
        row = rng.standard_normal(setting.features) * rng.choice(EXTREMES)
    labels = rng.integers(0, 2, len(rows))
    return Neighbours(w=np.clip(w, -3.4e38, 3.4e38), rows=rows, labels=labels, row=row, label=int(rng.integers(0, 2)))


def candidates(setting: Setting, rng: np.random.Generator) -> Iterator[Neighbours]:
    """Return some of every family."""
    yield level(setting)
    for length in (20.0, 100.0, 5e5):
        yield saturating(setting, length)
    for far in (6e5, 9e5, 1.0, 1e3):
        yield at_border(setting, far, rng)
    for _ in range(3):
        yield anything(setting, rng)


def climb(bench: Bench, pair: Neighbours, rng: np.random.Generator, tries: int) -> tuple[float, Neighbours]:
    """Change parameters and the two rows a little, again and again, and keep what takes the messages farther apart."""
    best = bench.apart(pair)
    for _ in range(tries):
        size = rng.choice((0.01, 0.1, 0.5))
        other = replace(
            pair,
            w=pair.w * (1 + size * rng.standard_normal(pair.w.shape)),
            row=pair.row + size * bench.setting.row * rng.standard_normal(pair.row.shape),
        )
        found = bench.apart(other)
        if found > best:
            best, pair = found, other
    return best, pair


def random_setting(rng: np.random.Generator) -> Setting:
    """Draw a setting, corners as often as what is usual."""
    recipe = str(rng.choice(("local-sgd", "fedavg")))
    drawn = Setting(
        kind=str(rng.choice(("softmax", "logistic", "huber"))),
        recipe=recipe,
        bias=bool(rng.integers(0, 2)),
        regularisation=float(rng.choice((0.0, 0.0, 1e-90, 1e-6, 0.05, 0.5, 100.0))),
        part=int(rng.choice((1, 2, 3, 100))),
        count=int(rng.integers(1, 4)),
        epochs=int(rng.integers(1, 4)) if recipe == "fedavg" else 1,
        row=float(rng.choice((1e-3, 1.0, 1.0, 1.0, 50.0))),
        features=int(rng.choice((2, 5))),
        epsilon=float(rng.choice((1.0, 2.0, 4.0, 8.0))),
    )
    largest = drawn.at_largest().rate
    rate = rng.choice((1e-90, 1e-44, 5.9e-11, 10 ** rng.uniform(-16, -4), rng.uniform(0.01, 1) * largest, largest))
    drawn = replace(drawn, rate=min(float(rate), largest))
    clip = rng.choice((0.1, 1.02, 10.0, 100.0)) * drawn.moved * drawn.part
    return replace(drawn, clip=float(clip)) if rng.integers(0, 2) else drawn.around(100.0)


CASES = [
    Setting(kind=kind, bias=bias, regularisation=strength, recipe=recipe, epochs=epochs)
    for kind in ("softmax", "logistic", "huber")
    for bias in (False, True)
    for strength in (0.0, 0.05)
    for recipe, epochs in (("local-sgd", 1), ("fedavg", 2))
]


def case_name(case: Setting) -> str:
    """Name a case for a report."""
    return f"{case.kind}{'-bias' * case.bias}{'-regularised' * (case.regularisation > 0)}-{case.recipe}"


def at_rate(case: Setting, rate: float | None) -> Setting:
    """Return the case at a rate, or at the largest that is proven."""
    return case.at_largest() if rate is None else replace(case, rate=min(rate, case.at_largest().rate))
