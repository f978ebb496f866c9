"""What the framework cannot see, in the OpenAPI description: the two raw routes, tokens and refusals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from crowdml.server.control import bearer_of, device_of, require_operator
from crowdml.server.front import HEALTH
from crowdml.server.sum_openapi import sum_paths

_ERROR = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
REFUSED = {
    400: "A header is repeated, or names another host",
    401: "No valid token",
    403: "From a page of another site",
    404: "Not there, or not for the bearer of this token",
    409: "Not in the present state of things",
    410: "The task has ended",
    411: "No Content-Length",
    413: "Too large",
    415: "Compressed, or of another type",
    422: "Malformed",
    429: "Too many requests",
    501: "This server has no ONNX installed",
    503: "Paused, busy or failing: the same request may succeed after Retry-After",
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
    "description": "name of the task",
}
_OCTETS = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}


def _refusals(*statuses: int, **texts: str) -> dict[str, Any]:
    """Describe refusals; `s409="…"` says more of one."""
    return {
        str(status): {"description": texts.get(f"s{status}", REFUSED[status]), "content": _ERROR}
        for status in sorted(statuses)
    }


_CHECK_OUT = {
    "summary": "Check out the present version",
    "description": "A safetensors message with the one header of the task: version and parameters.",
    "security": [{"device": []}],
    "parameters": [
        _TASK,
        {
            "name": "If-None-Match",
            "in": "header",
            "schema": {"type": "string"},
            "description": "ETag of the version that the device has",
        },
    ],
    "responses": {
        "200": {"description": "The version; ETag, Crowdml-Version and Crowdml-Sheet name it", "content": _OCTETS},
        "204": {
            "description": "Nothing to do now; Crowdml-Waiting: round, paused or draft. Ask again after Retry-After"
        },
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
            "description": "Names this check-in: 8 to 64 letters, digits, `_`, `-`",
        },
    ],
    "requestBody": {"required": True, "content": _OCTETS},
    "responses": {
        "200": {
            "description": "Stored",
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Receipt"}}},
        }
    }
    | _refusals(
        *(400, 401, 403, 404, 409, 410, 411, 413, 415, 422, 429, 503),
        s409="Spent, never to be sent again: stale, of no such version, second in its round, or beyond max-releases",
        s422="Not the one legal header, a number out of range, or other bytes than before under this key",
    ),
}


_MORE = {
    ("post", "/v1/tasks"): (409,),
    ("patch", "/v1/tasks/{task}"): (409, 503),
    ("post", "/v1/tasks/{task}/devices"): (401, 409, 410, 503),
    ("delete", "/v1/tasks/{task}/devices/{device}"): (503,),
    ("delete", "/v1/devices/me"): (503,),
    ("get", "/v1/tasks/{task}/model"): (501,),
}
"""Refusals that no rule tells."""
_TEXTS = {
    ("post", "/v1/tasks"): {"s409": "A task of that name exists"},
    ("patch", "/v1/tasks/{task}"): {"s409": "A stopped task stays so, and none becomes a draft"},
    ("post", "/v1/tasks/{task}/devices"): {
        "s409": "Another device used the invite, the key has joined before, or the sheet is not the present one"
    },
    ("get", "/v1/tasks/{task}/events"): {"s429": "Too many open streams"},
}
_MEANINGS = {
    "task": "name of the task",
    "device": "name of the device, as the list of devices has it",
    "after": "number of the last receipt that is known already",
    "format": "kind of file",
}
"""What parameters mean, by name."""


def complete(fast: FastAPI, routers: Sequence[APIRouter]) -> None:
    """Make the application describe its raw routes, whose tokens its routers ask for, and its errors too."""

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
    schema["paths"] |= sum_paths(_TASK, _OCTETS, _refusals)
    return schema


def _add(operation: dict[str, Any], method: str, route: APIRoute) -> None:
    """Say who may ask, and every way in which it may be refused."""
    who = _who(route)
    if who:
        operation["security"] = who
    refusals = {400, *_MORE.get((method, route.path), ())}
    refusals |= {429} if route.path != HEALTH else set()
    refusals |= {401, 404} if who else set()
    refusals |= {404, 422} if "{" in route.path else set()
    refusals |= {422} if operation.get("parameters") else set()
    refusals |= {403, 411, 413, 415} if method != "get" else set()
    refusals |= {422} if "requestBody" in operation else set()
    operation["responses"].update(_refusals(*refusals, **_TEXTS.get((method, route.path), {})))
    for parameter in operation.get("parameters", ()):
        parameter["description"] = _MEANINGS[parameter["name"]]


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
