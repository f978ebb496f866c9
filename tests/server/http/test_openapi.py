"""The OpenAPI description: every route, every token, every way in which something is refused."""

from __future__ import annotations

from typing import Any

import pytest

from crowdml.server.http.control import bearer_of, device_of, require_operator
from crowdml.server.http.json_bodies import Described, Summary
from crowdml.server.http.openapi import RAW_TEXTS
from crowdml.server.http.routes import RAW_ROUTES, ROUTES
from crowdml.server.pages.operator.session_gate import require_session

PUBLIC = {
    ("get", "/healthz"),
    ("get", "/metrics"),
    ("get", "/v1/tasks"),
    ("get", "/v1/tasks/{task}"),
    ("get", "/v1/tasks/{task}/events"),
    ("get", "/v1/tasks/{task}/curve"),
    ("get", "/v1/tasks/{task}/statistics"),
    ("get", "/v1/tasks/{task}/groups"),
    ("get", "/v1/tasks/{task}/invites/{code_hash}"),
    ("post", "/v1/tasks/{task}/devices"),
}


@pytest.fixture
def described(shared: Any) -> dict[tuple[str, str], Any]:
    content = shared.send("GET", "/openapi.json").json()
    return {
        (method, path): operation for path, methods in content["paths"].items() for method, operation in methods.items()
    }


def test_every_route_of_the_table_is_described_the_raw_ones_too(described: Any) -> None:
    table = {(method.lower(), route.path) for route in ROUTES if route.described for method in route.methods}
    assert set(described) == table and len(table) > 19
    assert set(RAW_TEXTS) == {route.handler for route in RAW_ROUTES}


def test_no_route_is_answered_that_is_not_in_the_table(shared: Any) -> None:
    known = {(method, route.path) for route in ROUTES for method in route.methods}
    assert len(known) == sum(len(route.methods) for route in ROUTES), "a line stands twice"
    shared.send("GET", "/v1/tasks")  # the framework is loaded by now
    framework = shared.framework()
    found = {(method, route.path) for route in framework.routes for method in route.methods}
    raw = {(method, route.path) for route in RAW_ROUTES for method in route.methods}
    assert found | raw == known and not found & raw


def test_the_framework_asks_for_the_tokens_that_the_table_names(shared: Any) -> None:
    asked = {"operator": require_operator, "device": device_of, "operator or device": bearer_of}
    asked["session"] = require_session
    whose = {(method, route.path): route.who for route in ROUTES for method in route.methods}
    for route in shared.framework().routes:
        calls = _calls(route.dependant)
        for method in route.methods:
            who = whose[method, route.path]
            assert (bearer_of in calls) == (who not in ("anyone", "session")), (method, route.path)
            assert (require_session in calls) == (who == "session"), (method, route.path)
            assert who == "anyone" or asked[who] in calls, (method, route.path)


def _calls(dependant: Any) -> set[Any]:
    return {each.call for each in dependant.dependencies}.union(*(_calls(each) for each in dependant.dependencies))


def test_every_operation_says_what_it_is_and_what_it_answers(described: Any) -> None:
    for place, operation in described.items():
        assert operation["summary"] and operation["description"], place
        answers = operation["responses"]
        assert any(code.startswith("2") for code in answers) or "101" in answers, place
        for code, answer in answers.items():
            assert answer["description"], place
            if code[0] in "45" and (place[1], code) != ("/healthz", "503"):
                schema = answer["content"]["application/json"]["schema"]
                assert schema == {"$ref": "#/components/schemas/Error"}, (place, code)
            elif code not in ("101", "204", "304"):
                assert answer["content"], (place, code)


def test_tokens_are_named_where_they_are_needed(described: Any) -> None:
    assert {place for place, operation in described.items() if not operation.get("security")} == PUBLIC
    whose = {
        place: [name for scheme in operation.get("security", []) for name in scheme]
        for place, operation in described.items()
    }
    assert whose["post", "/v1/tasks"] == whose["patch", "/v1/tasks/{task}"] == ["operator"]
    assert whose["get", "/v1/devices/me"] == whose["post", "/v1/tasks/{task}/check-ins"] == ["device"]
    assert whose["get", "/v1/tasks/{task}/model"] == ["operator", "device"]
    assert all("401" in operation["responses"] for operation in described.values() if operation.get("security"))


def test_references_lead_somewhere(shared: Any) -> None:
    content = shared.send("GET", "/openapi.json").json()
    found: list[str] = []

    def walk(node: Any) -> None:
        for value in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
            walk(value)
        if isinstance(node, dict) and "$ref" in node:
            found.append(node["$ref"])

    walk(content)
    assert set(found) <= {f"#/components/schemas/{name}" for name in content["components"]["schemas"]}


def test_what_is_described_is_what_is_answered(shared: Any) -> None:
    device = shared.device()
    device.check_in()
    shown = shared.show()
    assert set(Described.model_fields) == set(shown)
    assert set(Summary.model_fields) == set(shared.send("GET", "/v1/tasks").json()["tasks"][0])


def test_whoever_is_named_may_call_and_nobody_else(shared: Any, described: Any) -> None:
    tokens = {"operator": shared.token, "device": shared.device().token}
    for (method, path), operation in described.items():
        if path.endswith("/events"):
            continue  # a stream has no end
        place = path.replace("{task}", "walk").replace("{device}", "nobody").replace("{stage}", "hello")
        named = {name for scheme in operation.get("security", []) for name in scheme}
        alone = shared.send(method.upper(), place).status_code
        assert (alone == 401) == bool(named), (method, path, alone)
        if (method, path) == ("delete", "/v1/devices/me"):
            continue  # it would end the device that asks
        for name, token in tokens.items() if named else ():
            got = shared.send(method.upper(), place, headers={"authorization": f"Bearer {token}"}).status_code
            assert got not in (401, 403) and str(got) in operation["responses"], (method, path, name, got)
            assert name in named or got == 404, (method, path, name, got)
