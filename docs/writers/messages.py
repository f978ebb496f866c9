"""The page of messages: every error that a user can meet, with what would be right, from the source itself."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import crowdml
from crowdml.core import record
from docs.writers.browser_messages import browser_section
from docs.writers.phrases import GENERATED

SOURCE = Path(crowdml.__path__[0])
MET_BY_USERS = (
    "BadInput",
    "TermsViolated",
    "CapReached",
    "BudgetExhausted",
    "MalformedMessage",
    "NotAuthorised",
    "TaskClosed",
    "Unreachable",
    "SumAborted",
    "LateMessage",
    "ServerRefused",
    "DemoFailed",
    "DatabaseTaken",
    "WorkerLost",
    "StoreConflict",
    "StoreFailed",
)
"""Classes of errors whose words reach somebody; what a server refuses over HTTP stands on the page on HTTP."""

INTRODUCTION = """\
Every error message of crowdml, and what it says would be right. To find yours, search this page for the words of it
that are not names, numbers or paths: those are shown as an ellipsis. A value of the wrong kind is reported as
`should be …, not …`, whatever the key. [Read errors](../how-to/read-errors.md) explains the common messages and how
a message is laid out, and [HTTP](http.md#refusals) lists what a server refuses, by status and code.

| kind | means |
|---|---|
| `BadInput` | something that you gave is wrong: exit code 2, and 422 over HTTP |
| `TermsViolated`, `CapReached` | a task asks for more than the owner accepted, or than the owner's cap leaves |
| `BudgetExhausted` | the ledger cannot cover the next release |
| `MalformedMessage` | bytes are not the message that they should be |
| `NotAuthorised` | no token, or one that does not open this door |
| `TaskClosed` | the task takes no more check-ins |
| `Unreachable`, `ServerRefused` | the server does not answer, or says no |
| `SumAborted`, `LateMessage` | a secure sum, or a batch of a sliced net, was given up; the next one goes on |
| `DemoFailed`, `WorkerLost` | a process that was started has ended |
| `DatabaseTaken`, `StoreConflict`, `StoreFailed` | the server's database is taken, has changed, or fails |"""


BROWSER = """\
What the page of a browser device says when something is not done, by the reason that it gives to programs (`Refusal` in
`web/core/refusal.ts`). Each reason has what an owner can do, and a sentence that needs something else says so behind an
arrow. Whatever it says, an acknowledged check-in is not lost, and nothing is spent twice."""


@record
class Message:
    """One thing that may be said.

    Attributes:
        kind: The class of the error.
        text: Its words, with an ellipsis for every value.
        hint: What would be right; empty where nothing is suggested.
    """

    kind: str
    text: str
    hint: str


def messages_page(source: Path = SOURCE) -> str:
    """List all messages, by the part of the code that says them, in the order of the alphabet."""
    parts = [GENERATED, "# Messages", INTRODUCTION]
    for area, found in messages(source).items():
        rows = ["| message | what would be right | kind |", "|---|---|---|"]
        for message in sorted(found, key=_place):
            rows.append(f"| {_cell(message.text)} | {_cell(message.hint)} | `{message.kind}` |")
        parts += [f"## {area}", "\n".join(rows)]
    parts += ["## In the browser", BROWSER, browser_section()]
    return "\n\n".join(parts) + "\n"


def messages(source: Path = SOURCE) -> dict[str, set[Message]]:
    """Return all messages by the folder of the source in which they stand."""
    found: dict[str, set[Message]] = defaultdict(set)
    for path in sorted(source.rglob("*.py")):
        folder = path.relative_to(source).parts[0].removesuffix(".py")
        area = "Commands" if folder == "cli" else folder.replace("_", " ").capitalize()
        text = path.read_text(encoding="utf-8")
        said = set(_said(ast.parse(text))) if any(name in text for name in MET_BY_USERS) else set()
        if said:
            found[area] |= said
    return dict(found)


def _said(module: ast.Module) -> Iterator[Message]:
    """Find what is raised; a name is what was assigned to it in the same function."""
    functions = [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    for scope in [module, *functions]:
        nodes = list(_inside(scope))
        if not any(map(_is_met, nodes)):
            continue
        known: dict[str, list[ast.expr]] = defaultdict(list)
        for node in nodes:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                known[node.targets[0].id].append(node.value)
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
                for name, value in _pairs(node.targets[0], node.value):
                    known[name].append(value)
        for node in nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in MET_BY_USERS:
                hints = [word.value for word in node.keywords if word.arg == "hint"]
                for text in _texts(node.args[0], known) if node.args else ():
                    yield from (Message(kind=node.func.id, text=text, hint=hint) for hint in _hints(hints, known))


def _is_met(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in MET_BY_USERS


def _inside(scope: ast.AST) -> Iterator[ast.AST]:
    """Walk through a function without the functions in it."""
    for child in ast.iter_child_nodes(scope):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
            yield from _inside(child)


def _pairs(target: ast.Tuple, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(value, ast.Tuple):
        for name, part in zip(target.elts, value.elts, strict=False):
            if isinstance(name, ast.Name):
                yield name.id, part


def _hints(hints: list[ast.expr], known: dict[str, list[ast.expr]]) -> list[str]:
    """Return every hint that may stand with a message; a hint that is worked out is left out."""
    return [text for hint in hints for text in _texts(hint, known)] or [""]


def _texts(text: ast.expr, known: dict[str, list[ast.expr]]) -> list[str]:
    """Return the texts that an expression may be; none of its own where it passes on what another has said."""
    if isinstance(text, ast.IfExp):
        return [*_texts(text.body, known), *_texts(text.orelse, known)]
    if isinstance(text, ast.BoolOp):
        return [one for value in text.values for one in _texts(value, known)]
    if isinstance(text, ast.Name):
        return [one for value in known.get(text.id, []) for one in _texts(value, {})]
    written = _written(text)
    return [written] if any(letter.isalpha() for letter in written) else []


def _written(text: ast.expr) -> str:
    """Write an expression with an ellipsis where a value goes in."""
    if isinstance(text, ast.JoinedStr):
        return "".join(map(_written, text.values))
    if isinstance(text, ast.BinOp) and isinstance(text.op, ast.Add):
        return _written(text.left) + _written(text.right)
    if isinstance(text, ast.Call) and isinstance(text.func, ast.Name) and text.func.id == "install":
        return f"pip install '…[{_written(text.args[0])}]'"
    return str(text.value) if isinstance(text, ast.Constant) and isinstance(text.value, str) else "…"


def _place(message: Any) -> tuple[str, ...]:
    """Say where a message stands among others; no two stand in the same place."""
    return message.text.lstrip('"…').lower(), message.kind, message.hint, message.text


def _cell(text: str) -> str:
    """Keep a message from being read as Markdown."""
    words = " ".join(text.split())
    for letter in "\\`*_[]<>|":
        words = words.replace(letter, f"\\{letter}")
    return words
