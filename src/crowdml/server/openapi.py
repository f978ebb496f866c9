<<<<<<< HEAD
"""What the framework cannot see, in the OpenAPI description: the two raw routes, tokens and refusals."""
=======
"""What the framework cannot see of the OpenAPI description: the two raw routes, who may call, what is refused."""
>>>>>>> walk

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
<<<<<<< HEAD

from crowdml.server.control import bearer_of, device_of, require_operator

_ERROR = {
    "description": "Refused",
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
}
_ERROR_SCHEMA = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {
                "code": {"type": "string", "description": "short name of the reason, for programs"},
                "message": {"type": "string", "description": "what is wrong, for people"},
                "hint": {"type": "string", "description": "what would be right"},
            },
        }
    },
}
_RECEIPT_SCHEMA = {
    "type": "object",
    "required": ["status", "task", "key", "number", "version", "sheet"],
    "properties": {
        "status": {"enum": ["applied", "queued"]},
        "task": {"type": "string"},
        "key": {"type": "string"},
        "number": {"type": "integer", "description": "how many check-ins this device has made"},
        "version": {"type": "integer", "description": "version after it was folded in"},
        "sheet": {"type": "string", "description": "hash of the sheet"},
        "again": {"type": "boolean", "description": "true for a check-in that was stored before"},
    },
}
_TASK = {
    "name": "task",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "pattern": "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"},
}
_OCTETS = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}


def _refusals(*statuses: int) -> dict[str, Any]:
    return {str(status): _ERROR for status in statuses}


_CHECK_OUT = {
    "summary": "Check out the present version",
    "description": "A safetensors message with the one header of the task: version and parameters.",
    "security": [{"device": []}],
    "parameters": [_TASK, {"name": "If-None-Match", "in": "header", "schema": {"type": "string"}}],
    "responses": {
        "200": {"description": "The version; ETag names it", "content": _OCTETS},
        "204": {"description": "Nothing to do now; ask again after Retry-After"},
        "304": {"description": "Still the version of If-None-Match"},
    }
    | _refusals(400, 401, 404, 410, 429),
}
_CHECK_IN = {
    "summary": "Check in a sanitised contribution",
    "description": "A safetensors message with the one header of the task, of exactly the expected size. 200 means "
    "stored; the same key with the same bytes gets the same receipt and is counted once.",
    "security": [{"device": []}],
    "parameters": [
        _TASK,
        {
            "name": "Idempotency-Key",
            "in": "header",
            "required": True,
            "schema": {"type": "string", "pattern": "^[A-Za-z0-9_-]{8,64}$"},
        },
    ],
    "requestBody": {"required": True, "content": _OCTETS},
    "responses": {
        "200": {
            "description": "Stored",
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Receipt"}}},
        }
    }
    | _refusals(400, 401, 403, 404, 409, 410, 411, 413, 415, 422, 429, 503),
}


_MORE = {
    ("post", "/v1/tasks"): (409,),
    ("patch", "/v1/tasks/{task}"): (409, 503),
    ("post", "/v1/tasks/{task}/devices"): (401, 409, 410, 429, 503),
    ("delete", "/v1/tasks/{task}/devices/{device}"): (503,),
    ("delete", "/v1/devices/me"): (503,),
    ("get", "/v1/tasks/{task}/events"): (429,),
    ("get", "/v1/tasks/{task}/model"): (501,),
}
"""Refusals that no rule tells."""


def complete(fast: FastAPI, routers: Sequence[APIRouter]) -> None:
    """Make the application describe its raw routes, whose tokens its routers ask for, and its errors too."""
=======

from crowdml.server.control import bearer_of, device_of, require_operator
from crowdml.server.openapi_text import ANSWERS, ERROR, MEANINGS, RAW, SCHEMAS, SECURITY


def complete(fast: FastAPI, routers: Sequence[APIRouter]) -> None:
    """Make the application describe its raw routes, its callers and its errors too."""
>>>>>>> walk

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
<<<<<<< HEAD
    schemas["Error"], schemas["Receipt"] = _ERROR_SCHEMA, _RECEIPT_SCHEMA
    components["securitySchemes"] = {
        "operator": {"type": "http", "scheme": "bearer", "description": "the operator's token"},
        "device": {"type": "http", "scheme": "bearer", "description": "a device's token"},
    }
    for route in (own for router in routers for own in router.routes):
        assert isinstance(route, APIRoute)  # noqa: S101  our routers have no other
        for method, operation in schema["paths"][route.path].items():
            if method.upper() in (route.methods or ()):
                _add(operation, method, route)
    schema["paths"]["/v1/tasks/{task}/check-out"] = {"get": _CHECK_OUT}
    schema["paths"]["/v1/tasks/{task}/check-ins"] = {"post": _CHECK_IN}
    return schema


def _add(operation: dict[str, Any], method: str, route: APIRoute) -> None:
    """Say who may ask, and every way in which it may be refused."""
    who = _who(route)
    if who:
        operation["security"] = who
    refusals = {400, *_MORE.get((method, route.path), ())}
    refusals |= {401, 404, 429} if who else set()
    refusals |= {404, 422} if "{" in route.path else set()
    refusals |= {422} if operation.get("parameters") else set()
    refusals |= {403, 411, 413, 415} if method != "get" else set()
    refusals |= {422} if "requestBody" in operation else set()
    for status in sorted(refusals):
        operation["responses"][str(status)] = _ERROR


def _who(route: APIRoute) -> list[dict[str, list[str]]]:
    """Return whose tokens a route takes: its dependencies tell, so that this cannot be forgotten."""
    calls = _calls(route.dependant)
    if require_operator in calls:
        return [{"operator": []}]
    if device_of in calls:
        return [{"device": []}]
    return [{"operator": []}, {"device": []}] if bearer_of in calls else []


def _calls(dependant: Dependant) -> set[Any]:
    return {own.call for own in dependant.dependencies}.union(*(_calls(own) for own in dependant.dependencies))
=======
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
>>>>>>> walk
