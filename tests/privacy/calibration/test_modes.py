"""Modes by name: an unknown one is refused with a suggestion, and one from outside is as good as ours."""

from __future__ import annotations

from dataclasses import replace

import pytest

import crowdml
from crowdml.core import BadInput
from crowdml.privacy import MODES, ModelBounds, Plan, PrivacySettings, Releases
from crowdml.privacy.calibration.sound_plan import sound_plan
from crowdml.task import parse
from crowdml.task.live_task import require_live
from tests.support.extensions import forgotten

TASK = """
crowdml = 1
name = "modes"
[data]
features = 3
labels = ["a", "b"]
[model]
kind = "softmax"
[algorithm]
kind = "crowd-sgd"
[privacy]
mode = "half"
epsilon = 4.0
clip = 1.0
max-uses = 10
"""


def half(settings: PrivacySettings, releases: Releases, model: ModelBounds) -> Plan:
    """Keep half the ε that was asked for."""
    assert settings.epsilon is not None
    return sound_plan(settings.model_copy(update={"epsilon": settings.epsilon / 2}), releases, model)


def test_a_mode_from_outside_calibrates_a_task() -> None:
    with forgotten():
        crowdml.register("half", half)
        task = parse(TASK)
        assert (task.calibrated.terms.mode, task.calibrated.terms.limit.epsilon) == ("half", 2.0)
        require_live(task)
        with pytest.raises(BadInput, match='the privacy mode "half" is taken'):
            crowdml.register("half", lambda settings, releases, model: half(settings, releases, model))


def boastful(settings: PrivacySettings, releases: Releases, model: ModelBounds) -> Plan:
    """Promise what means nothing."""
    plan = sound_plan(settings, releases, model)
    limit = replace(plan.terms.limit, epsilon=5000.0)
    return replace(plan, terms=replace(plan.terms, filter=limit))


def test_a_mode_from_outside_promises_nothing_that_means_nothing() -> None:
    with forgotten():
        crowdml.register("half", boastful)
        with pytest.raises(BadInput, match="ε = 5000 promises nothing"):
            parse(TASK)


def test_a_function_of_one_argument_is_no_mode() -> None:
    with pytest.raises(BadInput, match="cannot be registered"):
        crowdml.register("half", lambda settings: settings)
    assert "half" not in MODES


@pytest.mark.parametrize(
    ("given", "hint"), [("sond", 'did you mean "sound"?'), ("xyz", "choose one of: sound, paper, none")]
)
def test_an_unknown_mode_is_named_with_its_line(given: str, hint: str) -> None:
    with pytest.raises(BadInput, match=f"'{given}' is not possible here") as refused:
        parse(TASK.replace("half", given))
    assert refused.value.where == "task, line 12, privacy.mode" and refused.value.hint == hint
