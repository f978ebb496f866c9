"""One trial of slicenet: groups of devices that hold pieces of one net, and the weights they share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.core import NUMPY, Array, Batch, record, trees
from crowdml.core.ops import Tree
from crowdml.data import Dataset
from crowdml.models import Model, flatten
from crowdml.privacy.sanitisers.first_sums import FirstCut
from crowdml.simulation.engine.hash_coins import HashCoins, trial_seed
from crowdml.simulation.prepare import measured_loss, measured_on
from crowdml.simulation.result import Watcher, watched
from crowdml.simulation.slices.sliced_course import GroupCourse, traffic
from crowdml.slicing import SlicedNet, batch_gradients
from crowdml.slicing.first_cut import CutNoise, Released, release, release_on_grid
from crowdml.slicing.sharing import WINDOWS, UploadNoise, Window, owners_of_parameters
from crowdml.slicing.stages import Indices
from crowdml.slicing.training import Gradient, Group, Rows, Rules, make_groups, share, train_pass
from crowdml.task import Task
from crowdml.task.live_task import sliced_net_of


@record
class Trained:
    """What one trial gave.

    Attributes:
        errors: Measurements by name, one value for each point of the curve.
        passes: After how many passes each point was measured.
        parameters: The server's model: the average of its window, and of the groups where that is empty.
        updates: Steps made, over all groups.
        lost: Turns that did not take place.
        times: Seconds until all groups were there, for each point; nothing where devices are alone.
        courses: Every group's course in time.
    """

    errors: dict[str, list[float]]
    passes: list[int]
    parameters: Tree
    updates: int
    lost: int
    times: list[float]
    courses: tuple[GroupCourse, ...]


def gradient_of(task: Task, net: SlicedNet, released: Released | None = None) -> Gradient:
    """Return how a group finds its gradient: over the pieces, or whole where every device is alone."""
    settings, model = task.algorithm, net.model
    if not settings.pieces and released is None:
        return lambda parameters, batch, _, __: model.gradients(parameters, batch).total(batch.mask / len(batch.mask))

    def gradient(parameters: Tree, batch: Batch, device: int, numbers: Indices) -> Tree:
        if released is None:
            return batch_gradients(
                net, parameters, batch, micro_batches=settings.micro_batches, normalisation=settings.normalisation
            ).gradient
        # Noise is drawn for rows, not for batches, so the batch goes as a whole.
        made = net.gradients(parameters, batch, lambda _: released.of(device, numbers)).gradient
        return tuple({} if at in released.frozen else layer for at, layer in enumerate(made))

    return gradient


def released_by(
    task: Task, net: SlicedNet, first: Tree, rows: Sequence[Rows], generator: np.random.Generator
) -> Released | None:
    """Draw what devices release at the first cut; None where they send their sums as they are."""
    settings, promised = task.algorithm, task.calibrated.last
    if isinstance(promised, FirstCut):
        return release_on_grid(promised, net.model, net.graph, first, rows, SeededWords(generator))
    if not settings.cut_noise:
        return None
    noise = CutNoise(clip=settings.cut_clip, noise=settings.cut_noise)
    return release(noise, net.model, net.graph, first, [examples for examples, _ in rows], generator)


class SeededWords:
    """Words of a simulation, which protect nobody.

    Args:
        generator: Where they come from.
    """

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator

    def take(self, count: int) -> npt.NDArray[np.uint64]:
        """Return the next `count` words."""
        return self._generator.integers(0, 1 << 64, count, np.uint64)


def taught(rows: Sequence[Rows], released: Released | None) -> list[Rows]:
    """Return what devices train with: answers in place of labels, where these are not open."""
    if released is None or released.labels is None:
        return list(rows)
    return [(examples, labels) for (examples, _), labels in zip(rows, released.labels, strict=True)]


class Trial:
    """One trial: groups that go on pass by pass.

    Whatever changes from pass to pass is in its `state`; all else follows from the task, the seed and the number.

    Attributes:
        passes: How many are done.
    """

    def __init__(self, task: Task, dataset: Dataset, seed: int, trial: int) -> None:
        """Form groups, deal rows and draw what is drawn once."""
        settings, generator = task.algorithm, np.random.default_rng([seed, trial])
        net = sliced_net_of(task)
        self.like = first_parameters(net.model, seed, trial)
        self.task, self._dataset, self._model = task, dataset, net.model
        self.groups = [
            Group(devices, self.like)
            for devices in make_groups(task.crowd.devices, settings.pieces, settings.dummies, generator)
        ]
        rows, self._rules = deal(task, dataset, generator), rules_of(task)
        self.window = WINDOWS[settings.window](settings.omega or len(self.groups), size=trees.size(self.like))
        self._owners = owners_of_parameters(net, self.like)
        released = released_by(task, net, self.like, rows, generator)
        self._rows, self._gradient = taught(rows, released), gradient_of(task, net, released)
        upload = settings.upload_noise
        self._noise = UploadNoise(clip=settings.upload_clip, noise=upload) if upload else None
        planned = traffic(task, net, self.like)
        # Losses have coins of their own: without any the crowd learns what it learnt before.
        coins = np.random.default_rng([seed, trial, 1])
        self.courses = [GroupCourse(planned, task, group.devices, coins) for group in self.groups] if planned else []
        self._generators = generator, coins
        self._points = _points(task.passes, task.crowd.curve)
        self.passes = 0
        self.errors: dict[str, list[float]] = {}
        self.times: list[float] = []

    def go_on(self, watch: Watcher) -> None:
        """Let all groups make their next pass, with sharing after each group's, and measure where that is due."""
        settings, number, count = self.task.algorithm, self.passes, len(self.groups)
        seen = watched(self.errors)[-1] if self.errors else float("nan")
        generator, _ = self._generators
        for at, group in enumerate(self.groups, start=1):
            course = self.courses[at - 1].turn if self.courses else None
            rate = settings.rate * settings.decay**number
            matters = train_pass(group, self._rows, self._rules, rate, self._gradient, generator, course)
            if count > 1:
                share(group, self.window, matters, self._owners, self._rules, self.like, self._noise, generator)
            watch((number + at / count) / self.task.passes, seen)
        self.passes += 1
        if self.passes in self._points:
            found = _errors(self.task, self._model, self.groups, self.window, self.like, self._dataset)
            for name, error in found.items():
                self.errors.setdefault(name, []).append(error)
            self.times.append(max((course.clock for course in self.courses), default=0.0))
            watch(self.passes / self.task.passes, watched(self.errors)[-1])

    def trained(self) -> Trained:
        """Return what has come of it."""
        return Trained(
            errors=self.errors,
            passes=self._points,
            parameters=_global(self.groups, self.window, self.like),
            updates=sum(group.steps for group in self.groups),
            lost=sum(group.lost for group in self.groups) + sum(course.counts["turns_lost"] for course in self.courses),
            times=self.times,
            courses=tuple(self.courses),
        )

    def state(self) -> tuple[dict[str, Any], list[Array]]:
        """Return what changes: plain values, and arrays."""
        plain = {
            "passes": self.passes,
            "generators": [generator.bit_generator.state for generator in self._generators],
            "groups": [(group.lost, group.steps) for group in self.groups],
            "errors": self.errors,
            "times": self.times,
            "courses": [course.state() for course in self.courses],
        }
        # Batch normalisations keep their statistics among the parameters.
        return plain, [np.stack([flatten(group.parameters) for group in self.groups]), *self.window.state()]

    def restore(self, plain: dict[str, Any], arrays: Sequence[Array]) -> None:
        """Go back to such a state."""
        parameters, *window = arrays
        for group, flat, (lost, steps) in zip(self.groups, parameters, plain["groups"], strict=True):
            group.parameters, group.lost, group.steps = trees.map(np.array, trees.cut(flat, self.like)), lost, steps
        self.window.restore(window)
        for generator, known in zip(self._generators, plain["generators"], strict=True):
            generator.bit_generator.state = known
        for course, known in zip(self.courses, plain["courses"], strict=True):
            course.restore(known)
        self.passes, self.errors, self.times = plain["passes"], plain["errors"], plain["times"]


