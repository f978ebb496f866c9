"""The two raw routes in the OpenAPI description, which the framework cannot see."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

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
_TASK = {"name": "task", "in": "path", "required": True, "schema": {"type": "string", "maxLength": 63}}
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
    | _refusals(400, 401, 404, 409, 410, 411, 413, 415, 422, 429, 503),
}


def complete(fast: FastAPI) -> None:
    """Make the application describe its raw routes and its errors too."""

    def describe() -> dict[str, Any]:
        if fast.openapi_schema is None:
            fast.openapi_schema = _describe(fast)
        return fast.openapi_schema

    fast.openapi = describe  # type: ignore[method-assign]


def _describe(fast: FastAPI) -> dict[str, Any]:
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
    for operations in schema["paths"].values():
        for operation in operations.values():
            operation["responses"]["422"] = _ERROR
            operation["responses"]["4XX"] = _ERROR
    schema["paths"]["/v1/tasks/{task}/check-out"] = {"get": _CHECK_OUT}
    schema["paths"]["/v1/tasks/{task}/check-ins"] = {"post": _CHECK_IN}
    return schema
