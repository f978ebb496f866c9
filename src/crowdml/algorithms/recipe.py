"""What a recipe is: settings, the numbers a sweep may vary, and a function that assembles the algorithm from parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from crowdml.algorithms.aggregation.robust import RobustSettings
from crowdml.algorithms.contract import Algorithm
from crowdml.algorithms.device_parts.gradient import Counting
from crowdml.core import Array, Ops, Settings, Target, Tree, record
from crowdml.privacy.releases import Releases
from crowdml.privacy.sanitisers import Objective, Sanitiser, Use

Hyper = Mapping[str, Array]
"""Hyper-parameters by name. In a compiled sweep they are traced numbers, elsewhere plain floats. Arrays that only a
driver can work out are handed in the same way."""


@record
class Parts:
    """What a recipe assembles an algorithm from.

    Attributes:
        settings: The `[algorithm]` section.
        model: The model (`Model`), built for `ops`; for a server that never looks inside, one vector (`FlatModel`).
        sanitisers: What protects, for each phase; a recipe binds it to its use.
        target: What rows are mapped to.
        hyper: Hyper-parameters, possibly traced.
        ops: Array operations.
        devices: Devices that take part.
        robust: The `[robust]` section.
        keep_each: Whether every check-in of a version is kept by itself, whatever the rule: simulated attackers want to
            know them.
    """

    settings: Any
    model: Any
    sanitisers: tuple[Sanitiser, ...]
    target: Target
    hyper: Hyper
    ops: Ops
    devices: int = 1
    robust: RobustSettings = RobustSettings()
    keep_each: bool = False

    def objective(self) -> Objective:
        """Return the model as devices see it."""
        model, strength = self.model, self.hyper["regularisation"]
        return Objective(
            # Asked for only when a device works: a server's model is one vector and has no gradients.
            gradients=lambda parameters, batch: model.gradients(parameters, batch),
            gradients_near=lambda origin, moved, batch: model.gradients_near(origin, moved, batch),
            regulariser=lambda parameters: model.regulariser(parameters, strength),
            steepness=lambda row: model.smoothness(row) + strength,
            clean=lambda targets: self.target.clean(targets, self.ops),
            regularised=self.ops.name != "numpy" or bool(strength),
        )

    def counting(self) -> Counting | None:
        """Return what counts errors and targets; None where counts are not sent."""
        if self.sanitisers[-1].counts is None:
            return None
        return Counting(target=self.target, ops=self.ops)

    def sanitiser(
        self, stage: str, *, phase: int = -1, like: Callable[[], Tree] | None = None, **use: Any
    ) -> Sanitiser:
        """Bind the sanitiser of a phase.

        Args:
            stage: Name of the draws of its noise.
            phase: Which phase.
            like: `like()`: zeros of the update's shape; not given: the model's.
            **use: As in `Use`.
        """
        bound = Use(
            ops=self.ops, scales=self.hyper, like=like or self.model.zeros, stage=stage, target=self.target, **use
        )
        return self.sanitisers[phase].bind(bound)


@record
class Recipe:
    """A named way to assemble an algorithm.

    Attributes:
        settings: The settings class of the `[algorithm]` section; its defaults must give a working task.
        hyper: Numbers that a compiled sweep may vary without compiling again: name, and where it stands in the
            settings, such as `{"rate": "rate.c"}`.
        build: Assembles the algorithm.
        releases: `releases(settings)`: what leaves a device; calibration makes terms and sanitisers of it.
        gathers: Whether a version is made of several check-ins, so that they can be compared.
        live: Whether server and devices can run it, and not only a simulation.
        sums_only: Whether a live task has to aggregate securely: check-ins make sense as sums alone. The model of the
            server then keeps its layers, as one sum at a time need not be folded in quickly.
        cohort_size: `cohort_size(settings)`: check-ins behind a version, where nothing but their sum matters and all
            start from the version before: these may be aggregated securely. None where they may not.
    """

    settings: type[Settings]
    hyper: Mapping[str, str]
    build: Callable[[Parts], Algorithm]
    releases: Callable[[Any], Releases] = lambda settings: Releases(sends="gradient")
    live: bool = False
    sums_only: bool = False
    cohort_size: Callable[[Any], int] | None = None
    gathers: bool = False
    sights: ClassVar[None] = None


@record
class Sights:
    """What an algorithm shows to others than the server, in words for owners.

    Attributes:
        members: Who of those that work with a device sees what.
        told: By audience and thing, in a word and in a few, what differs from tasks with check-ins alone.
        trust: Whom an owner has to trust.
        course: Who waits for whom.
    """

    members: Mapping[str, str]
    told: Mapping[tuple[str, str], tuple[str, str]]
    trust: str
    course: str


@record
class _NoCheckIns:
    """What is asked of every recipe, answered by those without check-ins."""

    settings: type[Settings]
    hyper: ClassVar[Mapping[str, str]] = {}
    live: ClassVar[bool] = False
    sums_only: ClassVar[bool] = False
    cohort_size: ClassVar[None] = None
    gathers: ClassVar[bool] = False


class PooledRecipe(_NoCheckIns):
    """A baseline that trains on all rows at once, perturbed where the terms say so, instead of folding in check-ins."""

    sights: ClassVar[None] = None

    @staticmethod
    def releases(settings: Any) -> Releases:
        """Devices hand over their rows, once."""
        return Releases(sends="rows")


@record
class SlicedRecipe(_NoCheckIns):
    """Devices hold pieces of one net and pass sums to each other, instead of checking in.

    Attributes:
        build: Assembles what a live server keeps of the groups' uploads; a simulation has no need of it.
        sights: `sights(settings, promised)`: what members of a group see of each other, where samples are promised
            something and where not.
    """

    build: Callable[[Parts], Algorithm]
    sights: Callable[[Any, bool], Sights]
    live: ClassVar[bool] = True

    @staticmethod
    def releases(settings: Any) -> Releases:
        """Groups pass sums and weights on: with noise on the first sums, and on labels, where the terms ask for it."""
        return Releases(
            sends="pieces",
            bound=settings.cut_clip,
            label_epsilon=settings.label_epsilon,
            on_grid=True,
            unprotected=f"{settings.kind} passes sums and weights on as they are: no ε can be stated",
        )
