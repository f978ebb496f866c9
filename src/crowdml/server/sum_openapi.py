"""What the OpenAPI description says of masked sums, whose routes the framework cannot see."""

from __future__ import annotations

from typing import Any

from crowdml.protocol.sums.messages import STAGES

_SUM = {
    "name": "Crowdml-Sum",
    "in": "header",
    "required": True,
    "schema": {"type": "string", "pattern": "^[0-9]{1,20}-[0-9]{1,20}$"},
    "description": "the sum that a message belongs to, as GET on sums names it",
}
_STAGE = {
    "name": "stage",
    "in": "path",
    "required": True,
    "schema": {"enum": [*STAGES, "blame"]},
    "description": "which message; blame has no answer, and is given in the place of masked",
}
_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "schema": {"type": "string", "pattern": "^[A-Za-z0-9_-]{8,64}$"},
    "description": "names a masked vector; other messages need none",
}
_STARTED = {
    "name": "Crowdml-Started",
    "in": "header",
    "schema": {"type": "string", "pattern": "^[0-9]{1,18}$"},
    "description": "with hello: the version that the device began its work with; not given: the present one",
}
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


def sum_paths(task: dict[str, Any], octets: dict[str, Any], refusals: Any) -> dict[str, Any]:
    """Describe the routes.

    Args:
        task: The parameter that names a task.
        octets: Content of bytes.
        refusals: Describes refusals by their statuses.
    """
    security: list[dict[str, list[str]]] = [{"device": []}]
    answers = {
        "200": {
            "description": "What follows: bytes of the next stage, or after reveal a receipt (JSON)",
            "content": octets | {"application/json": {"schema": {"$ref": "#/components/schemas/Receipt"}}},
        },
        "202": {
            "description": "The stage is not closed yet: ask again by GET",
            "content": {"application/json": {"schema": {"type": "object"}}},
        },
    }
    late = "The stage is closed, the sum is over or was given up, or the device is not in the round"
    status = {
        "summary": "Say which masked sum is going on",
        "description": "A device says hello to it if it is at the stage hello and for the version checked out.",
        "security": security,
        "parameters": [task],
        "responses": {
            "200": {"description": "The sum", "content": {"application/json": {"schema": _STATUS}}},
        }
        | refusals(400, 401, 404, 429),
    }
    ask = {
        "summary": "Ask for the answer to a message that was handed over before",
        "description": "After 202: it waits again for the stage to close.",
        "security": security,
        "parameters": [task, _STAGE, _SUM, _KEY],
        "responses": answers | refusals(400, 401, 404, 409, 410, 422, 429, 503, s409=late),
    }
    give = {
        "summary": "Hand over a message of a masked sum",
        "description": "The answer comes when the stage is closed. The same message again is taken once.",
        "security": security,
        "parameters": [task, _STAGE, _SUM, _KEY, _STARTED],
        "requestBody": {"required": True, "content": octets},
        "responses": answers | refusals(400, 401, 403, 404, 409, 410, 411, 413, 415, 422, 429, 503, s409=late),
    }
    return {
        "/v1/tasks/{task}/sums": {"get": status},
        "/v1/tasks/{task}/sums/{stage}": {"get": ask, "post": give},
    }
