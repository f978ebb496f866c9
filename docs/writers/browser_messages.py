"""What the browser device says when it refuses, from its own source, with what an owner can do about it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from crowdml.core import record

WEB = Path(__file__).parents[2] / "web"
FOLDERS = ("app", "core", "sensing")

REMEDIES = {
    "bad-link": "Scan the code again, or copy the whole link.",
    "used": "Ask for a new invite. If it was this browser that had joined, and it was erased since, a recovery "
    "code brings the device back.",
    "bad-task": "Nothing was sent. Ask the operator for a new invite, by a way on which you know each other.",
    "not-admitted": "Join with a Python device: the page of the invite shows the commands.",
    "terms": "Choose within what the task offers. If a task has changed since you joined, ask the operator why; "
    "nothing is sent until it is the one that you accepted.",
    "cap": "Raise your limit over all tasks, or withdraw from another task first.",
    "exhausted": "Nothing to mend: the promise is kept. Where it is about samples, new ones can still be sent.",
    "few-rows": "Collect the rows that are missing.",
    "bad-row": "Mend the row, or the file, and add it again: nothing of it was kept.",
    "ended": "Nothing to do. The model stays usable on the page.",
    "waiting": "Leave the page open: it goes on by itself, and you can collect meanwhile.",
    "revoked": "Ask the operator for a new invite, or go on in the browser that the device was moved to.",
    "offline": "Leave the page open: it tries again, and nothing is spent twice. If it lasts, look at your network.",
    "set-back": "Ask the operator whether a backup was restored; until it is signed, nothing is sent.",
    "ledger-lost": "Use your recovery code, if you have made one. Otherwise your part ends here: a lost ledger must "
    "not become a second budget.",
    "restored": "Confirm on the page, but only if the operator told you of the backup. What was spent stays spent.",
    "refused": "Nothing is lost. If it comes again, show the operator what the page says.",
    "malformed": "Reload the page, so that it is as new as the server. If that does not help, show the operator what "
    "it says.",
    "busy": "Close the other tab, and this one takes over; or go on there.",
    "unsupported": "Open the invite by https in a current browser, in an ordinary window; or join with a Python "
    "device.",
    "bad-code": "Compare code and file with those that were made together, and give them again.",
}
"""What an owner can do, by the reason of a refusal."""

PARTICULAR = {
    "this device is paused by its owner": "Press Resume on the page.",
    "a limit has an ε above 0": "Give such a limit.",
    "two rows at once": "Add the row again.",
    "this browser has a ledger already": "Use the code in another browser, or in a new profile of this one.",
    "the ledger of this browser holds several tasks": "Go on in this browser: a device moves only where it is alone.",
}
"""What helps with one sentence, by its beginning, where the reason's remedy would not."""

_SPACE = re.compile(r"\s+")
_CALL = re.compile(r"\b(?:new Refusal|new Error|require|refuse)\(")
_WAITING = re.compile(r"\bwhy: (?=[\"`])")
_NAME = re.compile(r"[A-Za-z_]\w*$")
_STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
_PATTERN = re.compile(r"/(?:[^/\\\[\n]|\\.|\[(?:[^\]\\]|\\.)*\])+/\w*")
_COMMENT = re.compile(r"/\*.*?\*/|(?<![:\"'])//[^\n]*", re.S)
FIXED = {"refuse": "bad-row", "new Error": "malformed"}
_PAIRS = {"(": ")", "[": "]", "{": "}"}


@record
class Refused:
    """One sentence of the browser device.

    Attributes:
        reason: The word for programs, of `web/core/refusal.ts`.
        text: The sentence, with an ellipsis for every value.
    """

    reason: str
    text: str


def reasons(web: Path = WEB) -> dict[str, str]:
    """Return the reasons that the browser device knows, with what each means."""
    source = (web / "core" / "refusal.ts").read_text(encoding="utf-8")
    return dict(re.findall(r'^  \| "([\w-]+)";? // (.+)$', source, re.M))


def refusals(web: Path = WEB) -> set[Refused]:
    """Find every sentence that a refusal may have."""
    known = set(reasons(web))
    found = set()
    for folder in FOLDERS:
        for path in sorted((web / folder).rglob("*.ts")):
            source = _COMMENT.sub("", path.read_text(encoding="utf-8"))
            if path.name != "refusal.ts":
                found |= set(_refused(source, known))
    return found


def browser_section(web: Path = WEB) -> str:
    """Write the sentences by reason, each reason with what it means and with its remedy."""
    said, parts = refusals(web), []
    for reason, meaning in reasons(web).items():
        texts = sorted(
            (each.text for each in said if each.reason == reason), key=lambda text: text.lstrip('"…').lower()
        )
        lines = [f"- {_plain(text)}{_particular(text)}" for text in texts]
        parts += [f"### `{reason}`: {meaning}", REMEDIES[reason], "\n".join(lines)]
    return "\n\n".join(parts)


def _particular(text: str) -> str:
    return "".join(f" → {remedy}" for start, remedy in PARTICULAR.items() if text.startswith(start))


