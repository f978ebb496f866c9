<<<<<<< HEAD
"""The OpenAPI description: every route, every token, every way in which something is refused."""
=======
"""The OpenAPI description: it knows every route, and says rightly who may call it."""
>>>>>>> walk

from __future__ import annotations

from typing import Any

import pytest
from fastapi.routing import APIRoute

<<<<<<< HEAD
from crowdml.server import control, status
from crowdml.server.models import Described, Summary

RAW = {("get", "/v1/tasks/{task}/check-out"), ("post", "/v1/tasks/{task}/check-ins")}
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
=======
from crowdml.server.app import ROUTERS, describe
from crowdml.server.openapi_text import ANSWERS, RAW

SCHEMA = describe()
ROUTES = [
    (path, method, operation) for path, methods in SCHEMA["paths"].items() for method, operation in methods.items()
]
STREAM = "/v1/tasks/{task}/events"


def names(own: tuple[str, str, Any]) -> str:
    return f"{own[1].upper()} {own[0]}"


def who(operation: Any) -> set[str]:
    return {name for own in operation.get("security", []) for name in own}


def ask(server: Any, path: str, method: str, token: str | None) -> int:
    """Ask with a token and nothing else; whoever may call meets something else than a refusal of his token."""
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    filled = path.replace("{task}", "walk").replace("{device}", "nobody")
    return int(server.send(method.upper(), filled, headers=headers).status_code)


def test_every_route_is_described() -> None:
    routes = [own for router in ROUTERS for own in router.routes if isinstance(own, APIRoute) and own.include_in_schema]
    known = {(method.lower(), own.path) for own in routes for method in own.methods or ()}
    assert known == set(ANSWERS)
    assert {(method, path) for path, method, _ in ROUTES} == known | {
        (method, path) for path, methods in RAW.items() for method in methods
    }


def test_a_server_shows_it(shared: Any) -> None:
    assert shared.send("GET", "/openapi.json").json() == SCHEMA


@pytest.mark.parametrize("route", ROUTES, ids=names)
def test_texts_are_complete(route: tuple[str, str, Any]) -> None:
    _, _, operation = route
    assert operation["summary"]
    assert all(own["description"] for own in operation.get("parameters", []))
    for status, answer in operation["responses"].items():
        assert answer["description"] not in ("", "Successful Response"), status
    assert any(status.startswith("2") for status in operation["responses"])


@pytest.mark.parametrize("route", [own for own in ROUTES if own[0] != STREAM], ids=names)
def test_it_says_rightly_who_may_call(route: tuple[str, str, Any], shared: Any) -> None:
    path, method, operation = route
    allowed = who(operation)
    stranger = ask(shared, path, method, None)
    assert (stranger == 401) == bool(allowed)
    if allowed == {"operator"}:
        assert ask(shared, path, method, shared.device().token) == 404
    if allowed == {"device"}:
        assert ask(shared, path, method, shared.token) == 404
    for kind in allowed:
        token = shared.token if kind == "operator" else shared.device().token
        got = ask(shared, path, method, token)
        assert got not in (401, 403) and str(got) in operation["responses"]
>>>>>>> walk
