"""Answers: a refusal becomes one of our errors, and never more than a line."""

from __future__ import annotations

import json

import pytest

from crowdml.core import BadInput, CrowdError
from crowdml.core.errors import (
    BudgetExhausted,
    MalformedMessage,
    NotAuthorised,
    StaleCheckIn,
    TaskClosed,
    TermsViolated,
)
from crowdml.device.answers import Answer


def refused(status: int, code: str, message: str = "because", hint: str = "") -> Answer:
    content = {"error": {"code": code, "message": message, "hint": hint}}
    return Answer(status=status, headers={}, body=json.dumps(content).encode())


@pytest.mark.parametrize(
    "status, code, kind",
    [
        (401, "not-authorised", NotAuthorised),
        (403, "origin", NotAuthorised),
        (404, "no-task", BadInput),
        (409, "stale", StaleCheckIn),
        (409, "future-version", StaleCheckIn),
        (409, "already-in-round", StaleCheckIn),
        (409, "releases-spent", BudgetExhausted),
        (409, "sheet-changed", TermsViolated),
        (409, "invite-used", NotAuthorised),
        (410, "closed", TaskClosed),
        (413, "too-large", MalformedMessage),
        (415, "type", MalformedMessage),
        (422, "malformed", MalformedMessage),
        (418, "teapot", BadInput),
    ],
)
def test_a_refusal_is_one_of_our_errors(status: int, code: str, kind: type[CrowdError]) -> None:
    with pytest.raises(kind, match="because"):
        refused(status, code).require(200)


def test_a_strangers_text_cannot_touch_the_terminal() -> None:
    found = str(refused(422, "x", "\x1b[2J\x07" + "a" * 5000 + "\nb").error())
    assert "\x1b" not in found and "\x07" not in found and len(found) < 400 and "\n" not in found


@pytest.mark.parametrize("body", [b"", b"<html>", b"[1]", b'{"error": 3}', b"[" * 5000])
def test_any_body_will_do_for_an_error(body: bytes) -> None:
    with pytest.raises(BadInput, match="status 400"):
        Answer(status=400, headers={}, body=body).require(200)


@pytest.mark.parametrize("body", [b'{"n": true}', b'{"n": 1.5}', b'{"n": -1}', b'{"n": 9223372036854775808}', b"{}"])
def test_numbers_are_whole_and_fit(body: bytes) -> None:
    with pytest.raises(MalformedMessage):
        Answer(status=200, headers={}, body=body).number("n")


def test_an_unexpected_success_is_no_success() -> None:
    with pytest.raises(MalformedMessage, match="206"):
        Answer(status=206, headers={}, body=b"").require(200)
