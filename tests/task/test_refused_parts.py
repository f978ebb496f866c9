"""What the papers have and crowdml refuses: one sentence why, and what is offered instead, which must exist."""

from __future__ import annotations

import pytest

from crowdml.core import BadInput
from crowdml.task import parse
from crowdml.task.task_errors import REFUSED

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
kind = "local-sgd"
server-batch = 10
[privacy]
mode = "none"
"""

ASKED: dict[tuple[str, str], tuple[str, str]] = {
    ("kind", "sag"): (
        "algorithm.rate={ kind = 'sag', c = 1.0 }",
        "algorithm.rate={ kind = 'dual-averaging', c = 1.0 }",
    ),
    ("kind", "saga"): ("algorithm.rate={ kind = 'saga', c = 1.0 }", "algorithm.rate={ kind = 'momentum', c = 1.0 }"),
    ("kind", "vsgd"): ("algorithm.rate={ kind = 'vsgd', c = 1.0 }", "algorithm.rate={ kind = 'yogi', c = 1.0 }"),
    ("kind", "dp-pca"): (
        "data.transform=[{ kind = 'dp-pca', components = 4 }]",
        "data.transform=[{ kind = 'pca', components = 4 }]",
    ),
    ("mode", "trusted-server"): (
        "privacy.mode=trusted-server",
        "secure-aggregation={ enabled = true, honest = 1.0, drop-out = 0.0 }",
    ),
    ("clip-elements", ""): ("privacy.clip-elements=0.1", ""),
    ("weight-range", ""): ("privacy.weight-range=1.0", "algorithm.radius=1.0"),
    ("frozen", ""): (
        "model={ kind = 'layers', layers = [{ kind = 'dense', size = 10, frozen = true }] }",
        "data.transform=[{ kind = 'norm', order = 2, exactly = 1.0 }]",
    ),
    ("offline-steps", ""): ("algorithm.offline-steps=10", "algorithm.local-steps=10"),
    ("replacement", ""): ("crowd.partition={ kind = 'iid', replacement = true }", "crowd.partition={ kind = 'iid' }"),
    ("light", ""): ("secure-aggregation={ enabled = true, light = true }", "secure-aggregation={ enabled = true }"),
}


def test_all_that_is_refused_is_asked_for() -> None:
    assert set(ASKED) == set(REFUSED)


@pytest.mark.parametrize("key", ASKED, ids=lambda key: key[1] or key[0])
def test_what_is_refused_says_why_and_what_there_is_instead(key: tuple[str, str]) -> None:
    asked, instead = ASKED[key]
    why, hint = REFUSED[key]
    with pytest.raises(BadInput) as refused:
        parse(TASK, changes=[asked])
    assert why in refused.value.what and refused.value.hint == hint
    assert refused.value.where.rsplit(".", 1)[-1] == key[0]
    if instead:
        parse(TASK, changes=[instead])


def test_a_word_that_nobody_decided_about_is_only_unknown() -> None:
    with pytest.raises(BadInput, match="unknown kind"):
        parse(TASK, changes=["algorithm.rate={ kind = 'sage', c = 1.0 }"])
