"""Tasks: hyper-parameters, structure, defaults, and descriptions of every key."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, get_args

import numpy as np
import pytest
from pydantic import BaseModel

from crowdml.algorithms import RECIPES
from crowdml.algorithms.rates import RATES
from crowdml.core import NUMPY, BadInput, Release, Settings
from crowdml.core.settings import OneOf
from crowdml.models import MODELS
from crowdml.task import Task, parse
from tests.support.phases import model_of
from tests.support.plans import paper_of

SOURCE = """
crowdml = 1
name = "task"
[data]
features = 4
labels = ["a", "b"]
transform = [{ kind = "norm", order = 1, at-most = 1.0 }]
[model]
kind = "softmax"
regularisation = 0.25
[algorithm]
kind = "crowd-sgd"
rate = { kind = "inverse", c = 7 }
radius = 12.0
[privacy]
mode = "paper"
epsilon = 2.0
"""


def task(*changes: str) -> Task:
    return parse(SOURCE, changes=changes)


def test_hyper_names_every_number_a_sweep_may_vary() -> None:
    of = task()
    found = of.hyper(of.calibrated)
    assert found == {"rate": 7.0, "radius": 12.0, "noise": 4.0 / 2.0, "regularisation": 0.25}
    assert all(type(value) is float for value in found.values())
    silent = task("privacy.mode=none")
    assert silent.hyper(silent.calibrated) == {"rate": 7.0, "radius": 12.0, "regularisation": 0.25}


@pytest.mark.parametrize(
    "change",
    [
        "name=other",
        "objective=words",
        "model.regularisation=0.5",
        "algorithm.rate.c=1.0",
        "algorithm.radius=3.0",
        "privacy.epsilon=9.0",
    ],
)
def test_hyper_parameters_and_words_are_not_structure(change: str) -> None:
    assert task(change).structure() == task().structure()
    assert task(change) != task()


@pytest.mark.parametrize(
    "change",
    [
        "algorithm.batch=7",
        "algorithm.rate.kind=constant",
        "model.kind=mlp",
        "model.bias=true",
        "privacy.mode=none",
        "privacy.clip=1.0",
        "privacy.statistics-epsilon=0.5",
        "data.features=5",
        "data.labels=['a','b','c']",
        "algorithm.held-out=0.5",
        "algorithm.stale=weight",
        "data.transform=[{kind='norm', order=1, at-most=2.0}]",
    ],
)
def test_whatever_changes_the_code_is_structure(change: str) -> None:
    changes = [change, *(["privacy.clip=1.0"] if "mlp" in change else [])]
    assert task(*changes).structure() != task().structure()


def test_the_structure_is_plain_json_without_the_numbers() -> None:
    content = json.loads(task().structure())
    assert content["algorithm"]["rate"] == {"kind": "inverse", "counter": "versions"}
    assert "radius" not in content["algorithm"] and "epsilon" not in content["privacy"]


def test_tasks_of_one_structure_differ_only_in_hyper() -> None:
    """The algorithm of one task, given the numbers of another, is that other task's algorithm."""
    one, other = task(), task("algorithm.rate.c=1.0", "privacy.epsilon=9.0", "algorithm.radius=0.01")
    assert one.structure() == other.structure()
    swapped = one.build(NUMPY, other.hyper(other.calibrated))
    real = other.build(NUMPY)

    class Ones:
        """Coins that are all one."""

        def laplace(self, stage: str, shape: tuple[int, ...]) -> Any:
            return np.ones(shape, np.float32)

    release = Release(update=({"w": np.ones((2, 4), np.float32)},), rows=np.int32(3))
    ends = []
    for made in (swapped, real):
        part = made.last.server
        server = part.init(Ones())  # type: ignore[arg-type]
        check_in, _ = made.last.sanitiser.noise(release, (), Ones())  # type: ignore[arg-type]
        server, _ = part.absorb(server, part.row(), check_in, np.int32(0))
        ends.append(model_of(made, part.commit(server)[0])[0]["w"])
    np.testing.assert_array_equal(ends[0], ends[1])
    assert np.linalg.norm(ends[0]) == pytest.approx(0.01, rel=1e-5)


def test_features_are_those_after_the_transforms() -> None:
    of = task("data.transform=[{kind='intercept'}, {kind='norm', order=1, at-most=1.0}]")
    assert of.features == 5
    assert of.model_for(NUMPY).features == 5


