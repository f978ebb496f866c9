"""Making a task by portal: the command line's words at the field concerned, and nothing typed is lost."""

from __future__ import annotations

import html
import re
import tomllib
from typing import Any

import pytest

from crowdml.core import BadInput
from crowdml.server.pages.operator.task_fields import FURTHER, fields, proposals
from crowdml.server.pages.operator.task_form import place, to_toml, written
from crowdml.task.task_errors import spell
from crowdml.task.task_file import checked
from tests.support.portal import Browser, signed_in
from tests.support.served import TASK

GOOD = proposals() | {
    "name": "steps",
    "objective": "Tell walking from standing",
    "data.columns": "age\nsteps",
    "data.labels": "standing\nwalking",
}
NUMBER = GOOD | {"data.labels": "", "data.target.name": "warmth", "data.target.low": "5", "data.target.high": "35"}
NUMBER |= {"model.kind": "linear"}
ROUNDS = GOOD | {"algorithm.kind": "fedavg", "algorithm.per-round": "3"}

WRONG = {
    "name": (GOOD, "Not A Name"),
    "objective": (GOOD, None),
    "data.columns": (GOOD, "age\nage"),
    "data.features": (GOOD, "seven"),
    "data.labels": (GOOD, "only one"),
    "data.target.name": (NUMBER, ""),
    "data.target.low": (NUMBER, "cold"),
    "data.target.high": (NUMBER, "1e99"),
    "data.target.unit": (NUMBER, None),
    "data.transform": (GOOD, '[{ kind = "nothing" }]'),
    "model.kind": (GOOD, "linear"),
    "model.regularisation": (GOOD, "-1"),
    "model.layers": (GOOD | {"model.kind": "mlp"}, "[0]"),
    "algorithm.kind": (GOOD, "nothing"),
    "algorithm.batch": (GOOD, "0"),
    "algorithm.per-round": (ROUNDS, "0"),
    "algorithm.epochs": (ROUNDS, "many"),
    "algorithm.local-batch": (ROUNDS, "-3"),
    "algorithm.rate.kind": (GOOD, "nothing"),
    "algorithm.rate.c": (GOOD, "fast"),
    "privacy.mode": (GOOD, "magic"),
    "privacy.unit": (GOOD, "planet"),
    "privacy.mechanism": (GOOD, "fog"),
    "privacy.epsilon": (GOOD, "-8"),
    "privacy.delta": (GOOD, "2"),
    "privacy.clip": (GOOD, "0"),
    "privacy.max-uses": (GOOD, "0.5"),
    "privacy.statistics-epsilon": (GOOD, "-1"),
    "stop.max-releases": (GOOD, "0"),
    "stop.max-versions": (GOOD, "none"),
    "stop.error-below": (GOOD, "7"),
    FURTHER: (GOOD, "crowd.nonsense=1"),
}
"""For every field: what else is typed, and what is wrong in it; None: whatever is typed there is right."""


@pytest.fixture(scope="module")
def browser(shared: Any) -> Browser:
    return signed_in(shared)


def shown_error(page: str) -> tuple[str, str]:
    """Return the field that a page calls wrong, and what it says of it."""
    found = re.findall(r'<p class="error" id="([^"]+)-error">(.*?)</p>', page, re.DOTALL)
    assert len(found) == 1, found
    return found[0][0], html.unescape(found[0][1])


def shown_values(page: str) -> dict[str, str]:
    """Return what stands in the fields of a form."""
    found = {
        name: html.unescape(value)
        for name, value in re.findall(r'<input id="([^"]+)" name="[^"]+" type="text" value="([^"]*)"', page)
    }
    areas = re.findall(r'<textarea id="([^"]+)"[^>]*>(.*?)</textarea>', page, re.DOTALL)
    found |= {name: html.unescape(value).removeprefix("\n") for name, value in areas}
    for name, options in re.findall(r'<select id="([^"]+)"[^>]*>(.*?)</select>', page, re.DOTALL):
        chosen = re.search(r'<option value="([^"]*)" selected>', options)
        found[name] = chosen[1] if chosen else ""
    return found


def test_every_field_is_tried() -> None:
    assert list(WRONG) == [field.key for field in fields()]