def rules_of(task: Task) -> Rules:
    """Read the rules of a crowd of groups from its task."""
    settings = task.algorithm
    return Rules(
        pieces=settings.pieces,
        batch=settings.batch,
        rate=settings.rate,
        decay=settings.decay,
        theta=settings.theta,
        tau=settings.tau,
        drop_out=task.crowd.drop_out,
    )


def first_parameters(model: Model, seed: int, trial: int) -> Tree:
    """Draw the parameters that all groups begin with."""
    coins = HashCoins(trial_seed(seed, trial), np.uint32(0), NUMPY)
    return trees.map(lambda leaf: np.asarray(leaf, np.float32), model.init(coins))


def deal(task: Task, dataset: Dataset, generator: np.random.Generator) -> list[Rows]:
    """Deal the training rows out to devices."""
    crowd = task.crowd
    owner = crowd.partition.assign(dataset.train_bins, dataset.train_owners, crowd.devices, generator)
    order = np.argsort(owner, kind="stable")
    ends = np.cumsum(np.bincount(owner, minlength=crowd.devices))[:-1]
    labels = dataset.train_targets.astype(np.int64)
    return [(dataset.train_rows[shard], labels[shard]) for shard in np.split(order, ends)]


def _points(passes: int, curve: int) -> list[int]:
    """After which passes to measure: evenly, and after the last one."""
    return sorted({round(passes * (at + 1) / min(curve, passes)) for at in range(min(curve, passes))})


def _errors(
    task: Task, model: Model, groups: Sequence[Group], window: Window, like: Tree, dataset: Dataset
) -> dict[str, float]:
    """Measure the mean error of the groups' models, and that of the server's."""
    found = {}
    common = _global(groups, window, like)
    for of, (rows, labels) in measured_on(dataset).items():
        wrong = [np.mean(model.predict(group.parameters, rows) != labels) for group in groups]
        found[f"{of}_error"] = float(np.mean(wrong))
        losses = [measured_loss(task, model, group.parameters, rows, labels, of) for group in groups]
        found |= {name: float(np.mean([each[name] for each in losses])) for name in losses[0]}
        if of == "test":
            found["server_error"] = float(np.mean(model.predict(common, rows) != labels))
    return found


def _global(groups: Sequence[Group], window: Window, like: Tree) -> Tree:
    flat = np.stack([flatten(group.parameters) for group in groups]).mean(axis=0, dtype=np.float64)
    numbers, values = window.download(0.0)
    flat[numbers] = values
    return trees.cut(flat.astype(np.float32), like)
