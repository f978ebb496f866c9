"""What is signed for browsers: a plan whose cost follows from it, or a sentence that says why they stay out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from crowdml.server.tasks.browser_plan import browser_plan
from crowdml.task import parse
from crowdml.task.live_task import LiveTask, definition_of, open_task
from crowdml.wire import TaskDocument

EXAMPLES = Path(__file__).parents[3] / "examples"


def live_of(name: str, *changes: str) -> LiveTask:
    task = parse((EXAMPLES / name).read_text(), name, changes)
    arrays: tuple[dict[str, Any], ...] = tuple({} for _ in task.data.transform)
    return open_task(TaskDocument(task=task.name, incarnation=1, definition=definition_of(task), arrays=arrays))


@pytest.mark.parametrize(
    ("name", "changes", "why"),
    [
        ("secagg-digits.toml", (), "its messages are added up under masks"),
        ("digits.toml", ('algorithm={ kind = "scaffold", devices = 10 }',), 'the algorithm "scaffold"'),
        ("digits.toml", ('model={ kind = "layers", layers = [{ kind = "dense", size = 10 }] }',), 'the model "layers"'),
        ("digits.toml", ('data.id="name"',), "told apart by ids"),
        ("digits.toml", ('algorithm={ kind = "local-sgd", rate = { kind = "momentum", c = 1.0 } }',), "momentum"),
    ],
)
def test_what_a_browser_cannot_do_is_said(name: str, changes: tuple[str, ...], why: str) -> None:
    plan = browser_plan(live_of(name, *changes))
    assert plan.keys() == {"refused"}
    assert plan["refused"].startswith("a phone may not join because") and why in plan["refused"]


def test_a_plan_is_json_that_says_bound_and_noise() -> None:
    plan = browser_plan(live_of("sound-mnist.toml"))
    assert json.loads(json.dumps(plan)) == plan
    assert (
        plan["grid"]["per"] == "release" and plan["noise"]["law"] == "rounded-gaussian" and plan["stable"]["moved"] > 0
    )
