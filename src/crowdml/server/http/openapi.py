"""The OpenAPI description, made from the table of routes: tokens, refusals, and what the framework cannot see.

Raw routes are described here by hand.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from crowdml.secure_aggregation.stages import TABLE
from crowdml.server.http.json_bodies import Health
from crowdml.server.http.routes import ROUTES, SUM_STAGES, Route

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
    426: "No WebSocket",
    429: "Too many requests",
    501: "This server has no ONNX installed",
    503: "Paused, busy or failing: the same request may succeed after Retry-After",
}
ERROR_SCHEMA = {
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
RECEIPT_SCHEMA = {
    "type": "object",
    "required": ["status", "task", "key", "number", "version", "task_hash"],
    "properties": {
        "status": {"enum": ["applied", "queued"]},
        "task": {"type": "string"},
        "key": {"type": "string"},
        "number": {"type": "integer", "description": "how many check-ins this device has made"},
        "version": {"type": "integer", "description": "version after it was folded in"},
        "task_hash": {"type": "string", "description": "hash of the signed task"},
        "again": {"type": "boolean", "description": "true for a check-in that was stored before"},
    },
}
_OCTETS = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
_RECEIPT = {"application/json": {"schema": {"$ref": "#/components/schemas/Receipt"}}}


def refusals(*statuses: int, **texts: str) -> dict[str, Any]:
    """Describe refusals; `s409="…"` says more of one."""
    return {
        str(status): {"description": texts.get(f"s{status}", REFUSED[status]), "content": _ERROR}
        for status in sorted(statuses)
    }


def _given(name: str, place: str, schema: dict[str, Any], meaning: str, required: bool = True) -> dict[str, Any]:
    """Describe a parameter."""
    return {
        "name": name,
        "in": place,
        **({"required": True} if required else {}),
        "schema": schema,
        "description": meaning,
    }


def _text(pattern: str) -> dict[str, Any]:
    return {"type": "string", "pattern": pattern}


_KEY_TEXT = _text("^[A-Za-z0-9_-]{8,64}$")
_TASK = _given("task", "path", _text("^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"), "name of the task")
_STAGE = _given("stage", "path", {"enum": [*SUM_STAGES]}, "which message")
_SUM_TEXT = "the sum that a message belongs to, as GET on sums names it"
_SUM = _given("Crowdml-Sum", "header", _text("^[0-9]{1,20}-[0-9]{1,20}$"), _SUM_TEXT)
_KEY = _given("Idempotency-Key", "header", _KEY_TEXT, "names a masked vector; other messages need none", False)
_BEGUN = "with hello: the version that the device began its work with; not given: the present one"
_STARTED = _given("Crowdml-Started", "header", _text("^[0-9]{1,18}$"), _BEGUN, False)
_SEEN = _given("If-None-Match", "header", {"type": "string"}, "ETag of the version that the device has", False)
_NAMED = _given("Idempotency-Key", "header", _KEY_TEXT, "Names this check-in: 8 to 64 letters, digits, `_`, `-`")
_STATUS = {
    "type": "object",
    "required": ["sum", "version", "attempt", "stage", "members"],
    "properties": {
        "sum": {"type": "string", "description": "how messages name this sum"},
        "version": {"type": "integer", "description": "version that it is for"},
        "attempt": {"type": "integer", "description": "a number that no other attempt has"},
        "stage": {"type": "string", "description": "which messages it waits for"},
        "members": {"type": "integer", "description": "devices that have said hello"},
    },
}
_CHECK_OUT = {
    "summary": "Check out the present version",
    "description": "A safetensors message with the one header of the task: version and parameters.",
    "parameters": [_TASK, _SEEN],
    "responses": {
        "200": {"description": "The version; ETag, Crowdml-Version and Crowdml-Task-Hash name it", "content": _OCTETS},
        "204": {
            "description": "Nothing to do now; Crowdml-Waiting: round, paused or draft. Ask again after Retry-After"
        },
        "304": {"description": "Still the version of If-None-Match"},
    }
    | refusals(400, 401, 404, 410, 429),
}
_CHECK_IN = {
    "summary": "Check in a sanitised contribution",
    "description": "A safetensors message with the one header of the task, of exactly the expected size. 200 means "
    "stored; the same key with the same bytes gets the same receipt and is counted once.",
    "parameters": [_TASK, _NAMED],
    "requestBody": {"required": True, "content": _OCTETS},
    "responses": {"200": {"description": "Stored", "content": _RECEIPT}}
    | refusals(
        *(400, 401, 403, 404, 409, 410, 411, 413, 415, 422, 429, 503),
        s409="Spent, never to be sent again: stale, of no such version, second in its round, or beyond max-releases",
        s422="Not the one legal header, a number out of range, or other bytes than before under this key",
    ),
}
_LATE = "The stage is closed, the sum is over or was given up, or the device is not in the round"
_FOLLOWING = {
    "200": {
        "description": "What follows: bytes of the next stage, or after reveal a receipt (JSON)",
        "content": _OCTETS | _RECEIPT,
    },
    "202": {
        "description": "The stage is not closed yet: ask again by GET",
        "content": {"application/json": {"schema": {"type": "object"}}},
    },
}
_SUM_STATUS = {
    "summary": "Say which sum is going on (secure aggregation)",
    "description": "A device says hello to it if it is at the stage hello and for the version checked out.",
    "parameters": [_TASK],
    "responses": {"200": {"description": "The sum", "content": {"application/json": {"schema": _STATUS}}}}
    | refusals(400, 401, 404, 429),
}
_ASK_AGAIN = {
    "summary": "Ask for the answer to a message that was handed over before",
    "description": "After 202: it waits again for the stage to close.",
    "parameters": [_TASK, _STAGE, _SUM, _KEY],
    "responses": _FOLLOWING | refusals(400, 401, 404, 409, 410, 422, 429, 503, s409=_LATE),
}
_HAND_OVER = {
    "summary": "Hand over a message of secure aggregation",
    "description": "The answer comes when the stage is closed. The same message again is taken once. Messages are "
    + "; ".join({stage.step: f"{stage.step}: {stage.message}" for stage in TABLE}.values())
    + ".",
    "parameters": [_TASK, _STAGE, _SUM, _KEY, _STARTED],
    "requestBody": {"required": True, "content": _OCTETS},
    "responses": _FOLLOWING | refusals(400, 401, 403, 404, 409, 410, 411, 413, 415, 422, 429, 503, s409=_LATE),
}
_RELAY = {
    "summary": "Take part in a group that holds pieces of one net (WebSocket)",
    "description": "A WebSocket without compression. Control messages are JSON, frames are bytes with a header of 36; "
    "the first message is a hello. A device has one such connection at a time.",
    "parameters": [_TASK],
    "responses": {"101": {"description": "The connection is a WebSocket now"}}
    | refusals(400, 401, 403, 404, 410, 426, 429, 503),
}
_WELL = {"application/json": {"schema": {"$ref": "#/components/schemas/Health"}}}
_HEALTH = {
    "tags": ["status"],
    "summary": "Whether the server works",
    "description": "Answer 200 while every writer works.",
    "responses": {
        "200": {"description": "Successful Response", "content": _WELL},
        "503": {"description": "A writer has ended", "content": _WELL},
    }
    | refusals(400),
}

RAW_TEXTS: dict[str, dict[str, Any]] = {
    "front_door.health": _HEALTH,
    "exchange.check_out": _CHECK_OUT,
    "exchange.check_in": _CHECK_IN,
    "secure_routes.status": _SUM_STATUS,
    "secure_routes.hand_over": _HAND_OVER,
    "secure_routes.ask_again": _ASK_AGAIN,
    "relay.plain": _RELAY,
}
"""Descriptions of raw routes, by the handlers that the table names; who may ask is added from there."""
_MORE = {
    "control.create_task": (409,),
    "control.change_task": (409, 503),
    "control.enrol": (401, 409, 410, 503),
    "control.revoke_device": (503,),
    "control.withdraw": (503,),
    "control.get_model": (501,),
}
"""Refusals that no rule tells, by handler."""
_TEXTS = {
    "control.create_task": {"s409": "A task of that name exists"},
    "control.change_task": {"s409": "A stopped task stays so, and none becomes a draft"},
    "control.enrol": {
        "s409": "Another device used the invite, the key has joined before, or the signed task is not the present one"
    },
    "status_routes.events": {"s429": "Too many open streams"},
}
_MEANINGS = {
    "task": "name of the task",
    "device": "name of the device, as the list of devices has it",
    "code_hash": "SHA-256 of `crowdml invite`, a zero byte and the code of the invite, in hexadecimal",
    "before": "number of the last entry that is known already",
    "after": "number of the last receipt that is known already",
    "format": "kind of file",
}
"""What parameters mean, by name."""


def describe(fast: FastAPI) -> dict[str, Any]:
    """Describe an application that has all routes of the framework; raw routes are added from their texts."""
    schema = get_openapi(title=fast.title, version=fast.version, routes=fast.routes)
    components = schema.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    schemas.pop("HTTPValidationError", None)
    schemas.pop("ValidationError", None)
    schemas |= {"Error": ERROR_SCHEMA, "Receipt": RECEIPT_SCHEMA, "Health": Health.model_json_schema()}
    components["securitySchemes"] = {
        "operator": {"type": "http", "scheme": "bearer", "description": "the operator's token"},
        "device": {"type": "http", "scheme": "bearer", "description": "a device's token"},
    }
    seen, schema["paths"] = schema["paths"], {}
    for route in ROUTES:
        for method in map(str.lower, route.methods) if route.described else ():
            raw = RAW_TEXTS.get(route.handler)
            operation = dict(raw) if raw else _completed(seen[route.path][method], method, route)
            if security := _security_of(route):
                operation["security"] = security
            schema["paths"].setdefault(route.path, {})[method] = operation
    return schema


def _security_of(route: Route) -> list[dict[str, list[str]]]:
    """Return whose tokens a route takes; each is enough."""
    return [] if route.who == "anyone" else [{name: []} for name in route.who.split(" or ")]


def _completed(operation: dict[str, Any], method: str, route: Route) -> dict[str, Any]:
    """Add every way in which a request may be refused, and what its parameters mean."""
    statuses = {400, 429, *_MORE.get(route.handler, ())}
    statuses |= {401, 404} if route.who != "anyone" else set()
    statuses |= {404, 422} if "{" in route.path else set()
    statuses |= {422} if operation.get("parameters") else set()
    statuses |= {403, 411, 413, 415} if method != "get" else set()
    statuses |= {422} if "requestBody" in operation else set()
    operation["responses"].update(refusals(*statuses, **_TEXTS.get(route.handler, {})))
    for parameter in operation.get("parameters", ()):
        parameter["description"] = _MEANINGS[parameter["name"]]
    return operation
