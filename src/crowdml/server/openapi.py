"""What the framework cannot see of the OpenAPI description: the two raw routes, who may call, what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from crowdml.server.control import bearer_of, device_of, require_operator
from crowdml.server.openapi_text import ANSWERS, ERROR, MEANINGS, RAW, SCHEMAS, SECURITY


def complete(fast: FastAPI, routers: Sequence[APIRouter]) -> None:
    """Make the application describe its raw routes, its callers and its errors too."""

    def describe() -> dict[str, Any]:
        if fast.openapi_schema is None:
            fast.openapi_schema = _describe(fast, routers)
        return fast.openapi_schema

    fast.openapi = describe  # type: ignore[method-assign]


def _describe(fast: FastAPI, routers: Sequence[APIRouter]) -> dict[str, Any]:
    schema = get_openapi(title=fast.title, version=fast.version, routes=fast.routes)
    components = schema.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    schemas.pop("HTTPValidationError", None)
    schemas.pop("ValidationError", None)
    schemas.update(SCHEMAS)
    components["securitySchemes"] = SECURITY
    known = _routes(routers)
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            _complete_operation(operation, ANSWERS[method, path], _callers(known[method, path].dependant))
    # Health has a shape of its own.
    del schema["paths"]["/healthz"]["get"]["responses"]["503"]["content"]
    schema["paths"] |= RAW
    return schema


def _routes(routers: Sequence[APIRouter]) -> dict[tuple[str, str], APIRoute]:
    routes = [own for router in routers for own in router.routes if isinstance(own, APIRoute)]
    return {(method.lower(), own.path): own for own in routes for method in own.methods or ()}


def _complete_operation(operation: dict[str, Any], texts: dict[int, str], who: tuple[str, ...]) -> None:
    """Say who may call, what the parameters mean, and what may come back."""
    if who:
        operation["security"] = [{name: []} for name in who]
    parameters = operation.get("parameters", [])
    for own in parameters:
        own["description"] = MEANINGS[own["name"]]
    answers = operation["responses"]
    answers.pop("422", None)
    for status, text in texts.items():
        answers.setdefault(str(status), {})["description"] = text
        if status >= 400:
            answers[str(status)]["content"] = ERROR["content"]
    if who:
        answers["401"] = ERROR | {"description": "No valid token"}
    if who or any(own["in"] == "path" for own in parameters):
        answers["404"] = ERROR | {"description": "Not there, or not for the bearer of this token"}
    if parameters or "requestBody" in operation:
        answers["422"] = ERROR | {"description": "Malformed"}
    answers["4XX"] = ERROR


def _callers(dependant: Dependant) -> tuple[str, ...]:
    """Tell from what a route depends on who may call it."""
    needs = _needs(dependant)
    if require_operator in needs:
        return ("operator",)
    if device_of in needs:
        return ("device",)
    return ("operator", "device") if bearer_of in needs else ()


def _needs(dependant: Dependant) -> set[Any]:
    found = {own.call for own in dependant.dependencies}
    return found.union(*(_needs(own) for own in dependant.dependencies))
