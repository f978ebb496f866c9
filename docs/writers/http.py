"""The page of HTTP routes, from the server's own description and from the refusals in its source."""

from __future__ import annotations

import ast
import typing
from pathlib import Path
from typing import Any

from docs.writers.phrases import GENERATED, sentence

HTTP_INTRODUCTION = """\
What a server answers, from its own `/openapi.json`. Every request and every answer carries `Crowdml-Protocol: 1`.

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
    from crowdml.server.framework import describe
    from crowdml.server.openapi import REFUSED

    schema = describe()
    routes = [(path, method, own) for path, methods in schema["paths"].items() for method, own in methods.items()]
    parts = [GENERATED, "# HTTP", HTTP_INTRODUCTION, "## Routes"]
    rows = ["| route | who | what |", "|---|---|---|"]
    for path, method, own in routes:
        rows.append(f"| `{method.upper()} {path}` | {_who(own)} | {own['summary']} |")
    parts.append("\n".join(rows))
    for path, method, own in routes:
        parts += [f"## `{method.upper()} {path}`", f"{own['summary']}. Who: {_who(own)}."]
        parts += [text for text in (own.get("description", ""), _inputs(own, schema), _answers(own, schema)) if text]
    usual = [f"| {status} | {text} |" for status, text in REFUSED.items()]
    parts += ["## Refusals", HTTP_ERRORS.strip(), "\n".join(["| status | meaning |", "|---|---|", *usual])]
    parts += ["What `code` and `message` may be:", refusals()]
    return "\n\n".join(parts) + "\n"


def _who(operation: dict[str, Any]) -> str:
    return " or ".join(name for own in operation.get("security", []) for name in own) or "anyone"


def _inputs(operation: dict[str, Any], schema: dict[str, Any]) -> str:
    """List parameters, headers and fields of the body."""
    rows = [
        (own["name"], own["in"], own["schema"], own.get("required", False), own.get("description", ""))
        for own in operation.get("parameters", [])
    ]
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        if kind != "application/json":
            rows.append(("body", kind, {}, True, "a message of exactly the expected size"))
            continue
        body = schema["components"]["schemas"][content["schema"]["$ref"].rpartition("/")[2]]
        for name, own in body["properties"].items():
            rows.append((name, "body", own, name in body.get("required", ()), own.get("description", "")))
    if not rows:
        return ""
    table = ["| name | in | value | meaning |", "|---|---|---|---|"]
    for name, place, own, required, text in rows:
        needed = "" if required else "; may be left out"
        table.append(f"| `{name}` | {place} | {_json_words(own)}{needed} | {sentence(text)} |")
    return "\n".join(table)


def _json_words(own: dict[str, Any]) -> str:
    """Say what a JSON value may be."""
    if "anyOf" in own:
        return " or ".join(_json_words(choice) for choice in own["anyOf"] if choice.get("type") != "null")
    if "enum" in own:
        return " or ".join(f"`{value}`" for value in own["enum"])
    if own.get("type") == "array":
        return f"list of {_json_words(own['items'])}"
    words = {"integer": "whole number", "string": "text", "boolean": "`true` or `false`", "object": "table"}
    low, high = own.get("minimum"), own.get("maximum")
    limits = f" from {int(low)} to {int(high)}" if low is not None and high is not None else ""
    return words.get(own.get("type", ""), "bytes") + limits


def _answers(operation: dict[str, Any], schema: dict[str, Any]) -> str:
    """List what comes back: a sentence, and the fields where there are any; usual refusals by their numbers alone."""
    from crowdml.server.openapi import REFUSED

    rows, usual = [], []
    for status, own in sorted(operation["responses"].items()):
        if own["description"] == REFUSED.get(int(status)):
            usual.append(status)
            continue
        content: dict[str, Any] = own.get("content", {})
        reference = content.get("application/json", {}).get("schema", {}).get("$ref", "")
        text = own["description"]
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
    for name, own in answer["properties"].items():
        inner = own.get("items", own).get("$ref", "").rpartition("/")[2]
        inside = _fields(schema["components"]["schemas"][inner], schema) if inner else ""
        many = "a list, each with " * ("items" in own)
        names.append(f"`{name}`" + f" ({many}{inside})" * bool(inside))
    return ", ".join(names)


def refusals() -> str:
    """List every refusal that stands in the server's source, by status and code."""
    from crowdml.server import answers, coordinator

    found = {(status, code, text) for status, code, text, _ in coordinator._NOT_JOINED.values()}
    found |= {(status, code, "") for status, code in answers._KINDS.values()}
    for path in sorted(Path(answers.__file__).parent.rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Refusal":
                if len(call.args) == 3 and all(isinstance(own, ast.Constant) for own in call.args[:2]):
                    status, code = (typing.cast(ast.Constant, own).value for own in call.args[:2])
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
        return "".join(_text(own) for own in message.values)
    return str(message.value) if isinstance(message, ast.Constant) else "…"
