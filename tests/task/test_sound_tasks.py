"""Sound tasks of every recipe as an operator meets them: refused in words, explained, limited in simulation."""

from __future__ import annotations

import numpy as np
import pytest

from crowdml.algorithms.schedule import Rounds
from crowdml.core import NUMPY, BadInput
from crowdml.simulation.timeline.rounds import make_rounds
from crowdml.task import Task, parse
from crowdml.task.explanation import explain
from tests.support.plans import update_of

TASK = """
crowdml = 1
name = "sound"
[data]
features = 4
labels = ["a", "b"]
[model]
kind = "softmax"
[algorithm]
kind = "fedavg"
per-round = 2
[privacy]
mechanism = "gaussian"
epsilon = 8.0
delta = 1e-5
clip = 0.5
max-uses = 3
[stop]
max-releases = 6
[crowd]
devices = 4
passes = 3
"""
RATE = "rate = { kind = 'constant', c = 1.0 }"
STEPS = f"algorithm={{ kind = 'local-sgd', {RATE} }}"
NO_STEPS = f"algorithm={{ kind = 'local-sgd', local-steps = 0, {RATE} }}"
FEDSGD = f"algorithm={{ kind = 'fedsgd', per-round = 2, {RATE} }}"
FORMS = {"fedavg": [], "steps": [STEPS], "no steps": [NO_STEPS], "fedsgd": [FEDSGD]}


def task(*changes: str) -> Task:
    return parse(TASK, changes=changes)


@pytest.mark.parametrize("form", list(FORMS))
@pytest.mark.parametrize("unit", ["sample", "device"])
def test_what_is_bounded_follows_from_what_is_sent_and_promised(form: str, unit: str) -> None:
    of = task(*FORMS[form], f"privacy.unit={unit}")
    plan, grid = of.calibrated, update_of(of.calibrated).grid
    sends = "change" if form in ("fedavg", "steps") else "gradient"
    assert of.releases.sends == sends
    assert grid.per == ("example" if (sends, unit) == ("gradient", "sample") else "release")
    assert plan.terms.uses == (3 if unit == "sample" else 6)
    # The bound on a whole message is the same for one row and for all; a sum of examples is not.
    assert (plan.last.cost(1, 50) == plan.last.cost(1)) == (grid.per == "release")
    assert plan.event.times(plan.terms.uses).promise(1e-5).epsilon <= 8.0 * (1 + 1e-9)


@pytest.mark.parametrize(
    ("changes", "where", "what"),
    [
        (["privacy.adjacency=add-remove"], "privacy.adjacency", "in clear"),
        (["privacy.adjacency=add-remove", FEDSGD], "privacy.adjacency", "in clear"),
        (["crowd.passes=4"], "crowd.passes", "pass 4 of 4 is not covered"),
        (["crowd.passes=7", "algorithm.epochs=2"], "crowd.passes", "pass 7 of 7 is not covered"),
        (["crowd.passes=4", STEPS], "crowd.passes", "pass 4 of 4 is not covered"),
        (["privacy.mechanism=k-norm"], "privacy.mechanism", "cannot be named"),
        ([NO_STEPS, "algorithm.rate.counter=local-steps"], "algorithm.rate.counter", "cannot count"),
    ],
)
def test_refusals(changes: list[str], where: str, what: str) -> None:
    with pytest.raises(BadInput) as caught:
        task(*changes)
    assert where in caught.value.where and what in caught.value.what and caught.value.hint


def test_where_a_file_names_no_passes_the_crowd_makes_as_many_as_are_covered() -> None:
    """Then a file for a live task need not speak of simulated passes."""
    text = "\n".join(line for line in TASK.splitlines() if not line.startswith("passes"))
    assert text != TASK
    assert parse(text).passes == 3 and parse(text, changes=["algorithm.epochs=2"]).passes == 6
    assert parse(text, changes=["privacy={ mode = 'none' }"]).passes == 10


