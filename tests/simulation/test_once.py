"""What a simulation works out once: noise is calibrated once, and the algorithm assembled a few times."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from crowdml.algorithms import Algorithm
from crowdml.algorithms.recipe import Parts
from crowdml.algorithms.recipes import RECIPES
from crowdml.simulation import simulate
from crowdml.task import Task
from crowdml.task import task as module

Make = Callable[..., Task]
PRIVATE = ("privacy={ mode = 'paper', epsilon = 10.0 }", "data.transform=[{ kind = 'norm', order = 1, at-most = 1.0 }]")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often noise was calibrated, and how often a recipe built, by array operations."""
    found: Counter[str] = Counter()
    make_plan = getattr(module, "make_plan")  # noqa: B009  not exported by name

    def counted_plan(*given, **named):  # type: ignore[no-untyped-def]
        found["plan"] += 1
        return make_plan(*given, **named)

    def counted(build: Callable[[Parts], Algorithm]) -> Callable[[Parts], Algorithm]:
        def counting(parts: Parts) -> Algorithm:
            found[parts.ops.name] += 1
            return build(parts)

        return counting

    monkeypatch.setattr(module, "make_plan", counted_plan)
    for name, recipe in list(RECIPES.items()):
        monkeypatch.setitem(RECIPES._entries, name, replace(recipe, build=counted(recipe.build)))
    return found


FEDAVG = "algorithm={ kind = 'fedavg', per-round = 3, local-batch = 8 }"
COUNTED = ("algorithm.statistics=true", "stop.error-below=0.01", "stop.error-rows=100")


@pytest.mark.parametrize(
    ("changes", "trials", "compiled"),
    [((*PRIVATE, "crowd.passes=1"), 3, 6), ((FEDAVG, "crowd.passes=1"), 1, 6), (COUNTED, 1, 7)],
    ids=["private", "rounds", "a rule to stop"],
)
def test_noise_is_calibrated_once(
    digits: Make, calls: Counter[str], changes: tuple[str, ...], trials: int, compiled: int
) -> None:
    """Compiled code assembles once each for start, check-out, work, absorb, commit and measure, and to stop."""
    simulate(digits(*changes), trials=trials)
    assert calls["plan"] == 1
    assert calls["numpy"] == 1
    assert calls["jax"] <= compiled


def test_a_changed_copy_is_assembled_anew(digits: Make, calls: Counter[str]) -> None:
    task = digits(*PRIVATE)
    other = task.model_copy(update={"privacy": task.privacy.model_copy(update={"epsilon": 1.0})})
    assert other.calibrated.noise > task.calibrated.noise
    assert other.built is not task.built
    assert calls["plan"] == 2
