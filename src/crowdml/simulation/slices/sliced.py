"""Simulating slicenet: groups of devices that hold pieces of one net, and the weights they share."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.core import NUMPY, BadInput, Batch, record, trees
from crowdml.core.ops import Tree
from crowdml.data import Dataset
from crowdml.models import Model, flatten
from crowdml.privacy.sanitisers.first_sums import FirstCut
from crowdml.simulation import accounting
from crowdml.simulation.doubts import doubted
from crowdml.simulation.engine.hash_coins import HashCoins, trial_seed
from crowdml.simulation.prepare import measured_loss, measured_on, prepare
from crowdml.simulation.result import Result, Watcher, watched
from crowdml.simulation.slices.sliced_course import GroupCourse, relay_report, traffic
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


def simulate_sliced(task: Task, *, trials: int, seed: int, watch: Watcher | None = None) -> Result:
    """Train groups of devices, trial after trial."""
    _require_rows_for_all_trials(task)
    fitted, dataset = prepare(task)
    began = time.perf_counter()
    found = []
    for trial in range(trials):

        def tell(part: float, error: float, trial: int = trial) -> None:
            if watch:
                watch((trial + part) / trials, error)

        found.append(train(task, dataset, seed, trial, tell))
    names = found[0].errors
    lost = sum(trained.lost for trained in found)
    notes = accounting.notes(task, dataset, fitted, ())
    if lost:
        notes += (f"{lost} turns did not take place: too few devices of the group were there",)
    courses = [course for trained in found for course in trained.courses]
    relay = relay_report(courses, courses[0].traffic) if courses else {}
    result = Result(
        task=task,
        seed=seed,
        trials=trials,
        samples=np.array(found[0].passes, float) * len(dataset.train_targets),
        measured={name: np.array([trained.errors[name] for trained in found]).T for name in names},
        parameters=trees.map(lambda *leaves: np.stack(leaves), *(trained.parameters for trained in found)),
        privacy=accounting.sliced_report(task),
        updates=sum(trained.updates for trained in found),
        run_seconds=time.perf_counter() - began,
        notes=notes + _relay_notes(relay),
        times=np.array([trained.times for trained in found]).T if courses else None,
        relay=dict(relay),
        transforms=tuple(each.arrays for each in fitted),
    )
    return doubted(result, dataset)


def _require_rows_for_all_trials(task: Task) -> None:
    """Refuse what would choose rows anew for every trial: groups train on all rows that the data has."""
    if task.crowd.rows is not None:
        what, where = "groups train on all training rows", "crowd.rows"
        raise BadInput(
            what, where=where, hint="data.split = { train = 6000, test = 2000, seed = 0 } takes some of them"
        )
    if task.data.split is not None and task.data.split.seed is None:
        what, where = "all trials of groups have the same training rows", "data.split"
        raise BadInput(what, where=where, hint="data.split.seed = 0 has one split for all trials")


def _relay_notes(relay: Mapping[str, Any]) -> tuple[str, ...]:
    """Say how quick groups are, and what losses cost them."""
    if not relay:
        return ()
    pace, floor = relay["batches_per_second"], relay["floor_batches_per_second"]
    said = f"a group makes {pace:.2f} batches/s" if pace else "nothing takes time"
    said += f", where hops alone allow {floor:.2f}" if floor else ""
    notes: tuple[str, ...] = (
        f"{said}; {relay['bytes_per_row'] / 1024:.2f} KiB cross for a row, a cut every {relay['cut_every']} batches",
    )
    if relay["losses"]:
        notes += (
            f"{relay['losses']} devices were lost while they held a piece: {relay['replayed']} batches replayed, "
            f"{relay['batches_lost']} lost with their dominators, {relay['waited_seconds']:.0f} s waited for a device",
        )
    return notes


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


def train(task: Task, dataset: Dataset, seed: int, trial: int, watch: Watcher) -> Trained:
    """Run one trial: passes of all groups in turn, with sharing after each group's pass."""
    settings, generator = task.algorithm, np.random.default_rng([seed, trial])
    net = sliced_net_of(task)
    model, like = net.model, first_parameters(net.model, seed, trial)
    groups = [
        Group(devices, like)
        for devices in make_groups(task.crowd.devices, settings.pieces, settings.dummies, generator)
    ]
    rows, rules = deal(task, dataset, generator), rules_of(task)
    window = WINDOWS[settings.window](settings.omega or len(groups), size=trees.size(like))
    owners = owners_of_parameters(net, like)
    released = released_by(task, net, like, rows, generator)
    rows, gradient = taught(rows, released), gradient_of(task, net, released)
    noise = UploadNoise(clip=settings.upload_clip, noise=settings.upload_noise) if settings.upload_noise else None
    planned = traffic(task, net, like)
    # Losses have coins of their own: without any the crowd learns what it learnt before.
    coins = np.random.default_rng([seed, trial, 1])
    courses = [GroupCourse(planned, task, group.devices, coins) for group in groups] if planned else []
    points, times = _points(task.passes, task.crowd.curve), []
    errors: dict[str, list[float]] = {}
    seen = float("nan")
    for number in range(task.passes):
        for at, group in enumerate(groups, start=1):
            course = courses[at - 1].turn if courses else None
            rate = settings.rate * settings.decay**number
            matters = train_pass(group, rows, rules, rate, gradient, generator, course)
            if len(groups) > 1:
                share(group, window, matters, owners, rules, like, noise, generator)
            watch((number + at / len(groups)) / task.passes, seen)
        if number + 1 in points:
            for name, error in _errors(task, model, groups, window, like, dataset).items():
                errors.setdefault(name, []).append(error)
            times.append(max((course.clock for course in courses), default=0.0))
            seen = watched(errors)[-1]
            watch((number + 1) / task.passes, seen)
    return Trained(
        errors=errors,
        passes=points,
        parameters=_global(groups, window, like),
        updates=sum(group.steps for group in groups),
        lost=sum(group.lost for group in groups) + sum(course.counts["turns_lost"] for course in courses),
        times=times,
        courses=tuple(courses),
    )


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