@pytest.mark.parametrize("form", ["fedavg", "steps"])
@pytest.mark.parametrize("rate", ["adagrad", "rmsprop", "constant"])
def test_a_change_without_a_bound_is_refused_whatever_the_rate(form: str, rate: str) -> None:
    text = TASK.replace("clip = 0.5\n", "")
    changes = [*FORMS[form], f"algorithm.rate={{ kind = '{rate}', c = 1.0 }}"]
    with pytest.raises(BadInput) as caught:
        parse(text, changes=changes)
    assert "privacy" in caught.value.where and "local steps" in caught.value.what and "clip" in caught.value.hint
    parse(TASK, changes=[*changes, "stop.max-releases=3"])  # with a clip every rate may


def test_epochs_of_one_round_are_one_use() -> None:
    assert task("crowd.passes=6", "algorithm.epochs=2").crowd.passes == 6
    with pytest.raises(BadInput):
        task("crowd.passes=4", "algorithm.epochs=1")


@pytest.mark.parametrize("changes", [["privacy.unit=sample"], ["privacy.unit=device", "stop.max-releases=3"]])
def test_no_device_is_invited_more_often_than_the_ledger_would_allow(changes: list[str]) -> None:
    of = task(*changes, "crowd.passes=3")
    rounds = of.build(NUMPY).schedule
    assert isinstance(rounds, Rounds)
    for seed in range(20):
        contacts = make_rounds(of, rounds, np.repeat(np.arange(4), 5), np.random.default_rng(seed))
        assert np.bincount(contacts.device).max() <= 3


@pytest.mark.parametrize("form", list(FORMS))
@pytest.mark.parametrize("unit", ["sample", "device"])
def test_every_form_is_explained(form: str, unit: str) -> None:
    found = explain(task(*FORMS[form], f"privacy.unit={unit}"))
    parts = {part.name: part for part in found.message_parts}
    update = parts["update/0/w"]
    assert "clipped to 0.5 in L2" in update.protection and "rounded gaussian noise" in update.protection
    assert not any("noise" in part.protection for name, part in parts.items() if part is not update)
    assert found.per_release["sample"] is not None and found.total["sample"] is not None
    grows = form == "fedsgd" and unit == "sample"
    assert (found.per_release["device"] is None) == grows
    by_rows = any("each example clipped" in part.protection for part in found.message_parts)
    assert any("grows with the number" in note for note in found.notes) == by_rows
    if not grows:
        one, all_rows = found.per_release["sample"], found.per_release["device"]
        assert all_rows is not None and one.epsilon <= all_rows.epsilon
    promised = found.total[unit]
    assert promised is not None and promised.epsilon <= 8.0 * (1 + 1e-9)
    assert all(part.what != part.name for part in found.message_parts), "every part is named in words"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["algorithm.rate={ kind = 'constant', c = 1.0 }"], "one sample moves a message by at most 0.283 in L2"),
        (["algorithm.rate={ kind = 'constant', c = 5.0 }"], "of at most 4 these steps would be stable"),
        (
            ["algorithm.rate={ kind = 'adagrad', c = 1.0 }", "stop.max-releases=3"],
            "of at most 4 these steps would be stable",
        ),
        (["algorithm.rate={ kind = 'constant', c = 1e-91 }"], "in double precision is known is 1e-90"),
        (
            [
                "algorithm.rate={ kind = 'constant', c = 1e-20 }",
                "data.transform=[{ kind = 'norm', order = 2, at-most = 1e8 }]",
            ],
            "rounding is not proven to be small beside what a sample moves",
        ),
        (["model={ kind = 'svm' }"], "nothing is proven about one sample but the bound on the whole message"),
    ],
)
def test_the_explanation_says_what_is_proven_about_one_sample(changes: list[str], words: str) -> None:
    norm = "data.transform=[{ kind = 'norm', order = 2, at-most = 1.0 }]"
    assert any(words in note for note in explain(task(norm, *changes)).notes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ([], "a sample is a row with the same numbers (of 32 bits) and label"),
        ([], "written with one more digit it is another sample"),
        ([], 'unit = "device" does not depend on any of this'),
        (["data.id=patient"], "a sample is what has the same patient"),
        (["privacy.unit=device"], "what counts as one sample does not matter"),
    ],
)
def test_the_explanation_says_what_counts_as_the_same_sample(changes: list[str], words: str) -> None:
    assert any(words in note for note in explain(task(*changes)).notes)
