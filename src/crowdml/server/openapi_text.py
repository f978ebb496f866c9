"""What the OpenAPI description says in words: answers, parameters, and the two raw routes."""

from __future__ import annotations

from typing import Any

ERROR: dict[str, Any] = {
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
SCHEMAS = {"Error": _ERROR_SCHEMA, "Receipt": _RECEIPT_SCHEMA}
SECURITY = {
    "operator": {"type": "http", "scheme": "bearer", "description": "the operator's token"},
    "device": {"type": "http", "scheme": "bearer", "description": "a device's token"},
}
MEANINGS = {
    "task": "name of the task",
    "device": "name of the device, as the list of devices has it",
    "after": "number of the last receipt that is known already",
    "format": "kind of file",
}
"""What parameters mean, by name."""

_SUMMARY = "task, objective, state, reason, version, check_ins, devices, estimated_error, rows"
ANSWERS: dict[tuple[str, str], dict[int, str]] = {
    ("get", "/v1/tasks"): {200: f"`tasks`: a list with {_SUMMARY} of each"},
    ("post", "/v1/tasks"): {
        201: "The task, as `GET /v1/tasks/{task}` shows it",
        409: "A task of that name exists",
        413: "File and arrays are too large",
    },
    ("get", "/v1/tasks/{task}"): {200: f"{_SUMMARY}, incarnation, sheet_hash, signed_sheet (sheet, signature, key)"},
    ("patch", "/v1/tasks/{task}"): {
        200: "The task, as `GET /v1/tasks/{task}` shows it",
        409: "Not from the present state: a draft or paused task may open, an open one pause, any of them stop",
    },
    ("post", "/v1/tasks/{task}/invites"): {201: "`invites`: links, each good for one device, shown once"},
    ("get", "/v1/tasks/{task}/devices"): {200: "`devices`: a list with device, slot, check_ins, refused of each"},
    ("delete", "/v1/tasks/{task}/devices/{device}"): {204: "Revoked, whatever of it was waiting too"},
    ("post", "/v1/tasks/{task}/devices"): {
        200: "The key that used this invite asks again: a new token, the old one is dead",
        201: "device, token (shown once), slot, sheet",
        409: "Another device used the invite, the key has joined already, or the sheet is not the present one",
        410: "The task has ended",
        429: "Too many requests from this address",
    },
    ("get", "/v1/devices/me"): {200: "device, task, slot, check_ins, sheet, state"},
    ("delete", "/v1/devices/me"): {204: "Erased"},
    ("get", "/v1/devices/me/receipts"): {
        200: "`receipts`: a list with key, number, status, version, body (SHA-256) of each; `next`: where to go on"
    },
    ("get", "/v1/tasks/{task}/model"): {200: "The file", 501: "This server has no ONNX installed"},
    ("get", "/v1/tasks/{task}/events"): {
        200: "A stream of events `state`, each with what `GET /v1/tasks` says of the task",
        429: "Too many open streams",
    },
    ("get", "/v1/tasks/{task}/curve"): {200: "`curve`: points with version, check_ins, rows, estimated_error, time"},
    ("get", "/healthz"): {200: '`{"status": "ok"}`', 503: '`{"status": "failed"}`: the process is about to end'},
    ("get", "/metrics"): {200: "Text in Prometheus' format"},
}
"""What comes back, by method and path, beside what is said of all routes alike."""

_TASK = {
    "name": "task",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "maxLength": 63},
    "description": MEANINGS["task"],
}
_OCTETS = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}


def _refusals(texts: dict[int, str]) -> dict[str, Any]:
    return {str(status): ERROR | {"description": text} for status, text in texts.items()}


_COMMON = {
    400: "A header that must be single stands twice",
    401: "No valid token",
    404: "Not the task of this device",
    410: "The task has ended",
    429: "Too many requests",
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
            "description": "Nothing to do now: the task is paused, or the device not in the round; see Retry-After"
        },
        "304": {"description": "Still the version of If-None-Match"},
    }
    | _refusals(_COMMON),
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
            "description": "Stored: status (applied or queued), task, key, number, version, sheet; again: true if it "
            "was stored before",
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Receipt"}}},
        }
    }
    | _refusals(
        _COMMON
        | {
            409: "Spent and never to be sent again: stale, of a version that does not exist, the second in its round, "
            "or beyond max-releases",
            411: "No Content-Length",
            413: "Longer than a check-in of this task",
            415: "Compressed, or not application/octet-stream",
            422: "Not the one legal header, a number out of range, or other bytes than before under this key",
            503: "Paused, or too many are waiting: keep the bytes and send them again after Retry-After",
        }
    ),
}
RAW: dict[str, dict[str, Any]] = {
    "/v1/tasks/{task}/check-out": {"get": _CHECK_OUT},
    "/v1/tasks/{task}/check-ins": {"post": _CHECK_IN},
}
