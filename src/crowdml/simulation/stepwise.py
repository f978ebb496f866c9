"""Simulating step by step: the same functions in a plain loop, every message through bytes.

Nothing is compiled, so a breakpoint works anywhere, and an error says in which stage of which check-in it happened.
It is the slow twin of `simulate`: both must give the same parameters.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from crowdml.algorithms import Algorithm, Phase
from crowdml.algorithms.attacks import Attack
from crowdml.algorithms.device_parts.gradient import estimated_error, is_low
from crowdml.algorithms.recipe import Recipe
from crowdml.core import NUMPY, BadInput, Batch, DeviceState, Report, record, trees
from crowdml.core.ops import Tree
from crowdml.data import Dataset
from crowdml.simulation import accounting
from crowdml.simulation.attacked import attack_of, attacked, forge
from crowdml.simulation.doubts import doubted
from crowdml.simulation.engine.hash_coins import HashCoins, trial_seed
from crowdml.simulation.outcome import average_of
from crowdml.simulation.own_data import bind
from crowdml.simulation.prepare import measured_errors, numbers, prepare
from crowdml.simulation.reporting.device_errors import device_errors
from crowdml.simulation.result import Average, Result, Watcher, watched
from crowdml.simulation.run import make_timelines, require_numbers
from crowdml.simulation.timeline.timeline import Timeline
from crowdml.task import Task
from crowdml.task.sections import StopSettings
from crowdml.wire import layouts, message


def simulate_stepwise(
    task: Task,
    *,
    trials: int = 1,
    seed: int = 0,
    resume: bool = False,
    watch: Watcher | None = None,
    data: Any = None,
) -> Result:
    """Simulate without compiling. Takes what `simulate` takes; `resume` has nothing to resume here."""
    if not isinstance(task.recipe, Recipe):
        raise BadInput(f"{task.algorithm.kind} is not compiled in any case", where="--debug", hint="leave --debug out")
    require_numbers(trials, seed)
    task = bind(task, data)
    fitted, dataset = prepare(task)
    algorithm = task.build(NUMPY, numbers(task))
    owners = [task.build(NUMPY, owner_epsilon=epsilon) for epsilon in task.crowd.owner_epsilon.values]
    timelines = make_timelines(task, dataset, trials, seed)
    began = time.perf_counter()
    ends, averages, updates = list[Tree](), list[Average](), 0
    found: dict[str, list[float]] = {}
    for trial, timeline in enumerate(timelines):
        attack = attack_of(task, NUMPY)
        seeds = trial_seed(seed, trial)
        end = run_stepwise(algorithm, timeline, dataset, seeds, owners=owners, attack=attack, stop=task.stop)
        ends.append(end.report.parameters)
        updates += end.check_ins
        if end.report.averaging:
            averages.append(average_of(timeline, end.report.averaging.weights, end.report.averaging.accepted))
        for name, error in _errors(task, end.report, dataset, trial).items():
            found.setdefault(name, []).append(error)
        if watch:
            watch((trial + 1) / trials, float(np.mean(watched(found))))
    parameters = trees.map(lambda *leaves: np.stack(leaves), *ends)
    result = Result(
        task=task,
        seed=seed,
        trials=trials,
        samples=np.array([np.mean([timeline.samples[-1] for timeline in timelines])]),
        measured={name: np.array([errors]) for name, errors in found.items()},
        parameters=parameters,
        privacy=accounting.report(task, timelines),
        updates=updates,
        run_seconds=time.perf_counter() - began,
        notes=accounting.notes(task, dataset, fitted, timelines),
        averages=tuple(averages),
        device_errors=device_errors(task, dataset, timelines, parameters),
        transforms=tuple(each.arrays for each in fitted),
    )
    return doubted(result, dataset)


def _errors(task: Task, report: Report, dataset: Dataset, trial: int) -> dict[str, float]:
    """Measure what a trial ended with, and say what devices have counted, where they count."""
    errors = measured_errors(task, report.parameters, dataset, trial)
    if report.counts:
        errors["estimated_error"] = float(estimated_error(report.counts, NUMPY))
    return errors


@record
class Ended:
    """What a trial ends with: the server's state, its report, what it keeps for each device, and devices' states.

    Also how many check-ins were absorbed: fewer than the timeline has, where the task stops early.
    """

    server: Tree
    report: Report
    rows: dict[int, Tree]
    devices: dict[int, Tree]
    check_ins: int


def run_stepwise(
    algorithm: Algorithm,
    timeline: Timeline,
    dataset: Dataset,
    seed: Any,
    after_commit: Callable[[int, Tree, Tree], None] | None = None,
    owners: Sequence[Algorithm] = (),
    attack: Attack | None = None,
    stop: StopSettings | None = None,
) -> Ended:
    """Drive one trial with NumPy.

    Args:
        algorithm: Built for NumPy.
        timeline: The course of the trial.
        dataset: Rows after transforms.
        seed: The two words of the trial's coins.
        after_commit: Called with version, server state and measurements after each commit.
        owners: What devices run whose owners have chosen an ε of their own, for each of the choices.
        attack: What Byzantine devices do; None where all are honest.
        stop: When to stop early; None: at the end of the timeline.
    """
    algorithm = attacked(algorithm, attack, NUMPY)
    server = algorithm.last.server.init(HashCoins(seed, 0, NUMPY))
    devices: dict[int, DeviceState] = {}
    rows: dict[int, Tree] = {}
    sent: dict[int, bytes] = {}
    wires: dict[int, Any] = {}
    version, done, oldest = 0, 0, int(timeline.staleness.max(initial=0))
    for number in range(len(timeline)):
        slot, stale = int(timeline.device[number]), int(timeline.staleness[number])
        coins, phase = HashCoins(seed, number + 1, NUMPY), algorithm.at(version)
        batch = _batch(phase, attack, dataset, timeline, number, seed)
        with _Stage("check_out", number, slot):
            broadcast = phase.server.check_out(server)
            if (wire := wires.get(id(phase))) is None:
                example, _ = phase.contribute(broadcast, phase.begin(), batch, coins)
                wire = wires[id(phase)] = layouts(broadcast, example)
            sent[version] = wire.check_out.encode(message(version, broadcast))
            sent.pop(version - oldest - 1, None)
            checked_out = wire.check_out.decode(sent[version - stale])["content"]
        chosen = owners[timeline.chosen[number]].at(version) if owners else phase
        with _Stage("step", number, slot):
            device = devices.get(slot) or chosen.begin()
            release, work = chosen.device.step(checked_out, device.work, batch, coins)
        with _Stage("sanitise", number, slot):
            after = DeviceState(work=work, noise=device.noise)
            check_in, devices[slot] = chosen.finish(checked_out, release, after, coins)
            body = wire.check_in.encode(message(version - stale, check_in))
        with _Stage("absorb", number, slot):
            received = wire.check_in.decode(body)["content"]
            if attack:
                received = forge(attack, received, timeline.lies[number], coins)
            row = rows.get(slot, phase.server.row())
            server, rows[slot] = phase.server.absorb(server, row, received, np.int32(stale))
        if timeline.commits[number]:
            with _Stage("commit", number, slot):
                server, measurements = phase.server.commit(server)
            version += 1
            if after_commit:
                after_commit(version, server, measurements)
        done = number + 1
        if timeline.commits[number] and stop and stop.error_below:
            if is_low(phase.server.report(server).counts, stop.error_below, stop.error_rows):
                break
    report = algorithm.last.server.report(server)
    return Ended(server=server, report=report, rows=rows, devices=devices, check_ins=done)


def _batch(phase: Phase, attack: Attack | None, dataset: Dataset, timeline: Timeline, number: int, seed: Any) -> Batch:
    chosen = timeline.rows[number]
    rows, targets = dataset.train_rows[chosen], dataset.train_targets[chosen]
    rows, targets = phase.sanitiser.rows(rows, targets, HashCoins(seed, chosen, NUMPY))
    if attack and attack.targets and timeline.lies[number]:
        targets = attack.targets(targets)
    mask = (np.arange(len(chosen)) < timeline.counts[number]).astype(np.float32)
    return Batch(rows=rows, targets=targets, mask=mask)


class _Stage:
    """Names stage, check-in and device in an error that passes through."""

    def __init__(self, name: str, number: int, slot: int) -> None:
        self.label = f"in {name} of check-in {number} by device {slot}"

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is not None:
            error.add_note(self.label)
