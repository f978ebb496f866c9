"""The page of HTTP routes, from the server's own description and from the refusals in its source."""

from __future__ import annotations

import ast
import typing
from pathlib import Path
from typing import Any

from docs.writers.phrases import GENERATED, sentence

HTTP_INTRODUCTION = """\
What a server answers, from its own `/openapi.json`. Every request and every answer carries `Crowdml-Protocol: 2`; a
request that names another protocol is refused (400, `protocol`), and devices refuse an answer that does.

*Device* and *operator* mean a header `Authorization: Bearer TOKEN` with a token of that kind; with the other kind there
is nothing to be found (404). A device's token opens its own task and its own entry, nothing else. Bodies are JSON
unless said otherwise. An answer of 503 or 429 says in `Retry-After` after how many seconds the same request may
succeed. Whoever has no valid token may ask 20 times a second and 200 times at once, from one address.

What is shown of a task is always what is stored: one settled snapshot, the same for all routes. No answer is to be
sniffed (`nosniff`) or, unless it says so, stored (`no-store`). Ranges are ignored; `TRACE` and requests for a whole
address are refused.

Pages for people: `/`, `/tasks/{task}`, `/join/{task}`."""

HTTP_ERRORS = """\
Every refusal has one shape; `hint` and further values, such as the present `version`, are there where they help.

```json
{"error": {"code": "stale", "message": "12 versions old: not used", "version": 40}}
```
"""


def http_page() -> str:
    """Describe every route: who may call it, what it takes, what it answers."""
    from crowdml.server.http.openapi import REFUSED
    from crowdml.server.setup.framework import describe

    schema = describe()
    routes = [
        (path, method, operation) for path, methods in schema["paths"].items() for method, operation in methods.items()
    ]
    parts = [GENERATED, "# HTTP", HTTP_INTRODUCTION, "## Routes"]
    rows = ["| route | who | what |", "|---|---|---|"]
    for path, method, operation in routes:
        rows.append(f"| `{method.upper()} {path}` | {_who(operation)} | {operation['summary']} |")
    parts.append("\n".join(rows))
    for path, method, operation in routes:
        parts += [f"## `{method.upper()} {path}`", f"{operation['summary']}. Who: {_who(operation)}."]
        texts = (operation.get("description", ""), _inputs(operation, schema), _answers(operation, schema))
        parts += [text for text in texts if text]
    usual = [f"| {status} | {text} |" for status, text in REFUSED.items()]
    parts += ["## Refusals", HTTP_ERRORS.strip(), "\n".join(["| status | meaning |", "|---|---|", *usual])]
    parts += ["What `code` and `message` may be:", refusals()]
    return "\n\n".join(parts) + "\n"


def _who(operation: dict[str, Any]) -> str:
    return " or ".join(name for scheme in operation.get("security", []) for name in scheme) or "anyone"


def _inputs(operation: dict[str, Any], schema: dict[str, Any]) -> str:
    """List parameters, headers and fields of the body."""
    rows = [
        (given["name"], given["in"], given["schema"], given.get("required", False), given.get("description", ""))
        for given in operation.get("parameters", [])
    ]
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        if kind != "application/json":
            rows.append(("body", kind, {}, True, "a message of exactly the expected size"))
            continue
        body = schema["components"]["schemas"][content["schema"]["$ref"].rpartition("/")[2]]
        for name, shape in body["properties"].items():
            rows.append((name, "body", shape, name in body.get("required", ()), shape.get("description", "")))
    if not rows:
        return ""
    table = ["| name | in | value | meaning |", "|---|---|---|---|"]
    for name, place, shape, required, text in rows:
        needed = "" if required else "; may be left out"
        table.append(f"| `{name}` | {place} | {_json_words(shape)}{needed} | {sentence(text)} |")
    return "\n".join(table)


def _json_words(schema: dict[str, Any]) -> str:
    """Say what a JSON value may be."""
    if "anyOf" in schema:
        return " or ".join(_json_words(choice) for choice in schema["anyOf"] if choice.get("type") != "null")
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_json_words(schema['items'])}"
    words = {"integer": "whole number", "string": "text", "boolean": "`true` or `false`", "object": "table"}
    low, high = schema.get("minimum"), schema.get("maximum")
    limits = f" from {int(low)} to {int(high)}" if low is not None and high is not None else ""
    return words.get(schema.get("type", ""), "bytes") + limits


def _answers(operation: dict[str, Any], schema: dict[str, Any]) -> str:
    """List what comes back: a sentence, and the fields where there are any; usual refusals by their numbers alone."""
    from crowdml.server.http.openapi import REFUSED

    rows, usual = [], []
    for status, response in sorted(operation["responses"].items()):
        if response["description"] == REFUSED.get(int(status)):
            usual.append(status)
            continue
        content: dict[str, Any] = response.get("content", {})
        reference = content.get("application/json", {}).get("schema", {}).get("$ref", "")
        text = response["description"]
        if status[0] == "2" and reference:
            answer = schema["components"]["schemas"][reference.rpartition("/")[2]]
            lead = answer.get("description", text) if text == "Successful Response" else text
            text = f"{lead.rstrip('.')}: {_fields(answer, schema)}"
        elif text == "Successful Response":
            text = ", ".join(f"`{kind}`" for kind in content) or "Done"
        rows.append(f"- **{status}**: {text}")
    rows += [f"- as [usual](#refusals): {', '.join(usual)}"] * bool(usual)
    return "\n".join(rows)


def _fields(answer: dict[str, Any], schema: dict[str, Any]) -> str:
    """Name the fields of an answer, those of tables inside it too."""
    names = []
    for name, field in answer["properties"].items():
        inner = field.get("items", field).get("$ref", "").rpartition("/")[2]
        inside = _fields(schema["components"]["schemas"][inner], schema) if inner else ""
        many = "a list, each with " * ("items" in field)
        names.append(f"`{name}`" + f" ({many}{inside})" * bool(inside))
    return ", ".join(names)


def refusals() -> str:
    """List every refusal that stands in the server's source, by status and code."""
    import crowdml.server
    from crowdml.server.refusals import KINDS
    from crowdml.server.tasks.enrolment import NOT_JOINED

    found = {(status, code, text) for status, code, text, _ in NOT_JOINED.values()}
    found |= {(status, code, "") for status, code in KINDS.values()}
    for path in sorted(Path(crowdml.server.__path__[0]).rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Refusal":
                if len(call.args) == 3 and all(isinstance(argument, ast.Constant) for argument in call.args[:2]):
                    status, code = (typing.cast(ast.Constant, argument).value for argument in call.args[:2])
                    found.add((int(str(status)), str(code), _text(call.args[2])))
    by_code: dict[tuple[int, str], list[str]] = {}
    for status, code, text in sorted(found):
        by_code.setdefault((status, code), []).extend([text] * bool(text))
    rows = ["| status | code | message |", "|---|---|---|"]
    rows += [f"| {status} | `{code}` | {'; '.join(texts)} |" for (status, code), texts in by_code.items()]
    return "\n".join(rows)


def _text(message: ast.expr) -> str:
    """Write a message with an ellipsis where a value goes in."""
    if isinstance(message, ast.JoinedStr):
        return "".join(_text(part) for part in message.values)
    return str(message.value) if isinstance(message, ast.Constant) else "…"
