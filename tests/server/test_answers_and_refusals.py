"""Answers: one shape for every error, and a status for every error of ours."""

from __future__ import annotations

import json

import pytest

import crowdml.core.errors as errors
from crowdml.core import BadInput, CrowdError
from crowdml.server import store
from crowdml.server.refusals import Refusal, json_answer, refusal_of

STATUSES = {
    errors.BadInput: 422,
    errors.TermsViolated: 409,
    errors.CapReached: 409,
    errors.BudgetExhausted: 409,
    errors.StaleCheckIn: 409,
    errors.MalformedMessage: 422,
    errors.NotAuthorised: 401,
    errors.TaskClosed: 410,
    store.StoreConflict: 409,
    store.StoreFailed: 503,
}


def ours() -> list[type[CrowdError]]:
    found = [kind for module in (errors, store) for kind in vars(module).values() if isinstance(kind, type)]
    # A device says `Unreachable` of a server; no server says it.
    return [kind for kind in found if issubclass(kind, CrowdError) and kind not in (CrowdError, errors.Unreachable)]


@pytest.mark.parametrize("kind", ours(), ids=lambda kind: kind.__name__)
def test_every_error_of_ours_has_a_status_and_the_one_shape(kind: type[CrowdError]) -> None:
    answer = refusal_of(kind("what is wrong")).answer()
    assert answer.status == STATUSES[kind]
    (error,) = json.loads(answer.body).values()
    assert error["code"] and error["message"]
    assert dict(answer.headers)[b"content-type"] == b"application/json"


def test_bad_input_says_where_and_what_would_be_right() -> None:
    refusal = refusal_of(BadInput("is too large", where="algorithm.batch", hint="use 10"))
    assert (str(refusal), refusal.hint) == ("algorithm.batch: is too large", "use 10")


def test_what_fails_inside_is_not_told_outside() -> None:
    answer = refusal_of(store.StoreFailed("the database failed: /home/operator/crowdml.sqlite is full")).answer()
    assert b"sqlite" not in answer.body and (b"retry-after", b"5") in answer.headers


def test_headers_follow_from_the_refusal() -> None:
    assert (b"www-authenticate", b"Bearer") in Refusal(401, "x", "x").answer().headers
    assert (b"retry-after", b"7") in Refusal(503, "x", "x", retry_after_s=7).answer().headers
    assert json.loads(Refusal(409, "stale", "old", version=3).answer().body)["error"]["version"] == 3


def test_text_from_outside_is_escaped() -> None:
    answer = Refusal(422, "x", 'a "quoted"\n\ud800 text\x00').answer()
    assert json.loads(answer.body)["error"]["message"] == 'a "quoted"\n\ud800 text\x00'
    assert answer.body.isascii()


def test_an_answer_is_json() -> None:
    assert json.loads(json_answer({"a": [1, None]}, 201).body) == {"a": [1, None]}