@pytest.mark.parametrize("key", [key for key, (_, wrong) in WRONG.items() if wrong is not None])
def test_wrong_input_is_answered_at_its_field_and_nothing_is_lost(browser: Browser, key: str) -> None:
    base, wrong = WRONG[key]
    typed = base | {key: wrong or ""}
    answer = browser.post("/operator/new-task", typed | {"step": "check"})
    where, words = shown_error(answer.text)
    assert answer.status_code == 422 and where == key, (where, words)
    with pytest.raises(BadInput) as caught:
        content = written(typed)
        checked(content, spell).calibrated  # noqa: B018  what a command would meet
        raise AssertionError("a command would take it")
    assert words.startswith(caught.value.what)
    kept = shown_values(answer.text)
    options = {field.key: dict(field.options) for field in fields()}
    for name, value in typed.items():
        # What is no choice cannot be chosen in a browser; whoever sends it by hand is told, and chooses again.
        assert kept[name] == value or (options[name] and value not in options[name]), name
    assert f'id="{key}"' in answer.text and 'aria-invalid="true" autofocus' in answer.text
    assert f'href="#{key}"' in answer.text and f"{key}-error" in answer.text


@pytest.mark.parametrize(
    "typed", [GOOD, NUMBER, ROUNDS, GOOD | {"privacy.mode": "none"}], ids=["labels", "number", "rounds", "none"]
)
def test_a_task_is_shown_before_it_is_made(browser: Browser, typed: dict[str, str]) -> None:
    answer = browser.post("/operator/new-task", typed | {"step": "check"})
    assert answer.status_code == 200, shown_error(answer.text)
    assert "What owners of “steps” would be told" in answer.text and "What leaves a device" in answer.text
    assert "steps" not in [task["task"] for task in browser.app.send("GET", "/v1/tasks").json()["tasks"]]
    hidden = dict(re.findall(r'<textarea hidden name="([^"]+)"[^>]*>\n(.*?)</textarea>', answer.text, re.DOTALL))
    assert {name: html.unescape(value) for name, value in hidden.items()} == typed
    again = browser.post("/operator/new-task", typed | {"step": "edit"})
    assert shown_values(again.text) == typed and 'class="error"' not in again.text


