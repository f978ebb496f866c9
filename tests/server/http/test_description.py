"""The description taken at its word: requests made from it, good ones and bad ones, get answers that it names."""

from __future__ import annotations

import contextlib
from typing import Any

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

EXAMPLES = 8
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
WORKING = [
    "GET /v1/tasks",
    "PATCH /v1/tasks/{task}",
    "POST /v1/tasks/{task}/invites",
    "GET /v1/devices/me",
    "GET /healthz",
]
WORKING += ["GET /v1/tasks/{task}/check-out", "GET /v1/tasks/{task}/model", "GET /v1/devices/me/receipts"]
"""What can be asked for without knowing more than the description."""

PARTS = ("method", "url", "headers", "params", "cookies", "json", "data", "files")
QUIETLY = settings(
    max_examples=EXAMPLES, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)


def send(app: Any, case: Any, token: str) -> httpx.Response:
    """Send a generated request as its bytes would travel."""
    made = case.as_transport_kwargs(base_url=app.address, headers={"authorization": f"Bearer {token}"})
    ready = requests.Request(**{name: made[name] for name in PARTS if name in made}).prepare()
    body = ready.body.encode() if isinstance(ready.body, str) else ready.body
    answer: httpx.Response = app.send(ready.method, ready.url, headers=dict(ready.headers), content=body)
    return answer


class Tried:
    """Sends what is made from a description, as operator or device, about tasks that exist and tasks that do not."""

    def __init__(self, app: Any, mode: GenerationMode) -> None:
        self._app, self._mode, self._device = app, mode, app.device()
        self.seen: dict[str, set[int]] = {}

    def operation(self, operation: Any) -> None:
        whose = [name for scheme in operation.definition.raw.get("security", []) for name in scheme]
        token = self._device.token if whose == ["device"] else self._app.token
        found = self.seen.setdefault(operation.label, set())

        @QUIETLY
        @given(case=operation.as_strategy(generation_mode=self._mode))
        def run(case: Any) -> None:
            for task in self._tasks(case):
                if task is not None:
                    case.path_parameters["task"] = task
                answer = send(self._app, case, token)
                found.add(answer.status_code)
                case.validate_response(answer, checks=CHECKS)

        # There is nothing wrong to be sent where nothing is sent.
        with contextlib.suppress(Unsatisfiable):
            run()

    @staticmethod
    def _tasks(case: Any) -> list[str | None]:
        made = (case.path_parameters or {}).get("task")
        # Whatever stops a task stops one that the others do not need.
        return [None] if made is None else [made, "other" if case.method == "PATCH" else "walk"]


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_every_answer_is_one_that_the_description_names(make_app: Any, mode: GenerationMode) -> None:
    app = make_app()
    for name in ("walk", "other"):
        app.create(f"name={name}")
    tried = Tried(app, mode)
    schema = schemathesis.openapi.from_dict(app.send("GET", "/openapi.json").json())
    for result in schema.get_all_operations():
        operation: Any = result.ok()  # type: ignore[union-attr]
        # A stream has no end; and a device that has withdrawn learns nothing more.
        if not operation.path.endswith("/events") and operation.label != "DELETE /v1/devices/me":
            tried.operation(operation)
    assert not any(status >= 500 for found in tried.seen.values() for status in found), tried.seen
    if mode is GenerationMode.POSITIVE:
        assert all(min(tried.seen[label]) < 300 for label in WORKING), tried.seen
    assert app.send("GET", "/healthz").status_code == 200 and app.failures == []