def _refused(source: str, known: set[str]) -> Iterator[Refused]:
    for call in _CALL.finditer(source):
        before = source[: call.start()].rstrip()
        if before.endswith("function"):
            continue
        arguments = _arguments(source, call.end())
        name = call[0][:-1]
        if name in FIXED:
            reason, text = f'"{FIXED[name]}"', arguments[0]
        elif name == "require":
            reason, text = (arguments[2] if len(arguments) > 2 else '"malformed"'), arguments[1]
        else:
            reason, text = arguments
        given = [word for word in _STRING.findall(reason) if word in known]
        if not given and _NAME.fullmatch(reason):
            yield from _by_reason(source, text, known)
            continue
        # A name is what was last assigned to it above.
        for word in given:
            yield from (Refused(reason=word, text=each) for each in _texts(text, source[: call.start()]))

    for outcome in _WAITING.finditer(source):
        text = source[outcome.end() : _end_of_text(source, outcome.end()) + 1]
        yield from (Refused(reason="waiting", text=each) for each in _texts(text, source[: outcome.start()]))
    if "const WAITING" in source:
        why = _assigned("why", source).partition("??")[2]
        for text in (_assigned("WAITING", source), why):
            yield from (Refused(reason="waiting", text=each) for each in _texts(text, source))


def _by_reason(source: str, text: str, known: set[str]) -> Iterator[Refused]:
    """Read a table of sentences by reason, and what stands where the table has none."""
    table, _, otherwise = text.partition("[")
    for each in _texts(otherwise.partition("??")[2], source):
        yield Refused(reason="refused", text=each)
    written = _assigned(table.strip(), source)
    for key in re.finditer(r"[{,]\s*([\w-]+)\s*(?::\s*(`[^`]*`|\"[^\"]*\"))?", written):
        if key[1] in known:
            yield from (Refused(reason=key[1], text=each) for each in _texts(key[2] or key[1], source))


def _arguments(source: str, start: int, end: str = ")") -> list[str]:
    """Cut what stands in the brackets of a call, or of a list, at its commas."""
    arguments, at, begun, open_ = [], start, start, [end]
    while open_:
        letter = source[at]
        if letter in "\"'`":
            at = _end_of_text(source, at)
        elif letter == "/" and re.search(r"[(,=!&|?:]\s*$", source[:at]):
            found = _PATTERN.match(source, at)
            if found is None:
                raise ValueError(f"a regular expression has no end: {source[at : at + 40]}")
            at = found.end() - 1
        elif letter in _PAIRS:
            open_.append(_PAIRS[letter])
        elif letter == open_[-1]:
            open_.pop()
        if (letter == "," and len(open_) == 1) or not open_:
            arguments.append(source[begun:at].strip())
            begun = at + 1
        at += 1
    return [argument for argument in arguments if argument]


def _end_of_text(source: str, at: int) -> int:
    """Return where a string, or a template with its values, ends."""
    mark, at = source[at], at + 1
    while source[at] != mark:
        if source[at] == "\\":
            at += 1
        elif mark == "`" and source.startswith("${", at):
            at = _end_of_value(source, at + 2)
        at += 1
    return at


def _end_of_value(source: str, at: int) -> int:
    depth = 1
    while True:
        if source[at] in "\"'`":
            at = _end_of_text(source, at)
        depth += {"{": 1, "}": -1}.get(source[at], 0)
        if not depth:
            return at
        at += 1


def _texts(expression: str, source: str, deep: int = 0) -> list[str]:
    """Return the sentences that an expression may be; a name is followed to where it is assigned."""
    expression = expression.strip()
    if _NAME.fullmatch(expression):
        assigned = _assigned(expression, source)
        return _texts(assigned, source, deep + 1) if assigned and deep < 3 else []
    found: list[str] = []
    at = 0
    while at < len(expression):
        if expression[at] in "\"'`":
            end = _end_of_text(expression, at)
            if not re.search(r"[=!]==\s*$", expression[:at]):
                words = _written(expression[at + 1 : end], source, deep)
                joins = found and re.search(r"[\"'`]\s*\+\s*$", expression[:at])
                found[-1:] = [found[-1] + words] if joins else [*found[-1:], words]
            at = end
        at += 1
    return [text for text in found if " " in text.strip()]


def _assigned(name: str, source: str) -> str:
    """Return what was last assigned to a constant, up to the semicolon."""
    for names in re.finditer(r"\bconst \[([\w, ]+)\] = \[", source):
        if name in names[1].split(", "):
            return _arguments(source, names.end(), "]")[names[1].split(", ").index(name)]
    found = list(re.finditer(rf"\bconst {name}\b[^=;]*=(?!>)\s*", source))
    if not found:
        return ""
    at = start = found[-1].end()
    while source[at] != ";":
        if source[at] in "\"'`":
            at = _end_of_text(source, at)
        at += 1
    return source[start:at]


def _written(text: str, source: str, deep: int) -> str:
    """Put an ellipsis for every value, but the words of a constant that is nothing but words."""
    made, at = "", 0
    while at < len(text):
        if text.startswith("${", at):
            end = _end_of_value(text, at + 2)
            value = text[at + 2 : end].strip()
            words = _texts(value, source, deep + 1) if _NAME.fullmatch(value) and deep < 3 else []
            made += words[0] if len(words) == 1 else "…"
            at = end
        elif text[at] == "\\":
            at += 1
            made += text[at]
        else:
            made += text[at]
        at += 1
    return _SPACE.sub(" ", made)


def _plain(text: str) -> str:
    """Keep a sentence from being read as Markdown."""
    for letter in "\\`*_[]<>|":
        text = text.replace(letter, f"\\{letter}")
    return text
