"""Errors: one tree, and a message that names place, fault and remedy."""

from __future__ import annotations

import pickle

import pytest

from crowdml.core import errors
from crowdml.core.errors import BadInput, CrowdError


@pytest.mark.parametrize(
    ("where", "hint", "text"),
    [
        ("", "", "batch is wrong"),
        ("t.toml, line 3", "", "t.toml, line 3: batch is wrong"),
        ("", "use 20", "batch is wrong\n  use 20"),
        ("t.toml", "use 20", "t.toml: batch is wrong\n  use 20"),
    ],
)
def test_bad_input_shows_the_parts_it_has(where: str, hint: str, text: str) -> None:
    error = BadInput("batch is wrong", where=where, hint=hint)
    assert str(error) == text
    assert (error.what, error.where, error.hint) == ("batch is wrong", where, hint)


def test_bad_input_crosses_a_process_border_unharmed() -> None:
    there = pickle.loads(pickle.dumps(BadInput("what", where="here", hint="so")))  # noqa: S301
    assert (str(there), there.what, there.where, there.hint) == ("here: what\n  so", "what", "here", "so")


def test_every_error_is_a_crowd_error_and_no_programmers_mistake() -> None:
    names = [
        "BadInput",
        "TermsViolated",
        "BudgetExhausted",
        "StaleCheckIn",
        "MalformedMessage",
        "NotAuthorised",
        "TaskClosed",
    ]
    for name in names:
        cls = getattr(errors, name)
        assert issubclass(cls, CrowdError)
        assert not issubclass(cls, ValueError | TypeError)
        assert name in (errors.__doc__ or "")
