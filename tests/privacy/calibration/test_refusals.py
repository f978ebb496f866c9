"""What cannot be promised is refused, with a message that says what would be right.

One row for every refusal that can occur today: what was asked for, where the message points, what it says, and what it
proposes. A refusal that is missing here has not been thought about.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from crowdml.core import BadInput
from crowdml.core.errors import BudgetExhausted, TermsViolated
from crowdml.device import DeviceCoins
from crowdml.privacy import Event, Filter
from crowdml.privacy.ledger.entries import AcceptedTerms
from crowdml.privacy.ledger.ledger_chain import Cap, LedgerChain
from crowdml.privacy.noise.grid import GridMechanism, make_grid
from crowdml.privacy.noise.laws import LAWS, MECHANISMS, SUM_LAWS, Bound, Mechanism
from crowdml.privacy.noise.shares import Shared, honest_survivors
from crowdml.simulation.prepare import prepare
from crowdml.task import parse
from crowdml.task.live_task import fit_public, require_live

TASK = """
crowdml = 1
name = "refused"
[data]
dataset = "digits"
features = 64
labels = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
transform = [{ kind = "norm", order = 1, at-most = 1.0 }]
[model]
kind = "softmax"
[algorithm]
kind = "crowd-sgd"
batch = 10
[privacy]
mode = "sound"
epsilon = 8.0
max-uses = 2
[crowd]
passes = 2
"""

GAUSSIAN = ("privacy.mechanism=gaussian", "privacy.clip=0.5", "privacy.delta=1e-5")
PAPER = TASK.replace('mode = "sound"', 'mode = "paper"').replace("max-uses = 2", "")
LOCAL = "algorithm={ kind = 'local-sgd', local-batch = 10, local-steps = 2 }"
ADAPTIVE = "algorithm.rate={ kind = 'adagrad', c = 0.1 }"

SOUND_TASKS = {
    "unbounded rows": (("data.transform=[]",), "privacy.clip", "nothing bounds the gradient", "give clip"),
    "unbounded loss": (("model={ kind = 'mlp', layers = [4] }",), "privacy.clip", "nothing bounds", "give clip"),
    "local steps without a clip of the whole change": (
        (LOCAL,),
        "privacy.clip",
        "nothing bounds what local",
        "give clip",
    ),
    "an adaptive rate without a clip of the whole change": (
        (LOCAL, ADAPTIVE),
        "privacy.clip",
        "nothing bounds what local steps change",
        "the longest change of all parameters together",
    ),
    "an algorithm without sound form": (
        ("algorithm={ kind = 'central-sgd' }",),
        "privacy.mode",
        "no sound form yet",
        "crowd-sgd",
    ),
    "no epsilon": (("privacy={ max-uses = 2 }",), "privacy.epsilon", "needs epsilon, the total", "epsilon = 8.0"),
    "epsilon without meaning": (("privacy.epsilon=1001.0",), "privacy.epsilon", "promises nothing", "at most 1000"),
    "no number of uses": (("privacy={ epsilon = 1.0 }",), "privacy.max-uses", "over how many releases", "max-uses = 1"),
    "no number of releases": (
        ("privacy={ epsilon = 1.0, unit = 'device' }",),
        "stop.max-releases",
        "over how many releases of one device",
        "max-releases = 10",
    ),
    "a pass that is not covered": (("crowd.passes=3",), "crowd.passes", "pass 3 of 3 is not covered", "passes = 2"),
    "add-remove": (("privacy.adjacency=add-remove",), "privacy.adjacency", "travels in clear", "replace"),
    "Gaussian noise at δ = 0": (("privacy.mechanism=gaussian",), "privacy.delta", "delta above zero", "delta = 1e-6"),
    "a law without exact sampler": (("privacy.mechanism=k-norm",), "privacy.mechanism", "cannot be named", "laplace"),
    "counts that take everything": (
        ("privacy.statistics-epsilon=8.0",),
        "privacy.statistics-epsilon",
        "leaves nothing",
        "smaller",
    ),
    "an owner's choice that excludes the default": (
        ("privacy.owner-range=[0.5, 2.0]",),
        "privacy.owner-range",
        "outside of owner-range",
        "chooses nothing",
    ),
    "an owner's choice without meaning": (
        ("privacy.owner-range=[1.0, 2000.0]",),
        "privacy.owner-range",
        "promises nothing",
        "at most 1000",
    ),
    "δ of as much as one of the declared samples": (
        (*GAUSSIAN, "privacy.delta=1e-3", "privacy.units=1000"),
        "privacy.delta",
        "delta = 0.001 is no promise to 1000 samples",
        "below 1/1000 = 0.001, and should be well below, such as delta = 1e-05",
    ),
    "δ of as much as one of the declared devices": (
        (*GAUSSIAN, "privacy.delta=0.05", "privacy.unit=device", "stop.max-releases=2", "privacy.units=20"),
        "privacy.delta",
        "delta = 0.05 is no promise to 20 devices",
        "below 1/20 = 0.05",
    ),
    "a large δ of nobody knows how many samples": (
        (*GAUSSIAN, "privacy.delta=1.01e-4"),
        "privacy.delta",
        "delta = 0.000101 is above 0.0001, and nothing says how many samples",
        "declare the number of samples, such as units = 1000",
    ),
    "a large δ beside Laplace noise": (
        ("privacy.delta=0.5",),
        "privacy.delta",
        "delta = 0.5 is above 0.0001",
        "delta = 1e-06",
    ),
    "counts that get next to nothing": (
        ("privacy.statistics-epsilon=5e-324",),
        "privacy.statistics-epsilon",
        "noise of scale inf does not fit",
        "larger epsilon",
    ),
    "noise beyond 32 bits": (("privacy.epsilon=1e-6",), "privacy.epsilon", "does not fit", "larger epsilon"),
    "noise that shrinks": (
        ("privacy.noise-sequence=geometric", "privacy.noise-factor=0.9"),
        "privacy.noise-factor",
        "the same for every release",
        'mode = "paper" in a simulation',
    ),
    "noise that follows the rate": (
        ("privacy.noise-sequence=rate",),
        "privacy.noise-sequence",
        "the same for every release",
        'mode = "paper" in a simulation',
    ),
    "noise that depends on earlier noise": (
        (*GAUSSIAN, "privacy.noise-sequence=banded", "privacy.noise-bands=4"),
        "privacy.noise-sequence",
        "neither fresh nor on the grid",
        "simulation only",
    ),
}


@pytest.mark.parametrize("row", SOUND_TASKS.values(), ids=SOUND_TASKS.keys())
def test_a_sound_task_is_refused(row: tuple[tuple[str, ...], str, str, str]) -> None:
    changes, where, what, hint = row
    with pytest.raises(BadInput, match=what) as refused:
        parse(TASK, changes=changes)
    assert where in refused.value.where and hint in refused.value.hint


PREPARED = {
    "δ that allows to publish a sample": (
        (*GAUSSIAN, "privacy.delta=1e-3", "privacy.units=900"),
        "privacy.delta",
        r"no promise to 1400 samples",
        "below 1/1400",
    ),
    "δ that allows to publish a device": (
        (*GAUSSIAN, "privacy.delta=0.06", "privacy.unit=device", "stop.max-releases=2", "privacy.units=9"),
        "privacy.delta",
        "no promise to 20 devices",
        "below 1/20",
    ),
    "a fit on private rows": (
        ("data.transform=[{ kind = 'pca', components = 4 }, { kind = 'norm', order = 1, at-most = 1.0 }]",),
        "data.public",
        "pca fitted on private rows would be a release",
        "public = 1000",
    ),
}


@pytest.mark.parametrize("row", PREPARED.values(), ids=PREPARED.keys())
def test_a_sound_task_is_refused_once_its_rows_are_known(row: tuple[tuple[str, ...], str, str, str]) -> None:
    changes, where, what, hint = row
    task = parse(TASK, changes=changes)
    with pytest.raises(BadInput, match=what) as refused:
        prepare(task)
    assert refused.value.where == where and hint in refused.value.hint


PAPER_TASKS = {
    "unbounded rows": (("data.transform=[]",), "privacy.clip", "nothing bounds the gradient", "give clip"),
    "correlated noise without a bound": (
        ("privacy.noise-sequence=rate",),
        "privacy.noise-sequence",
        "worked out from epsilon",
        "leave it out",
    ),
    "ε for a change after local steps": ((LOCAL,), "privacy.epsilon", "no proven bound", "noise-scale"),
    "ε for an adaptive rate on the device": ((LOCAL, ADAPTIVE), "privacy.epsilon", "no proven bound", "noise-scale"),
    "ε and a scale": (("privacy.noise-scale=1.0",), "privacy.noise-scale", "either from epsilon or", "leave one"),
    "a promise to devices": (("privacy.unit=device",), "privacy.unit", "about one sample", 'unit = "sample"'),
    "a paper's noise under masks": (
        (
            "algorithm={ kind = 'fedsgd', per-round = 20, max-rows = 10 }",
            "secure-aggregation.enabled=true",
        ),
        "secure-aggregation.enabled",
        "whole numbers",
        'mode = "sound"',
    ),
    "uses that nothing counts": (("privacy.max-uses=3",), "privacy.max-uses", "only sound mode", "leave it out"),
    "add-remove": (("privacy.adjacency=add-remove",), "privacy.adjacency", "travels in clear", "replace"),
}


@pytest.mark.parametrize("row", PAPER_TASKS.values(), ids=PAPER_TASKS.keys())
def test_a_paper_task_is_refused(row: tuple[tuple[str, ...], str, str, str]) -> None:
    changes, where, what, hint = row
    with pytest.raises(BadInput, match=what) as refused:
        parse(PAPER, changes=changes)
    assert where in refused.value.where and hint in refused.value.hint


LIVE = {
    "a paper's formula": (PAPER, "privacy.mode", "exists in simulation only", '"sound"'),
    "an algorithm of simulations": (
        PAPER.replace('mode = "paper"', 'mode = "none"').replace("epsilon = 8.0", "").replace("crowd-sgd", "decentral"),
        "algorithm.kind",
        "exists in simulation only",
        "",
    ),
}


@pytest.mark.parametrize("row", LIVE.values(), ids=LIVE.keys())
def test_a_live_task_is_refused(row: tuple[str, str, str, str]) -> None:
    source, where, what, hint = row
    with pytest.raises(BadInput, match=what) as refused:
        require_live(parse(source))
    assert refused.value.where == where and hint in refused.value.hint


def test_a_live_task_does_not_fit_on_anything_but_a_file_of_public_rows() -> None:
    learnt = "data.transform=[{ kind = 'pca', components = 4 }, { kind = 'norm', order = 1, at-most = 1.0 }]"
    with pytest.raises(BadInput, match="pca must be fitted") as refused:
        fit_public(parse(TASK, changes=(learnt,)), None)
    assert "--public" in refused.value.hint


def bound(order: int) -> Bound:
    return Bound(order=order, radius=1.0, clipped=True)


def terms(uses: int = 2, epsilon: float = 1.0) -> AcceptedTerms:
    limit = Filter(kind="pure", epsilon=epsilon, delta=0.0)
    return AcceptedTerms(unit="sample", filter=limit, uses=uses, event=Event.of_pure(0.5))


def chain(cap: Cap = Cap()) -> LedgerChain:  # noqa: B008  a frozen record
    made = LedgerChain(cap)
    made.append(made.accept("task", "hash", terms()))
    return made


def spent() -> LedgerChain:
    made = chain()
    for key in ("a", "b"):
        entry = made.charge("task", key, b"bytes", np.array([0]), 0)
        assert entry is not None
        made.append(entry, np.array([0], "<i4").tobytes())
    return made


def closed() -> LedgerChain:
    made = chain()
    made.append(made.close("task"))
    return made


PARTS: dict[str, tuple[type[Exception], str, Callable[[], object]]] = {
    "Laplace noise on a bound in L2": (
        ValueError,
        "laplace noise needs a bound in L1, not L2",
        lambda: Mechanism(bound=bound(2), law=MECHANISMS["laplace"], noise=1.0),
    ),
    "Gaussian noise on a bound in L1": (
        ValueError,
        "gaussian noise needs a bound in L2, not L1",
        lambda: Mechanism(bound=bound(1), law=MECHANISMS["gaussian"], noise=1.0),
    ),
    "discrete Laplace noise on a grid in L2": (
        ValueError,
        "does not fit a grid of order 2",
        lambda: GridMechanism(grid=make_grid(2, 4, 1.0, "example"), law=MECHANISMS["discrete-laplace"], scale=8.0),
    ),
    "continuous noise on a grid": (
        ValueError,
        "does not fit a grid",
        lambda: GridMechanism(grid=make_grid(2, 4, 1.0, "example"), law=MECHANISMS["gaussian"], scale=8.0),
    ),
    "continuous noise on a device": (
        TypeError,
        "never draws continuous noise",
        lambda: DeviceCoins().laplace("any", (1,)),
    ),
    "shares of a sum on a bound in L1": (
        ValueError,
        "does not fit a grid of order 1",
        lambda: GridMechanism(
            grid=make_grid(1, 4, 1.0, "release"),
            law=LAWS["skellam"],
            scale=3.0,
            shared=Shared(law=SUM_LAWS["skellam"], survivors=2),
        ),
    ),
    "a sum over too few honest survivors": (
        BadInput,
        "nobody's noise is left",
        lambda: honest_survivors(10, 100, 0.9),
    ),
    "an ε outside of the range of the terms": (
        BadInput,
        "is not between 8 and 8",
        lambda: parse(TASK).calibrated.for_owner(9.0),
    ),
    "Rényi divergences at δ = 0": (
        ValueError,
        "at δ > 0 only",
        lambda: Filter(kind="rdp", epsilon=1.0, delta=0.0),
    ),
    "terms that do not add up": (
        TermsViolated,
        "3 releases cost more than ε = 1",
        lambda: LedgerChain().accept("task", "hash", terms(uses=3)),
    ),
    "terms beyond the owner's cap": (
        TermsViolated,
        r"ε = 2, δ = 0 with all tasks; the owner's cap is ε = 1.5",
        lambda: chain(Cap(epsilon=1.5)).accept("second", "hash", terms()),
    ),
    "δ beyond the owner's cap": (
        TermsViolated,
        r"the owner's cap is ε = inf, δ = 1e-06",
        lambda: LedgerChain(Cap(delta=1e-6)).accept(
            "task",
            "hash",
            AcceptedTerms(
                unit="device",
                filter=Filter(kind="rdp", epsilon=1.0, delta=1e-5),
                uses=1,
                event=Event(pure=math.inf, rho=0.001),
            ),
        ),
    ),
    "terms that changed": (
        TermsViolated,
        "the terms are not those accepted",
        lambda: chain().accept("task", "other hash", terms()),
    ),
    "a task that was never accepted": (
        TermsViolated,
        "its terms were never accepted",
        lambda: chain().charge("other", "a", b"bytes", np.array([0]), 0),
    ),
    "a use beyond the terms": (
        BudgetExhausted,
        "a sample of this release was used 2 of 2 times",
        lambda: spent().charge("task", "c", b"bytes", np.array([0]), 0),
    ),
    "other bytes under a known key": (
        TermsViolated,
        "other bytes under the key of an earlier release",
        lambda: spent().charge("task", "a", b"drawn anew", np.array([0]), 0),
    ),
    "a release of a closed task": (
        BudgetExhausted,
        "the task is closed",
        lambda: closed().charge("task", "a", b"bytes", np.array([0]), 0),
    ),
}


@pytest.mark.parametrize("row", PARTS.values(), ids=PARTS.keys())
def test_a_part_is_refused(row: tuple[type[Exception], str, Callable[[], object]]) -> None:
    kind, what, attempt = row
    with pytest.raises(kind, match=what):
        attempt()


def test_the_task_without_changes_is_not_refused() -> None:
    """Else the rows above would prove nothing."""
    prepare(parse(TASK))
    parse(PAPER)
    spent()
