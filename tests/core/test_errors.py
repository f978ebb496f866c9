"""Errors: one tree, and a message that names place, fault and remedy."""

from __future__ import annotations

import json
import math
import pickle
import shlex
from importlib import metadata
from types import SimpleNamespace
from typing import Any

import pytest

from crowdml.core import errors
from crowdml.core.errors import BadInput, CrowdError, install, positive


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


@pytest.mark.parametrize("value", [0, -1, -0.0, math.nan, math.inf, -math.inf])
def test_positive_names_what_is_not(value: float) -> None:
    with pytest.raises(BadInput, match=r"^batch must be above zero, not "):
        positive(radius=1.0, batch=value)


def test_positive_lets_positive_numbers_pass() -> None:
    positive(batch=1, rate=5e-324, radius=1e308)
    positive()


@pytest.mark.parametrize(
    ("origin", "words"),
    [
        ({"url": "file:///srv/crowd%20ml", "dir_info": {}}, ["/srv/crowd ml[onnx]"]),
        ({"url": "file:///srv/crowdml", "dir_info": {"editable": True}}, ["-e", "/srv/crowdml[onnx]"]),
        (
            {"url": "file:///srv/crowdml-1-py3-none-any.whl", "archive_info": {}},
            ["/srv/crowdml-1-py3-none-any.whl[onnx]"],
        ),
        ({"url": "https://git.example/c", "vcs_info": {"vcs": "git"}}, ["crowdml[onnx] @ git+https://git.example/c"]),
        (None, ["crowdml[onnx]"]),
    ],
)
def test_what_is_missing_is_installed_from_where_crowdml_was(
    origin: dict[str, Any] | None, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = SimpleNamespace(read_text=lambda name: origin and json.dumps(origin))
    monkeypatch.setattr(metadata, "distribution", lambda name: told)
    assert shlex.split(install("onnx")) == ["pip", "install", *words]
