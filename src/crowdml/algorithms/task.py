"""Task: what a crowd learns together, read from one file that serves simulation, server and browser."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from crowdml.algorithms.averaging_terms import check_averaging
from crowdml.algorithms.contract import Algorithm, Hyper, Parts
from crowdml.algorithms.masking import Masking, SumsSettings, make_masking
from crowdml.algorithms.recipes import RECIPES, Recipe
from crowdml.algorithms.robust import RobustSettings
from crowdml.algorithms.sections import CrowdSettings, DataSettings, StopSettings
from crowdml.algorithms.stability import stability
from crowdml.algorithms.task_errors import InWords
from crowdml.core import BadInput, Ops, Registry, Settings, trees
from crowdml.core.settings import OneOf
from crowdml.data import input_bound
from crowdml.data.transforms import Bounds, Transform
from crowdml.models import MODELS, FlatModel, Model
from crowdml.privacy import Plan, PrivacySettings, Releases, make_plan
from crowdml.privacy.mechanisms import SKELLAM

_ALGORITHMS: Registry[type[Settings]] = Registry(
    "algorithm", {name: recipe.settings for name, recipe in RECIPES.items()}
)
PASSES = 10
"""Passes of a simulated crowd where the file does not say, and the ledger covers as many."""

_RESERVED = {"con", "prn", "aux", "nul", *(f"{port}{number}" for port in ("com", "lpt") for number in range(10))}


class Task(InWords):
    """A task file. `Task.load(path)` reads one."""

    crowdml: Literal[1] = Field(description="version of this format: a task file begins with crowdml = 1")
    name: str = Field(
        pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", description="short name: small letters, digits, hyphens"
    )
    objective: str = Field("", description="what the crowd learns, in words for owners")
    data: DataSettings = Field(description="what a row looks like")
    model: Annotated[Any, OneOf(MODELS)] = Field(description="what is learnt")
    algorithm: Annotated[Any, OneOf(_ALGORITHMS)] = Field(description="how it is learnt")
    privacy: PrivacySettings = Field(description="what is promised to owners")
    sums: SumsSettings = Field(SumsSettings(), description="whether check-ins are masked")
    robust: RobustSettings = Field(RobustSettings(), description="what is done about devices that lie")
    stop: StopSettings = Field(StopSettings(), description="when the task ends")
    crowd: CrowdSettings = Field(CrowdSettings(), description="the simulated crowd")

    @field_validator("name")
    @classmethod
    def _is_no_device(cls, name: str) -> str:
        if name in _RESERVED:
            raise ValueError(f"{name} names a device on some systems, where no file could be called so")
        return name

    @field_validator("crowdml", mode="before")
    @classmethod
    def _whole_number(cls, version: Any) -> Any:
        if type(version) is not int:  # true and 1.0 equal 1, but do not mean it
            raise BadInput(f"should be a whole number, not {version!r}", where="crowdml", hint="crowdml = 1")
        return version

    @staticmethod
    def load(path: Path | str, changes: Sequence[str] = ()) -> Task:
        """Read a task file, with changes such as `"algorithm.batch=10"` on top."""
        from crowdml.algorithms.task_file import load

        return load(Path(path), changes, "changes:")

    @property
    def recipe(self) -> Recipe:
        """The recipe behind `algorithm.kind`."""
        return RECIPES[self.algorithm.kind]

    @property
    def features(self) -> int:
        """Numbers in a row as the model sees it, after all transforms."""
        return _features_after(self.data.transform, self.data.features)

    def model_for(self, ops: Ops) -> Model:
        """Build the model for an array namespace."""
        built: Model = self.model.build(self.features, len(self.data.labels), ops)
        return built

    def plan(self, model: Model) -> Plan:
        """Work out bound, noise and promise. Raises `BadInput` where the terms cannot be kept."""
        made = self._plan(model)
        if made.bounds_rows and model.mixes:
            raise BadInput(
                "batch normalisation mixes the rows of a batch: the gradient of one row depends on all others, so a "
                "bound on it protects nobody",
                where="model",
                hint='use group normalisation; or unit = "device" with local steps, where the whole change is bounded',
            )
        return made

    def _plan(self, model: Model) -> Plan:
        paper = self.recipe.paper if self.privacy.mode == "paper" else None
        reach = paper.reach(self.algorithm) if paper else 1.0

        def bound_of(order: int) -> float | None:
            bound = model.gradient_bound(order, input_bound(self.data.transform, order, self.data.features))
            return None if bound is None else bound * reach

        return make_plan(
            self.privacy,
            bound_of,
            classes=len(self.data.labels),
            counts=getattr(self.algorithm, "statistics", False),
            perturbs=self.recipe.perturbs,
            input_bound=input_bound(self.data.transform, 1, self.data.features),
            size=trees.size(model.zeros()) if self.privacy.noise_scale else 1,
            releases=self._releases(model),
            scale=paper.scale if paper else None,
        )

    def masking(self) -> Masking | None:
        """Work out who takes part in a masked sum; None where check-ins are not masked."""
        if not self.sums.masked:
            return None
        if self.recipe.together is None:
            raise BadInput(
                f"{self.algorithm.kind} needs more than the sum of its check-ins, or makes a version of each",
                where="sums.masked",
                hint="leave it out, or use one of: "
                + ", ".join(f'"{name}"' for name, recipe in RECIPES.items() if recipe.together),
            )
        if self.privacy.mode == "paper":
            raise BadInput(
                "masked sums are whole numbers, and noise of a paper's formula is none",
                where="sums.masked",
                hint='use mode = "sound", or "none"',
            )
        return make_masking(self.sums, self.recipe.together(self.algorithm), self.algorithm.kind)

    def _releases(self, model: Model) -> Releases:
        """Say what a device sends, as far as a plan must know."""
        if self.privacy.mode != "sound" or self.recipe.sound is None:
            steps = self.recipe.steps if self.privacy.noise_at == "steps" else None
            return Releases(limit=self.stop.max_releases, local=steps(self.algorithm) if steps else None)
        form, size = self.recipe.sound(self.algorithm), trees.size(model.zeros())
        row = input_bound(self.data.transform, 2, self.data.features)
        masking = self.masking()
        return Releases(
            sound=True,
            sends=form.sends,
            size=size,
            rows=form.rows,
            limit=self.stop.max_releases,
            stable=stability(model, row, self.model.regularisation, form.steps),
            shared=masking.shared if masking else None,
            features=self.features + int(getattr(self.model, "bias", False)),
            opening=form.opening,
            classes=len(self.data.labels),
        )

    def hyper(self, plan: Plan) -> dict[str, float]:
        """Name every number that a compiled sweep may vary without compiling again."""
        own = {name: float(attrgetter(path)(self.algorithm)) for name, path in self.recipe.hyper.items()}
        return own | plan.scales | {"regularisation": self.model.regularisation}

    def structure(self) -> str:
        """Return the task without its name and its hyper-parameters: equal structures share compiled code."""
        content = self.model_dump(mode="json", by_alias=True)
        paths = [f"algorithm.{path}" for path in self.recipe.hyper.values()]
        for path in (
            "name",
            "objective",
            "model.regularisation",
            "privacy.epsilon",
            "privacy.noise-scale",
            "privacy.noise-unit",
            *paths,
        ):
            *sections, key = path.split(".")
            functools.reduce(lambda table, section: table[section], sections, content).pop(key)
        if self.privacy.mode == "sound" and self.recipe.sound:
            content["grid"] = self._grid()
        return json.dumps(content, sort_keys=True)

    def _grid(self) -> str:
        """Name what a sound plan fixes in compiled code; it may depend on hyper-parameters."""
        from crowdml.core import NUMPY

        sound = self.plan(self.model_for(NUMPY)).sound
        if sound is None:
            return ""
        # Skellam draws come from a table, so their scale is fixed in compiled code too.
        scale = sound.update.scale if sound.update.law is SKELLAM else ""
        counts = sound.statistics.error_scale if scale and sound.statistics else ""
        return f"{sound.update.grid}, {sound.update.stable is not None}, {sound.update.law.name} {scale} {counts}"

    def build(
        self, ops: Ops, hyper: Hyper | None = None, *, flat: bool = False, owner_epsilon: float | None = None
    ) -> Algorithm:
        """Assemble the algorithm.

        Args:
            ops: Array operations.
            hyper: Replaces the file's numbers, traced or not.
            flat: Whether parameters are one vector. Then only the server's functions can be used.
            owner_epsilon: What the owner of a device has chosen instead of the task's ε.
        """
        model = self.model_for(ops)
        plan = self.plan(model)
        if owner_epsilon is not None:
            plan = plan.for_owner(owner_epsilon)
        parts = Parts(
            settings=self.algorithm,
            model=FlatModel.of(model) if flat else model,
            plan=plan,
            classes=len(self.data.labels),
            hyper=self.hyper(plan) if hyper is None else hyper,
            ops=ops,
            devices=getattr(self.algorithm, "devices", None) or self.crowd.devices,
            robust=self.robust,
            attack=self.crowd.attack.build(len(self.data.labels), ops) if self.crowd.attack.liars(1) else None,
        )
        return self.recipe.build(parts)

    def check(self) -> None:
        """Find what no single key can tell: build everything once, for nothing."""
        from crowdml.core import NUMPY

        self._check_sliced()
        self.build(NUMPY)
        self._check_sums()
        self._check_uses()
        if self.privacy.noise_sequence != "iid" and not self.recipe.sequences:
            raise BadInput(
                f"{self.algorithm.kind} adds the same noise to every message",
                where="privacy.noise-sequence",
                hint='leave it out, or use kind = "local-sgd" with local-steps = 0',
            )
        check_averaging(self)
        self._check_crowd()
        self._check_owners()
        self._check_correlated()
        if self.stop.error_below is not None and self.plan(self.model_for(NUMPY)).statistics is None:
            raise BadInput(
                "no counts are sent, so the error cannot be estimated",
                where="stop.error-below",
                hint="give privacy.statistics-epsilon and algorithm.statistics = true, or leave error-below out",
            )

    def _check_sums(self) -> None:
        """Refuse sums that could wrap, or that no threshold can unmask."""
        from crowdml.algorithms.live import assemble_form

        if self.masking():
            assemble_form(self)
            if getattr(getattr(self.algorithm, "rate", None), "counter", "") == "check-ins":
                raise BadInput(
                    "a masked sum is one step for all its members: their check-ins are not counted one by one",
                    where="algorithm.rate.counter",
                    hint='use counter = "versions"',
                )
        elif self.recipe.together and getattr(self.algorithm, "statistics", False):
            raise BadInput(
                "counts of a round are sent in masked sums only",
                where="algorithm.statistics",
                hint="add sums.masked = true, or leave statistics out",
            )

    def _check_sliced(self) -> None:
        """Refuse terms and a crowd that pieces of a net know nothing of."""
        if not self.recipe.sliced:
            return
        if self.privacy.mode != "none":
            raise BadInput(
                f"{self.algorithm.kind} passes sums and weights on as they are: no ε can be stated",
                where="privacy.mode",
                hint='mode = "none"; crowdml audit measures what is given away',
            )
        crowd, plain = self.crowd, CrowdSettings()
        for name in ("delays", "outages", "joining", "leaving"):
            if getattr(crowd, name) != getattr(plain, name):
                raise BadInput(
                    f"groups of {self.algorithm.kind} wait for each of their devices: this changes nothing",
                    where=f"crowd.{name}",
                    hint="leave it out; drop-out takes devices out of turns",
                )

    def _check_crowd(self) -> None:
        """Refuse what would change nothing."""
        from crowdml.core import NUMPY

        crowd, delays, algorithm = self.crowd, self.crowd.delays, self.build(NUMPY)
        if (crowd.speeds.sigma or crowd.speeds.jitter) and not algorithm.whole:
            raise BadInput(
                f"devices of {self.algorithm.kind} check in as their rows come: speeds change nothing",
                where="crowd.speeds",
                hint="leave them out; crowd.delays make messages travel",
            )
        if algorithm.barrier and crowd.drop_out:
            raise BadInput(
                "a device whose check-in is lost would wait for ever",
                where="crowd.drop-out",
                hint="leave it out; a low barrier and speeds show what slow devices do",
            )
        if algorithm.whole:
            unused = {
                "delays": delays.request or delays.check_out or delays.check_in,
                "outages": crowd.outages.lasting,
                "joining": crowd.joining,
                "leaving": crowd.leaving,
            }
            for name in (name for name, given in unused.items() if given):
                raise BadInput(
                    f"{self.algorithm.kind} invites devices to rounds and waits for them: this changes nothing"
                    if algorithm.rounds
                    else f"devices of {self.algorithm.kind} begin anew with each version: this changes nothing",
                    where=f"crowd.{name}",
                    hint="leave it out; "
                    + ("drop-out loses check-ins" if algorithm.rounds else "crowd.speeds say how fast they are"),
                )
        if self.recipe.perturbs == "inputs" and (delays.request or delays.check_out or delays.check_in):
            raise BadInput(
                "a central server learns at its own pace: nothing it does is delayed",
                where="crowd.delays",
                hint=f"leave the delays out for {self.algorithm.kind}",
            )

    def _check_correlated(self) -> None:
        """Refuse an ε for correlated noise where a device would draw the noise of a release again."""
        from crowdml.core import NUMPY

        plan, crowd, delays = self.plan(self.model_for(NUMPY)), self.crowd, self.crowd.delays
        if plan.banded is None or plan.gradient is None:
            return
        lost = {"drop-out": crowd.drop_out, "delays": delays.request or delays.check_out or delays.check_in}
        for name in (name for name, given in lost.items() if given):
            raise BadInput(
                "correlated noise has its matrix-mechanism bound only where every check-in is used",
                where=f"crowd.{name}",
                hint="leave it out, or give noise-scale instead of epsilon: then no ε is stated",
            )

    def _check_owners(self) -> None:
        """Refuse what owners could not choose."""
        from crowdml.core import NUMPY

        chosen = self.crowd.owner_epsilon
        if not chosen.values:
            return
        try:
            for epsilon in chosen.values:
                self.plan(self.model_for(NUMPY)).for_owner(epsilon)
        except BadInput as error:
            raise BadInput(error.what, where="crowd.owner-epsilon", hint=error.hint) from None
        if 0 in chosen.counts(self.crowd.devices):
            raise BadInput(
                f"some values fall to none of {self.crowd.devices} devices",
                where="crowd.owner-epsilon",
                hint="larger shares, or more devices",
            )

    @property
    def passes(self) -> int:
        """How often a simulated crowd goes through its rows: as the file says, or as often as the ledger covers."""
        covered = self._covered_passes()
        return self.crowd.passes or (PASSES if covered is None else min(PASSES, covered))

    def _covered_passes(self) -> int | None:
        """Passes that the ledger covers: a pass is one more use, and the epochs of a round are one together."""
        most = self.most_uses
        return None if most is None else int(most * getattr(self.algorithm, "epochs", 1))

    @property
    def most_uses(self) -> int | None:
        """Releases that the ledger lets a sample enter, the one that opens the task included; None: any number."""
        most, form = self.privacy.max_uses, self.recipe.sound
        if self.privacy.mode != "sound" or self.privacy.unit != "sample" or not most or form is None:
            return None
        return most - max(form(self.algorithm).opening - 1, 0)

    def _check_uses(self) -> None:
        """Refuse a pass that the ledger could not cover."""
        covered, most = self._covered_passes(), self.most_uses or 0
        if covered is not None and self.passes > covered:
            raise BadInput(
                f"pass {covered + 1} of {self.passes} is not covered: a sample may enter "
                f"{most} release{'s' * (most > 1)}",
                where="crowd.passes",
                hint=f"passes = {covered}, or a larger privacy.max-uses and more noise",
            )


def _features_after(transforms: list[Transform], features: int) -> int:
    known = Bounds(features=features)
    for transform in transforms:
        known = transform.bounds(known)
    if known.features is None:
        raise BadInput("the number of features after these transforms is not known", where="data.transform")
    return known.features
