"""Making a task: from fields or from a file, then a look at what owners would be told, then a draft or an open task.

Nothing is stored before the last step. What was typed goes from page to page inside the forms, so whatever is wrong is
said where it was typed, and nothing typed is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Literal

from fastapi import Request, Response

from crowdml.core import BadInput, record
from crowdml.server.http.control import described
from crowdml.server.http.form_bodies import Form
from crowdml.server.pages.operator.session_gate import In, Sent, Signed, go_to, show
from crowdml.server.pages.operator.task_fields import FURTHER, Group, fields, groups, proposals
from crowdml.server.pages.operator.task_form import place, to_toml, written
from crowdml.server.refusals import Refusal
from crowdml.server.tasks.coordinator import Coordinator
from crowdml.server.tasks.new_task import TaskRequest, write_public_set
from crowdml.server.tasks.operator.operator_sessions import Session
from crowdml.task import parse
from crowdml.task.averaging_terms import warnings
from crowdml.task.explanation import Explanation, explain
from crowdml.task.live_task import fit_public, require_live
from crowdml.task.task import Task
from crowdml.task.task_errors import spell
from crowdml.task.task_file import checked, computable, read_content
from crowdml.wire.signed_task import Arrays

NAME_TAKEN = "name-taken"
LONGEST_FILE = 1 << 20
Way = Literal["form", "file"]
Typed = Mapping[str, str]


@record
class NewTaskPage:
    """What the page of a new task shows.

    Attributes:
        groups: Fields of the form.
        typed: What stands in them, by key; in `file` and `changes` of the other form.
        errors: What is wrong, by key: at most one, as the command line has it.
        labels: What fields are called, by key.
    """

    groups: tuple[Group, ...]
    typed: Mapping[str, str]
    errors: Mapping[str, str]
    labels: Mapping[str, str]


@record
class PreviewPage:
    """What the preview shows.

    Attributes:
        way: Which form it came from.
        task: The task that would be made.
        explanation: What owners would be told, as `crowdml privacy explain` has it.
        file: The task file.
        typed: What was typed, to go on with.
        warnings: What is allowed and perhaps not meant.
    """

    way: Way
    task: Task
    explanation: Explanation
    file: str
    typed: Mapping[str, str]
    warnings: tuple[str, ...]


@record
class _Checked:
    """A task that can be made."""

    task: Task
    explanation: Explanation
    file: str
    changes: tuple[str, ...] = ()
    arrays: tuple[Arrays, ...] = ()


@described("Make a task from fields")
async def form_page(session: Signed) -> Response:
    """Show the form with its proposals."""
    return _form(session, proposals())


@described("Make a task from a file")
async def file_page(session: Signed) -> Response:
    """Show the place for a task file."""
    return _file(session, {"file": "", "changes": ""})


@described("Check, show or make what was typed")
async def take_form(request: Request, session: Signed, sent: Sent, coordinator: In) -> Response:
    """Take what was typed into fields: show it again, say what is wrong with it, show what it means, or make it."""
    typed = {field.key: sent.text(field.key) for field in fields()}
    if sent.text("step") == "edit":
        return _form(session, typed)
    try:
        found = await asyncio.to_thread(_check_form, typed, coordinator)
        return await _go_on(request, session, sent, coordinator, "form", typed, found)
    except BadInput as error:
        return _form(session, typed, {place(error, typed): _words(error)}, 422)
    except Refusal as refusal:
        return _form(session, typed, {_refused_at(refusal, "name"): str(refusal)}, refusal.status)


@described("Check, show or make a task file")
async def take_file(request: Request, session: Signed, sent: Sent, coordinator: In) -> Response:
    """Take a task file: show it again, say what is wrong with it, show what it means, or make it."""
    typed = {"file": sent.text("file"), "changes": sent.text("changes")}
    if sent.text("step") == "edit":
        return _file(session, typed)
    try:
        typed["file"] = _uploaded(sent) or typed["file"]
        found = await asyncio.to_thread(_check_file, typed, coordinator)
        return await _go_on(request, session, sent, coordinator, "file", typed, found)
    except BadInput as error:
        where = "changes" if error.where.partition(":")[0] == "changes" else "file"
        return _file(session, typed, {where: _placed_words(error)}, 422)
    except Refusal as refusal:
        return _file(session, typed, {"file": str(refusal)}, refusal.status)


async def _go_on(
    request: Request,
    session: Session,
    sent: Form,
    coordinator: Coordinator,
    way: Way,
    typed: Mapping[str, str],
    found: _Checked,
) -> Response:
    """Show what a task means, or make it if that was seen."""
    step = sent.text("step")
    if step not in ("draft", "open"):
        page = PreviewPage(
            way=way,
            task=found.task,
            explanation=found.explanation,
            file=found.file,
            typed=typed,
            warnings=tuple(warnings(found.task)),
        )
        return show(session, "preview.html", page, section="new")
    wanted = TaskRequest(file=found.file, changes=found.changes, arrays=found.arrays, draft=step == "draft")
    async with request.app.state.creating:
        stored = await asyncio.to_thread(coordinator.create, wanted, "portal")
        running = coordinator.start(stored)
    return go_to(f"/operator/tasks/{running.name}")


def _check_form(typed: Mapping[str, str], coordinator: Coordinator) -> _Checked:
    content = written(typed)
    file = to_toml(content)
    task = checked(content, spell)
    return _check(task, file, (), coordinator)


def _check_file(typed: Mapping[str, str], coordinator: Coordinator) -> _Checked:
    if not typed["file"].strip():
        raise BadInput("there is no task file yet", hint="paste one, or choose a file")
    if len(typed["file"]) > LONGEST_FILE:
        raise BadInput(f"a task file has {LONGEST_FILE} characters at most")
    changes = tuple(line.strip() for line in typed["changes"].splitlines() if line.strip())
    read_content(typed["file"], "the file", changes, "changes:")
    task = parse(typed["file"], "the file", changes, "changes:")
    return _check(task, typed["file"], changes, coordinator)


def _check(task: Task, file: str, changes: tuple[str, ...], coordinator: Coordinator) -> _Checked:
    """Refuse whatever could not be made, and say what it would mean."""
    require_live(task)
    if task.name in coordinator.tasks:
        raise Refusal(409, NAME_TAKEN, f"a task named {task.name} exists: choose another name")
    arrays = tuple(fit_public(task, None))
    write_public_set(task, None)
    with computable():
        return _Checked(task=task, explanation=explain(task), file=file, changes=changes, arrays=arrays)


def _uploaded(sent: Form) -> str:
    """Return the text of an uploaded file; nothing where none was chosen."""
    content = sent.files.get("upload", b"")
    if len(content) > LONGEST_FILE:
        raise BadInput(f"a task file has {LONGEST_FILE} bytes at most, this one has {len(content)}")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput("this is not a file of text in UTF-8", hint="save it as UTF-8") from None
    if not all(letter.isprintable() or letter in "\t\r\n" or ord(letter) > 0x9F for letter in text):
        raise BadInput("this is not a file of text: there are control characters in it")
    return text.replace("\r\n", "\n")


def _form(session: Session, typed: Typed, errors: Typed | None = None, status: int = 200) -> Response:
    labels = {field.key: field.label for field in fields()}
    page = NewTaskPage(groups=groups(), typed=typed, errors=errors or {}, labels=labels)
    return show(session, "new-task.html", page, section="new", status=status)


def _file(session: Session, typed: Typed, errors: Typed | None = None, status: int = 200) -> Response:
    labels = {"file": "Task file", "changes": "Changes"}
    page = NewTaskPage(groups=(), typed=typed, errors=errors or {}, labels=labels)
    return show(session, "new-task-file.html", page, section="new", status=status)


def _words(error: BadInput) -> str:
    return "\n".join(part for part in (error.what, error.hint) if part)


def _placed_words(error: BadInput) -> str:
    return f"{error.where}: {_words(error)}" if error.where else _words(error)


def _refused_at(refusal: Refusal, where: str) -> str:
    return where if refusal.code == NAME_TAKEN else FURTHER
