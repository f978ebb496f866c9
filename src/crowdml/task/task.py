"""Task: what a crowd learns together, read from one file that serves simulation, server and browser."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from crowdml.algorithms.aggregation.robust import RobustSettings
from crowdml.algorithms.conformity import from_outside, require_conforming, require_model, require_rate
from crowdml.algorithms.contract import Algorithm
from crowdml.algorithms.rates import RateSettings
from crowdml.algorithms.recipe import Hyper, Parts, PooledRecipe, Recipe, SlicedRecipe
from crowdml.algorithms.recipes import POOLED, RECIPES, SLICED
from crowdml.algorithms.schedule import Schedule
from crowdml.algorithms.stability import stability
from crowdml.core import NUMPY, BadInput, Ops, Registry, Settings, Target, trees
from crowdml.core.settings import OneOf, Shown, kebab
from crowdml.data import input_bound
from crowdml.data.data_section import DataSettings
from crowdml.data.transforms import Bounds, Transform
from crowdml.models import MODELS, FlatModel, Model, Own
from crowdml.models.layers import LayerSettings
from crowdml.privacy import ModelBounds, Plan, PrivacySettings, Releases, make_plan
from crowdml.task.masking import Masking, SecureAggregationSettings, make_masking
from crowdml.task.sections import CrowdSettings, StopSettings
from crowdml.task.task_errors import InWords

ALGORITHMS: Registry[type[Settings]] = Registry(
    "algorithm", {name: recipe.settings for registry in (RECIPES, POOLED, SLICED) for name, recipe in registry.items()}
)
USER_MODEL = "model of your own"
"""What a model is called that comes from another library."""
PASSES = 10
"""Passes of a simulated crowd where the file does not say, and the ledger covers as many."""

_WORKED_OUT = ("calibrated", "releases", "built")

_RESERVED = {"con", "prn", "aux", "nul", *(f"{port}{number}" for port in ("com", "lpt") for number in range(10))}


class Task(InWords):
    """A task file. `Task.load(path)` reads one."""

    crowdml: Literal[1] = Field(description="version of this format: a task file begins with crowdml = 1")
    name: str = Field(
        pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", description="short name: small letters, digits, hyphens"
    )
    objective: Shown = Field("", description="what the crowd learns, in words for owners")
    data: DataSettings = Field(description="what a row looks like")
    model: Annotated[Any, OneOf(MODELS)] = Field(description="what is learnt")
    algorithm: Annotated[Any, OneOf(ALGORITHMS)] = Field(description="how it is learnt")
    privacy: PrivacySettings = Field(description="what is promised to owners")
    secure_aggregation: SecureAggregationSettings = Field(
        SecureAggregationSettings(), description="whether the server learns sums of check-ins alone"
    )
    robust: RobustSettings = Field(RobustSettings(), description="what is done about Byzantine devices")
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

    def model_copy(self, *, update: Any = None, deep: bool = False) -> Task:
        """Copy, with changes; what was worked out from the old terms is not kept."""
        made = super().model_copy(update=update, deep=deep)
        for name in _WORKED_OUT:
            made.__dict__.pop(name, None)
        return made

    def __getstate__(self) -> dict[Any, Any]:
        """Return what a pickle holds: the file's content; what was worked out from it is worked out again."""
        state = super().__getstate__()
        kept = {name: value for name, value in state["__dict__"].items() if name not in _WORKED_OUT}
        return state | {"__dict__": kept}

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Task:
        """Copy, without what was worked out: sections are frozen, and need no copies of their own."""
        return self.model_copy()

    @staticmethod
    def load(path: Path | str, changes: Sequence[str] = ()) -> Task:
        """Read a task file, with changes such as `"algorithm.batch=10"` on top."""
        from crowdml.task.task_file import load

        if isinstance(changes, str):
            raise BadInput(f'"{changes}" is no list of changes', where="changes", hint=f'["{changes}"]')
        return load(Path(path), changes, "changes:")

    @property
    def recipe(self) -> Recipe | PooledRecipe | SlicedRecipe:
        """The recipe behind `algorithm.kind`."""
        kind = self.algorithm.kind
        return POOLED.get(kind) or SLICED.get(kind) or RECIPES[kind]

    @property
    def features(self) -> int:
        """Numbers in a row as the model sees it, after all transforms."""
        return _features_after(self.data.transform, self.data.features)

    @property
    def target(self) -> Target:
        """What a row is mapped to: one of the labels, or a number between two bounds."""
        return self.data.predicted

    def model_for(self, ops: Ops) -> Model:
        """Build the model for an array namespace."""
        built: Model = self.model.build(self.features, self.target, ops)
        return built

    @property
    def portable(self) -> bool:
        """Whether another process can make the same of the file's text: not where a model was handed in."""
        return not (isinstance(self.model, Own) and self.model.given)

    @functools.cached_property
    def releases(self) -> Releases:
        """What leaves a device, as the recipe says."""
        return self.recipe.releases(self.algorithm)

    @functools.cached_property
    def built(self) -> Algorithm:
        """The algorithm with the file's numbers, for NumPy: assembled once."""
        return self.build(NUMPY)

    @functools.cached_property
    def calibrated(self) -> Plan:
        """Bound, noise and promise: worked out once. Raises `BadInput` where the terms cannot be kept."""
        model = self.model_for(NUMPY)
        plan = make_plan(self.privacy, self.releases, self._bounds(model))
        if model.mixes and any(made.bounds_rows and not made.once for made in plan.sanitisers):
            raise BadInput(
                "batch normalisation mixes the rows of a batch: the gradient of one row depends on all others, so a "
                "bound on it protects nobody",
                where="model",
                hint='use group normalisation; or unit = "device" with local steps, where the whole change is bounded',
            )
        return plan

    def _bounds(self, model: Model) -> ModelBounds:
        """Say what transforms and model prove of a message."""

        def row_bound(order: int) -> float | None:
            return input_bound(self.data.transform, order, self.data.features)

        masking = self.masking()
        return ModelBounds(
            gradient=lambda order: model.gradient_bound(order, row_bound(order)),
            row=row_bound(1),
            size=self.releases.size(trees.size(model.zeros())),
            features=self.features + int(getattr(self.model, "bias", False)),
            classes=self.target.bins,
            limit=self.stop.max_releases,
            stable=stability(model, row_bound(2), self.model.regularisation, self.releases.steps),
            shared=masking.shared if masking else None,
            first_sums=first_sums_of(model) if isinstance(self.recipe, SlicedRecipe) else 1,
        )

    def masking(self) -> Masking | None:
        """Work out who takes part in a sum under secure aggregation; None where that is not enabled."""
        if not self.secure_aggregation.enabled:
            return None
        if self.recipe.cohort_size is None:
            raise BadInput(
                f"{self.algorithm.kind} needs more than the sum of its check-ins, or makes a version of each",
                where="secure-aggregation.enabled",
                hint="leave it out, or use one of: "
                + ", ".join(f'"{name}"' for name, recipe in RECIPES.items() if recipe.cohort_size),
            )
        return make_masking(self.secure_aggregation, self.recipe.cohort_size(self.algorithm), self.algorithm.kind)

    def hyper(self, plan: Plan) -> dict[str, float]:
        """Name every number that a compiled sweep may vary without compiling again."""
        found = {name: float(attrgetter(path)(self.algorithm)) for name, path in self.recipe.hyper.items()}
        return found | plan.scales | {"regularisation": self.model.regularisation}

    def structure(self) -> str:
        """Return the task without its name and its hyper-parameters: equal structures share compiled code."""
        content = self.model_dump(mode="json", by_alias=True)
        paths = [f"algorithm.{kebab(path)}" for path in self.recipe.hyper.values()]
        for path in (
            "name",
            "objective",
            "model.regularisation",
            "privacy.epsilon",
            "privacy.noise-scale",
            "privacy.noise-multiplier",
            "privacy.noise-unit",
            *paths,
        ):
            *sections, key = path.split(".")
            functools.reduce(lambda table, section: table[section], sections, content).pop(key)
        content["sanitisers"] = [sanitiser.structure() for sanitiser in self.calibrated.sanitisers]
        return json.dumps(content, sort_keys=True)

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
        recipe, model = self.recipe, self.model_for(ops)
        if isinstance(recipe, PooledRecipe):
            raise ValueError(f"{self.algorithm.kind} has no check-ins: there is nothing to assemble")
        plan = self.calibrated if owner_epsilon is None else self.calibrated.for_owner(owner_epsilon)
        parts = Parts(
            settings=self.algorithm,
            model=FlatModel.of(model) if flat else model,
            sanitisers=plan.sanitisers,
            target=self.target,
            hyper=self.hyper(plan) if hyper is None else hyper,
            ops=ops,
            devices=getattr(self.algorithm, "devices", None) or self.crowd.devices,
            robust=self.robust,
            keep_each=bool(self.crowd.attack.byzantine(1)),
        )
        made = recipe.build(parts)
        self._require_counted(made)
        return made

    def _require_counted(self, algorithm: Algorithm) -> None:
        """Refuse devices that remember rows, where samples are promised something over fewer releases than there are.

        A sample that a device remembers is behind all its later messages, whether its row is in them or not. No ledger
        counts these uses, so there may be no more releases than uses.
        """
        most, limit = self.most_uses, self.stop.max_releases
        if most is None or (limit is not None and limit <= most) or not algorithm.remembers_rows:
            return
        raise BadInput(
            f"devices of {self.algorithm.kind} remember rows of earlier releases, so that a sample is behind all "
            f"later ones, and it is promised to be in {most} at most",
            where="stop.max-releases",
            hint=f'max-releases = {most}, as many as privacy.max-uses; or unit = "device"'
            + (', or rate-memory = "reset"' if hasattr(self.algorithm, "rate_memory") else ""),
        )

    @property
    def extensible(self) -> list[tuple[str, str]]:
        """What a task names that may come from outside the package: what it is, and its name."""
        model = self.model
        layers = [("layer", layer.kind) for layer in getattr(model, "layers", ()) if isinstance(layer, LayerSettings)]
        losses = [("loss", getattr(model, key)) for key in ("loss", "top") if hasattr(model, key)]
        rates = [("rate", rate.kind) for rate in self._rates]
        users = [(USER_MODEL, model.name)] if isinstance(model, Own) else []
        return [("model", model.kind), *users, *layers, *losses, *rates, ("recipe", self.algorithm.kind)]

    @property
    def _rates(self) -> list[RateSettings]:
        """The rates of devices and server."""
        named = (getattr(self.algorithm, key, None) for key in ("rate", "server"))
        return [rate for rate in named if isinstance(rate, RateSettings)]

    def require_conforming(self) -> None:
        """Refuse what was registered from outside and does not do what it should, before it is used."""
        named = {
            noun: from_outside([each for each in self.extensible if each[0] == noun]) for noun, _ in self.extensible
        }
        models = " with ".join(filter(None, (named.get(noun, "") for noun in ("model", "layer", "loss"))))
        require_model(models, lambda: self.model_for(NUMPY), self.features, self.target)
        for rate in self._rates if named.get("rate") else ():
            require_rate(rate, self.model_for(NUMPY).zeros())
        if named["recipe"]:
            flat = (lambda: self.build(NUMPY, flat=True)) if self.recipe.live and not self.recipe.sums_only else None
            zeros = self.model_for(NUMPY).zeros()
            require_conforming(self.algorithm.kind, lambda: self.build(NUMPY), zeros, self.features, flat)

    @property
    def passes(self) -> int:
        """How often a simulated crowd goes through its rows: as the file says, or as often as the ledger covers.

        Where the file says rounds, it is how often they go through them on average, rounded up.
        """
        if self.crowd.rounds is not None and (schedule := self.built.schedule).invites:
            return max(1, -(-self.crowd.rounds * schedule.cohort * schedule.epochs // self.crowd.devices))
        covered = self.covered_passes
        return self.crowd.passes or (PASSES if covered is None else min(PASSES, covered))

    @property
    def covered_passes(self) -> int | None:
        """Passes that the ledger covers: a pass is one more use, and the epochs of a round are one together."""
        most = self.most_uses
        # What is drawn once for a row is sent again in every pass.
        if most is None or self.releases.sends == "pieces":
            return None
        return int(most * getattr(self.algorithm, "epochs", 1))

    @property
    def schedule(self) -> Schedule | None:
        """When devices and server meet; None where nobody checks in."""
        return self.built.schedule if isinstance(self.recipe, Recipe) else None

    @property
    def rows_stay(self) -> bool:
        """Whether any row of a device may be behind each of its releases: it is in all of them, or is remembered.

        Noise inside steps protects what a simulated device remembers of them.
        """
        return self.built.schedule.whole or (self.calibrated.terms.promised and self.built.remembers_rows)

    @property
    def most_uses(self) -> int | None:
        """Releases that the ledger lets a sample enter, the one that opens the task included; None: any number."""
        terms = self.calibrated.terms
        return terms.releases if terms.promised and terms.unit == "sample" else None


def first_sums_of(model: Model) -> int:
    """Count the sums of the first layer that forms some; 1 where none does."""
    found = (layer.shape for layer, learnt in zip(model.layers, model.zeros(), strict=True) if "w" in learnt)
    return math.prod(next(found, (1,)))


def _features_after(transforms: list[Transform], features: int) -> int:
    known = Bounds(features=features)
    for transform in transforms:
        known = transform.bounds(known)
    if known.features is None:
        raise BadInput("the number of features after these transforms is not known", where="data.transform")
    return known.features
