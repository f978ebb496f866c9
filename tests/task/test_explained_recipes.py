"""What `privacy explain` says of recipes whose messages are more than a change, or whose devices remember rows."""

from __future__ import annotations

import pytest

from crowdml.task import parse
from crowdml.task.explanation import Explanation, explain

TASK = """
crowdml = 1
name = "explained"
[data]
features = 2
labels = ["a", "b"]
[model]
kind = "softmax"
[algorithm]
kind = "crowd-sgd"
[privacy]
mechanism = "gaussian"
epsilon = 3.0
delta = 1e-5
max-uses = 2
CLIP
[stop]
max-releases = 2
"""


def explained(form: str) -> Explanation:
    clip = "" if "dp-fedavg" in form else "clip = 1.0"
    return explain(parse(TASK.replace("CLIP", clip), changes=[f"algorithm={{ {form} }}"]))


def test_every_part_of_a_message_is_what_it_is_called() -> None:
    for form, name, words in (
        ("kind = 'scaffold', devices = 4", "update/control/0/w", "control variate"),
        ("kind = 'dp-fedavg'", "update/below", "no longer than the clip"),
    ):
        parts = {part.name: part for part in explained(form).message_parts}
        assert words in parts[name].what and "bounded with the rest" in parts[name].what
        other = next(part for part in parts.values() if part.name.startswith("update/") and part.name != name)
        assert other.what == "how the device's work changed the model"
        assert other.protection == parts[name].protection, "one bound and one noise for both"


@pytest.mark.parametrize(
    ("form", "remembers"),
    [
        ("kind = 'scaffold', devices = 4", True),
        ("kind = 'fedavg', rate = { kind = 'momentum', c = 1.0 }", True),
        ("kind = 'dp-fedavg', rate = { kind = 'momentum', c = 1.0 }", False),
        ("kind = 'ditto'", False),
    ],
)
def test_it_is_said_that_a_remembered_sample_is_behind_all_later_releases(form: str, remembers: bool) -> None:
    notes = explained(form).notes
    assert any("used by every release after its first" in note for note in notes) == remembers
    assert any("on another device: there it is another sample" in note for note in notes)
