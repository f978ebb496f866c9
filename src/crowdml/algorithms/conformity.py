"""Conformity: whether what comes from outside the package keeps the contract, found out before anything runs.

A recipe goes once through all its functions on a batch of zeros; so do rates and models. What is wrong is said in a
sentence that names the extension and the function, not in a traceback.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from crowdml.algorithms.contract import Algorithm, Phase
from crowdml.algorithms.rates import Rate, RateSettings
from crowdml.core import NUMPY, BadInput, Batch, CrowdError, Target, Tree, ZeroCoins, trees
from crowdml.core.records import Broadcast, CheckIn, DeviceState, Release, Report
from crowdml.models import Model, flatten

Made = TypeVar("Made")

OUTSIDE: set[tuple[str, str]] = set()
"""What was registered from outside the package: what it is, and its name."""


def from_outside(named: Iterable[tuple[str, str]]) -> str:
    """Say which of these were registered from outside; nothing where none was."""
    return " with ".join(f'the {noun} "{name}"' for noun, name in named if (noun, name) in OUTSIDE)


@contextmanager
def in_words(named: Iterable[tuple[str, str]]) -> Iterator[None]:
    """Say in a sentence that an extension cannot be compiled; what is the package's own fails as it is."""
    try:
        yield
    except Exception as error:
        what = from_outside(named)
        if not what or isinstance(error, CrowdError):
            raise
        raise BadInput(
            f"{what} cannot be compiled: {type(error).__name__}: {str(error).partition(chr(10))[0]}",
            hint="numbers are traced there: arrays come from ops.xp, not from NumPy, and no branch looks at them; "
            "simulate --debug runs it step by step",
        ) from error


def require_conforming(
    name: str,
    build: Callable[[], Any],
    parameters: Tree,
    features: int,
    flat: Callable[[], Any] | None = None,
) -> None:
    """Refuse a recipe that misses a function or returns the wrong kind or shape of thing.

    Args:
        name: Its name.
        build: Assembles the algorithm.
        parameters: Parameters of the task's model, for their shapes.
        features: Numbers in a row.
        flat: Assembles it as a live server runs it, with parameters as one vector; None where no server does.
    """
    trial = _Trial(f'the recipe "{name}"', "algorithm.kind")
    algorithm = trial.call("build", build, Algorithm)
    target: Any = trial.call("build", lambda: algorithm.last.sanitiser.use.target, object)
    size = trial.call("build", lambda: algorithm.schedule.batch, int)
    device, server, batch = algorithm.last.device, algorithm.last.server, _zeros(size, features, target)
    state = trial.call("server.init", lambda: server.init(ZeroCoins()), object)
    broadcast = trial.call("server.check_out", lambda: server.check_out(state), Broadcast)
    for phase in algorithm.phases:
        state = trial.phase(phase, broadcast, state, batch)
    report = trial.call("server.report", lambda: server.report(state), Report)
    if trial.call("device.model", lambda: device.model(algorithm.last.begin().work), object) is None:
        trial.shapes("server.report's parameters", report.parameters, parameters)
    if flat is not None:
        trial.live(flat, algorithm.last, broadcast, batch)


def require_rate(rate: RateSettings, parameters: Tree) -> None:
    """Refuse a rate that fails, or whose step has another shape than the update."""
    trial = _Trial(f'the rate "{rate.kind}"', "algorithm.rate")
    made = trial.call("build", lambda: rate.build(np.float32(rate.c), NUMPY), Rate)
    memory = trial.call("init", lambda: made.init(parameters), object)
    change, after = trial.pair("step", lambda: made.step(memory, parameters, np.int32(1)))
    trial.shapes("the change that step returns", change, parameters)
    trial.shapes("the memory that step returns", after, memory)


def require_model(what: str, build: Callable[[], Any], features: int, target: Target) -> None:
    """Refuse layers or a loss that fail, or whose gradients have another shape than the parameters.

    Args:
        what: Which of them come from outside; where none does, nothing is looked at.
        build: Makes the model.
        features: Numbers in a row.
        target: What rows are mapped to.
    """
    if not what:
        return
    trial, batch = _Trial(what, "model"), _zeros(2, features, target)
    model = trial.call("build", build, Model)
    parameters = trial.call("init", lambda: model.init(ZeroCoins()), object)
    found = trial.call("forward or factors", lambda: model.gradients(parameters, batch).total(batch.mask), object)
    trial.shapes("the gradient", found, parameters)


def _zeros(size: int, features: int, target: Target) -> Batch:
    return Batch(
        rows=np.zeros((size, features), np.float32),
        targets=np.zeros(size, target.dtype),
        mask=np.ones(size, np.float32),
    )