def test_a_draft_is_made_then_opened(make_app: Any) -> None:
    browser = signed_in(make_app())
    answer = browser.post("/operator/new-task", GOOD | {"step": "draft"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/operator/tasks/steps")
    assert browser.app.show("steps")["state"] == "draft"
    assert "What owners are promised" in browser.get("/operator/tasks/steps/state/open").text
    assert browser.post("/operator/tasks/steps/state/open").status_code == 303
    assert browser.app.show("steps")["state"] == "open"
    twice = browser.post("/operator/new-task", GOOD | {"step": "open"})
    assert shown_error(twice.text) == ("name", "a task named steps exists: choose another name")
    assert twice.status_code == 409


def test_further_keys_are_those_of_set(browser: Browser) -> None:
    typed = GOOD | {"name": "masked", FURTHER: 'algorithm.buffer=50\n\ndata.units={ age = "years" }'}
    answer = browser.post("/operator/new-task", typed | {"step": "check"})
    assert answer.status_code == 200 and "buffer = 50" in answer.text
    bad = browser.post("/operator/new-task", typed | {FURTHER: "what is this", "step": "check"})
    assert shown_error(bad.text)[0] == FURTHER


def test_a_file_may_be_pasted_or_uploaded(make_app: Any) -> None:
    browser = signed_in(make_app())
    path = "/operator/new-task/file"
    assert browser.post(path, {"file": TASK, "changes": "", "step": "check"}).status_code == 200
    secret = {"form-secret": browser.secret(), "file": "", "changes": "name=uploaded", "step": "check"}
    marked = b"\xef\xbb\xbf" + TASK.replace("\n", "\r\n").encode()
    answer = browser.post_raw(path, secret, files={"upload": ("walk.toml", marked, "application/toml")})
    assert answer.status_code == 200 and "“uploaded”" in answer.text
    made = browser.post(path, {"file": TASK, "changes": "name=pasted", "step": "open"})
    assert made.status_code == 303 and browser.app.show("pasted")["state"] == "open"


@pytest.mark.parametrize(
    "content",
    [
        TASK.encode("utf-16"),
        b"\xff\xfe\x00",
        b"\x00\x01\x02",
        b"PK\x03\x04",
        "name = 'ü'".encode("latin-1"),
        b"\x1b[2J",
    ],
)
def test_an_upload_that_is_no_text_is_refused(browser: Browser, content: bytes) -> None:
    typed = {"form-secret": browser.secret(), "file": "kept = 1", "changes": "", "step": "check"}
    answer = browser.post_raw("/operator/new-task/file", typed, files={"upload": ("walk.toml", content, "text/plain")})
    where, words = shown_error(answer.text)
    assert answer.status_code == 422 and where == "file" and "file of text" in words
    assert shown_values(answer.text)["file"] == "kept = 1"


@pytest.mark.parametrize(
    ("file", "changes", "where", "words"),
    [
        ("", "", "file", "there is no task file yet"),
        ("crowdml = ", "", "file", "not valid TOML"),
        (TASK.replace("batch = 4", "batch = 0"), "", "file", "line 12, algorithm.batch"),
        (TASK, "algorithm.batch=0", "changes", "changes: algorithm.batch"),
        (TASK, "nonsense", "changes", "is not a change"),
        (
            TASK.replace('"crowd-sgd"', '"central-sgd"').replace("buffer = 6\n", ""),
            "",
            "file",
            "exists in simulation only",
        ),
        ("[" * 5000, "", "file", "not valid TOML"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_and_it_is_kept(
    browser: Browser, file: str, changes: str, where: str, words: str
) -> None:
    answer = browser.post("/operator/new-task/file", {"file": file, "changes": changes, "step": "check"})
    found = shown_error(answer.text)
    assert answer.status_code == 422 and found[0] == where and words in found[1]
    assert shown_values(answer.text) == {"file": file, "changes": changes}


EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>{{7*7}}"


def test_no_name_becomes_part_of_a_page(make_app: Any) -> None:
    browser = signed_in(make_app())
    typed = GOOD | {"objective": EVIL, "data.labels": f"{EVIL}\nb", "data.columns": f"{EVIL}\ny"}
    pages = [browser.post("/operator/new-task", typed | {"step": step}).text for step in ("check", "edit")]
    assert browser.post("/operator/new-task", typed | {"step": "open"}).status_code == 303
    invites = browser.post("/operator/tasks/steps/invites", {"count": "1"}).text
    looked_at = ("/operator", "/operator/tasks/steps", "/operator/log", "/", "/tasks/steps", "/join/steps")
    for page in (*pages, invites, *(browser.get(path).text for path in looked_at)):
        assert (
            "<script>alert" not in page
            and "<img src=x" not in page
            and "49" not in re.findall(r"alert\(1\)&gt;(..)", page)
        )
    assert html.escape("<script>alert(1)</script>") in pages[0]


def test_a_file_that_was_written_is_the_one_that_is_read() -> None:
    odd = {
        "crowdml": 1,
        "name": "x",
        "data": {"labels": ['a"b\\', "ü\u2028\x7f\t\n"], "units": {"a b": "°C"}, "n": -1e-7},
    }
    assert tomllib.loads(to_toml(odd)) == odd
    for typed in (GOOD, NUMBER, ROUNDS):
        assert tomllib.loads(to_toml(written(typed))) == written(typed)


@pytest.mark.parametrize(
    ("where", "what", "field"),
    [
        ("privacy", 'the key "epsilon" is missing', "privacy.epsilon"),
        ("", 'the key "name" is missing', "name"),
        ("algorithm.rate", "odd", "algorithm.rate.kind"),
        ("data.labels[1]", "odd", "data.labels"),
        ("data", "labels and target exclude each other", "data.labels"),
        ("secure-aggregation.enabled", "odd", FURTHER),
        ("", "odd", "name"),
    ],
)
def test_every_error_has_a_place(where: str, what: str, field: str) -> None:
    assert place(BadInput(what, where=where), GOOD) == field


@pytest.mark.parametrize(
    "typed",
    [{"model.kind": "mlp", "model.layers": "[9999999, 9999999]"}, {"algorithm.batch": "9" * 4000}],
    ids=["memory", "numbers"],
)
def test_a_task_too_large_to_work_out_is_refused_at_a_field(browser: Browser, typed: dict[str, str]) -> None:
    answer = browser.post("/operator/new-task", GOOD | typed | {"step": "check"})
    where, words = shown_error(answer.text)
    assert (answer.status_code, where) == (422, "model.kind") and "so large" in words
    file = to_toml(written(GOOD | typed))
    pasted = browser.post("/operator/new-task/file", {"file": file, "changes": "", "step": "check"})
    assert pasted.status_code == 422 and "so large" in shown_error(pasted.text)[1]