def test_the_bound_of_the_rows_reaches_the_plan() -> None:
    of = task("data.transform=[{kind='norm', order=1, at-most=3.0}]")
    assert paper_of(of.calibrated).bound.radius == 6.0
    with pytest.raises(BadInput, match="nothing bounds"):
        task("data.transform=[]")


@pytest.mark.parametrize("kind", list(RECIPES))
def test_the_defaults_of_every_recipe_give_a_working_task(kind: str) -> None:
    source = SOURCE.replace('rate = { kind = "inverse", c = 7 }\nradius = 12.0\n', "").replace("crowd-sgd", kind)
    one_score = ["model={ kind = 'huber' }"] if kind == "ridge" else []
    made = parse(source, changes=["privacy.mode=none", *one_score])
    assert made.algorithm == RECIPES[kind].settings()
    made.build(NUMPY)
    assert set(RECIPES[kind].hyper) <= set(made.hyper(made.calibrated))


@pytest.mark.parametrize("kind", list(MODELS))
def test_every_model_works_with_its_defaults(kind: str) -> None:
    if kind == "linear":
        source = re.sub(r"(?m)^labels = .*$", "target = { name = 'age', low = 0.0, high = 120.0 }", SOURCE)
        number = parse(source, changes=["model.kind=linear", "privacy.clip=1.0"])
        assert number.built.schedule.batch == RECIPES["crowd-sgd"].settings().batch  # type: ignore[attr-defined]
        return
    needed = {
        "layers": ["model.layers=[{kind='dense', size=2}]"],
        "cnn": ["data.features=784", "data.transform=[]"],
        "own": ["model.layout={ w = [2, 3] }"],
    }
    made = task(f"model.kind={kind}", *needed.get(kind, []), "privacy.clip=1.0").build(NUMPY)
    assert made.schedule.batch == RECIPES["crowd-sgd"].settings().batch  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", list(RATES))
def test_every_rate_works_with_its_defaults(kind: str) -> None:
    assert task(f"algorithm.rate={{ kind = '{kind}', c = 1.0 }}").algorithm.rate.kind == kind


def reachable(cls: type[BaseModel], seen: set[type[BaseModel]]) -> Iterator[type[BaseModel]]:
    """Every settings class a task file can reach."""
    if cls in seen:
        return
    seen.add(cls)
    yield cls
    for field in cls.model_fields.values():
        arguments = get_args(field.annotation)
        inner = [part for argument in arguments for part in getattr(argument, "__metadata__", ())]
        for part in (*field.metadata, *inner):
            if isinstance(part, OneOf):
                for choice in part.registry.values():
                    yield from reachable(choice, seen)
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from reachable(field.annotation, seen)


def test_every_key_of_a_task_file_has_a_description() -> None:
    classes = list(reachable(Task, set()))
    assert len(classes) > 20
    bare = [
        f"{cls.__name__}.{name}"
        for cls in classes
        for name, field in cls.model_fields.items()
        if name != "kind" and not field.description
    ]
    assert bare == []


def test_every_settings_class_is_strict_frozen_and_closed() -> None:
    for cls in reachable(Task, set()):
        assert issubclass(cls, Settings)
        config = cls.model_config
        assert config["strict"] and config["frozen"] and config["extra"] == "forbid" and not config["allow_inf_nan"]


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (r'objective="Walk\u001b[8m and stand"', "objective"),
        (r'data.labels=["walking", "\u009bstanding"]', "data.labels[1]"),
        (r'data={ columns = ["g"], labels = ["a", "b"], units = { g = "\u0007" } }', "data.units.g"),
        (r'data={ columns = ["g"], labels = ["a", "b"], id = "who\u0000" }', "data.id"),
        (r'data={ columns = ["g"], labels = ["a", "b"], label-column = "l\r" }', "data.label-column"),
        (
            r'data={ columns = ["g"], target = { name = "age", low = 0.0, high = 1.0, unit = "\u001b" } }',
            "data.target.unit",
        ),
    ],
)
def test_what_owners_are_shown_cannot_write_over_it_in_a_terminal(change: str, key: str) -> None:
    with pytest.raises(BadInput, match=r"the control character U\+00.. is not for people to read") as refused:
        task(change)
    assert refused.value.where.endswith(key)


def test_an_objective_may_have_several_lines() -> None:
    assert task(r'objective="Walk,\nor stand"').objective == "Walk,\nor stand"