class _Trial:
    """Calls functions of an extension, and says in words which of them did what it should not.

    Attributes:
        what: The extension, as messages call it.
        where: The key of the task file that names it.
    """

    def __init__(self, what: str, where: str) -> None:
        self.what, self.where = what, where

    def phase(self, phase: Phase, broadcast: Broadcast, state: Tree, batch: Batch) -> Tree:
        """Go from a check-out to a commit; return the server's state."""
        device, server = phase.device, phase.server
        begun = self.call("device.init", phase.begin, DeviceState)
        release, work = self.pair("device.step", lambda: device.step(broadcast, begun.work, batch, ZeroCoins()))
        self.kind("device.step", release, Release)
        if trees.leaves(release.update):
            # On a grid it is made of integers.
            self.shapes("device.step's update", release.update, phase.sanitiser.use.like(), dtypes=False)
        self.shapes("what device.step remembers", work, begun.work)
        check_in, _ = self.pair("device.send", lambda: phase.contribute(broadcast, begun, batch, ZeroCoins()))
        self.kind("device.send", check_in, CheckIn)
        if self.call("server.report", lambda: server.report(state), Report).counts and not check_in.counts:
            raise BadInput(
                f"{self.what}: device.step's release has no counts, and the server adds them up",
                where=self.where,
                hint="counts=parts.counting()…, or a setting statistics: bool = False",
            )
        row = self.call("server.row", server.row, object)
        absorbed, kept = self.pair("server.absorb", lambda: server.absorb(state, row, check_in, np.int32(0)))
        self.shapes("server.absorb's row", kept, row)
        committed, _ = self.pair("server.commit", lambda: server.commit(absorbed))
        self.shapes("server.commit's state", committed, state)
        return committed

    def live(self, build: Callable[[], Any], phase: Phase, broadcast: Broadcast, batch: Batch) -> None:
        """Fold one check-in in as a live server does, for which every update is one vector."""
        check_in, _ = self.pair("device.send", lambda: phase.contribute(broadcast, phase.begin(), batch, ZeroCoins()))
        self.kind("device.send", check_in, CheckIn)
        server = self.call("build", build, Algorithm).last.server
        state, vector = server.init(ZeroCoins()), replace(check_in, update=flatten(check_in.update))
        self.shapes("a live server's parameters", server.report(state).parameters, flatten(broadcast.parameters))
        absorbed, _ = self.pair(
            "server.absorb with the update as one vector, as a live server has it,",
            lambda: server.absorb(state, server.row(), vector, np.int32(0)),
        )
        committed, _ = self.pair("server.commit with parameters as one vector", lambda: server.commit(absorbed))
        self.shapes("server.commit's state, with parameters as one vector,", committed, state)

    def call(self, function: str, call: Callable[[], Any], kind: type[Made]) -> Made:
        """Call a function and look at what it returns."""
        try:
            found = call()
        except BadInput:
            raise
        except Exception as error:  # whatever somebody else's code raises
            raise BadInput(
                f"{self.what} fails in {function}: {type(error).__name__}: {' '.join(str(error).split())}",
                where=self.where,
                hint="docs/how-to/add-an-algorithm.md says what each function takes and returns; --debug shows where"
                if self.where == "algorithm.kind"
                else "",
            ) from None
        self.kind(function, found, kind)
        return found  # type: ignore[no-any-return]

    def pair(self, function: str, call: Callable[[], Any]) -> tuple[Any, Any]:
        """Call a function that returns two things."""
        found = self.call(function, call, tuple)
        if len(found) != 2:
            raise BadInput(f"{self.what}: {function} returns {len(found)} things, not 2", where=self.where)
        return found[0], found[1]

    def kind(self, function: str, found: Any, kind: type) -> None:
        """Refuse another kind of thing."""
        if not isinstance(found, kind):
            raise BadInput(
                f"{self.what}: {function} returns {type(found).__name__}, not {kind.__name__}", where=self.where
            )

    def shapes(self, what: str, found: Tree, expected: Tree, dtypes: bool = True) -> None:
        """Refuse another structure, or arrays of another shape or, unless told otherwise, of another kind of number."""
        told = [_described(found, dtypes), _described(expected, dtypes)]
        if told[0] != told[1]:
            raise BadInput(f"{self.what}: {what} is {told[0]}", where=self.where, hint=f"it should be {told[1]}")


def _described(tree: Tree, dtypes: bool) -> str:
    leaves = [(path, np.asarray(leaf)) for path, leaf in trees.paths(tree)]
    words = (f"{path} {leaf.dtype if dtypes else ''}{list(leaf.shape)}".strip() for path, leaf in leaves)
    return ", ".join(words) or "nothing"
