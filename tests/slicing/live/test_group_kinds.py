"""Groups of all kinds of nets and settings end in the bits of one process: normalised, in parts, rounded, tied."""

from __future__ import annotations

import numpy as np
import pytest

from crowdml.core import trees
from crowdml.slicing import batch_gradients
from crowdml.slicing.training import Group as Whole
from crowdml.slicing.training import train_turn
from tests.support.group_courses import DONE, Course, Disturbance, make_terms, order_of, same_bits
from tests.support.sliced_nets import MLP, NORMALISED, first_parameters, model_of, plan_of

PICTURES = (
    'kind = "layers"\nshape = [6, 6, 1]\nlayers = [{ kind = "convolution", size = 4, kernel = 3 }, { kind = "relu" }, '
    '{ kind = "pooling", size = 2 }, { kind = "flatten" }, { kind = "dense", size = 6 }, { kind = "tanh" }, '
    '{ kind = "dense", size = 3 }]'
)


@pytest.mark.parametrize(
    ("net", "options", "named"),
    [
        (MLP, {}, True),
        (MLP, {}, False),
        (MLP, {"micro_batches": 2}, True),
        (MLP, {"numbers": "bfloat16"}, True),
        (MLP, {"numbers": "int8"}, True),
        (NORMALISED, {}, True),
        (PICTURES, {}, True),
    ],
    ids=["plain", "hidden", "in parts", "bfloat16", "int8", "normalised", "pictures"],
)
def test_a_group_ends_in_the_bits_of_one_process(
    net: str, options: dict[str, object], named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    features = 36 if net == PICTURES else 5
    model = model_of(net, features)
    terms = make_terms(plan=plan_of(model, 2, balance=3.0, **options), named=named, passes=1)  # type: ignore[arg-type]
    first = first_parameters(model)

    def rows_of(member: int) -> tuple[np.ndarray, np.ndarray]:
        generator = np.random.default_rng(member)
        return generator.normal(size=(7, features)).astype(np.float32), generator.integers(0, 3, 7)

    monkeypatch.setattr("tests.support.group_courses.rows_of", rows_of)
    monkeypatch.setattr("tests.support.group_courses.FIRST", first)
    course = Course(4, terms)
    assert course.run([Disturbance(step=100, kind="kill", member=2)]) == DONE
    assert any(event.what == "lost" for event in course.events)
    whole, matters = Whole(np.arange(5), first), trees.map(np.zeros_like, first)
    plan = terms.plan.arithmetic
    for turn, dominator, batches in course.turns():
        rows, labels = rows_of(dominator)
        order = order_of(dominator)(turn, len(labels))[: batches * terms.batch]
        train_turn(
            whole,
            (rows, labels),
            dominator,
            order,
            terms.batch,
            terms.rate,
            lambda parameters, batch, _, __: (
                batch_gradients(plan.net, parameters, batch, micro_batches=plan.micro_batches).gradient
            ),
            matters,
        )
    assert same_bits(course.model(), whole.parameters)
