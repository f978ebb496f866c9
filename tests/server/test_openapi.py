"""The OpenAPI description: it knows every route, and says rightly who may call it."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.routing import APIRoute

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
