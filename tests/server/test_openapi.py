"""The OpenAPI description: every route, every token, every way in which something is refused."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.routing import APIRoute

from crowdml.server import control, status
from crowdml.server.models import Described, Summary

RAW = {
    ("get", "/v1/tasks/{task}/check-out"),
    ("post", "/v1/tasks/{task}/check-ins"),
    ("get", "/v1/tasks/{task}/sums"),
    ("get", "/v1/tasks/{task}/sums/{stage}"),
    ("post", "/v1/tasks/{task}/sums/{stage}"),
}
PUBLIC = {
    ("get", "/healthz"),
    ("get", "/metrics"),
    ("get", "/v1/tasks"),
    ("get", "/v1/tasks/{task}"),
    ("get", "/v1/tasks/{task}/events"),
    ("get", "/v1/tasks/{task}/curve"),
    ("post", "/v1/tasks/{task}/devices"),
}


@pytest.fixture
def described(shared: Any) -> dict[tuple[str, str], Any]:
    content = shared.send("GET", "/openapi.json").json()
    return {
        (method, path): operation for path, methods in content["paths"].items() for method, operation in methods.items()
    }


def test_every_route_is_described_the_raw_ones_too(described: Any) -> None:
    routes = [route for router in (control.router, status.router) for route in router.routes]
    shown = {
        (method.lower(), route.path)
        for route in routes
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    }
    assert len(shown) == len(routes) > 12 and set(described) == shown | RAW


def test_every_operation_says_what_it_is_and_what_it_answers(described: Any) -> None:
    for place, operation in described.items():
        assert operation["summary"] and operation["description"], place
        answers = operation["responses"]
        assert any(code.startswith("2") for code in answers), place
        for code, answer in answers.items():
            assert answer["description"], place
            if code[0] in "45" and (place[1], code) != ("/healthz", "503"):
                schema = answer["content"]["application/json"]["schema"]
                assert schema == {"$ref": "#/components/schemas/Error"}, (place, code)
            elif code not in ("204", "304"):
                assert answer["content"], (place, code)


def test_tokens_are_named_where_they_are_needed(described: Any) -> None:
    assert {place for place, operation in described.items() if not operation.get("security")} == PUBLIC
    whose = {
        place: [name for own in operation.get("security", []) for name in own] for place, operation in described.items()
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
        named = {name for own in operation.get("security", []) for name in own}
        alone = shared.send(method.upper(), place).status_code
        assert (alone == 401) == bool(named), (method, path, alone)
        if (method, path) == ("delete", "/v1/devices/me"):
            continue  # it would end the device that asks
        for name, token in tokens.items() if named else ():
            got = shared.send(method.upper(), place, headers={"authorization": f"Bearer {token}"}).status_code
            assert got not in (401, 403) and str(got) in operation["responses"], (method, path, name, got)
            assert name in named or got == 404, (method, path, name, got)
