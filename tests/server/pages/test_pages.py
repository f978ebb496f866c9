"""Pages for people: what they promise, whom they invite, which error they show, and what a wrong address answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from crowdml.server.pages.rendering import refusal_page
from crowdml.server.refusals import Refusal
from crowdml.task.recent_error import RecentError

MASKED = (Path(__file__).parents[3] / "examples" / "secagg-digits.toml").read_text()
HTML = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
ALONE = "Nobody but the device itself has to be trusted"


def text(app: Any, path: str) -> str:
    answer = app.send("GET", path, headers=HTML)
    assert answer.status_code == 200, answer.text
    return " ".join(answer.text.split())


@pytest.mark.parametrize("page", ["tasks", "join"])
def test_the_promise_of_a_masked_task_is_not_that_of_local_noise(shared: Any, page: str) -> None:
    task = shared.fresh(file=MASKED)
    shown = text(shared, f"/{page}/{task}")
    assert "ε = 2, δ = 1e-05" in shown and "secure aggregation" in shown and "γ = 0.9" in shown
    assert "computational" in shown and "at least 24 honest devices" in shown and ALONE not in shown
    described = shared.show(task)
    assert "secure aggregation" in described["rests_on"] and "ε = 2" in described["promise"]


def test_the_promise_of_local_noise_rests_on_the_device_alone(shared: Any) -> None:
    task = shared.fresh("secure-aggregation.enabled=false", file=MASKED)
    assert ALONE in text(shared, f"/tasks/{task}") and ALONE in shared.show(task)["rests_on"]


def test_the_promise_is_said_in_odds_before_it_is_said_in_epsilon(shared: Any) -> None:
    task = shared.fresh("secure-aggregation.enabled=false", file=MASKED)
    for page in (f"/tasks/{task}", f"/join/{task}"):
        shown = text(shared, page)
        odds, epsilon = shown.index("A coin is right 50 times in 100"), shown.index("is promised ε =")
        assert odds < epsilon and shown.index("dots-coin") < epsilon and "style=" not in shown
    assert "no method is right more than" in shared.show(task)["odds"]


def test_masks_without_noise_do_not_show_the_server_everything(shared: Any) -> None:
    changes = ['privacy={ mode = "none" }']
    shown = text(shared, f"/tasks/{shared.fresh(*changes, file=MASKED)}")
    assert "No formal guarantee" in shown and "sees it as it is" not in shown


def test_a_stopped_task_invites_nobody(shared: Any, refused: Any) -> None:
    task = shared.fresh()
    assert "crowdml device join" in text(shared, f"/join/{task}")
    shared.move("stopped", task)
    joining, page = text(shared, f"/join/{task}"), text(shared, f"/tasks/{task}")
    assert "crowdml device join" not in joining and "You are invited" not in joining
    assert "has ended" in joining and "the operator stopped it" in joining
    assert "This task has ended: the operator stopped it" in page
    before = shared.stored()
    answer = shared.as_operator("POST", f"/v1/tasks/{task}/invites", {"count": 1})
    assert "nobody can join" in refused(answer, 410, "stopped")["message"]
    assert shared.stored() == before, "no invite was stored"


@pytest.mark.parametrize(("state", "said"), [("paused", "The task is paused"), ("draft", "The task is not open yet")])
def test_an_invite_to_a_task_that_waits_says_so(shared: Any, state: str, said: str) -> None:
    task = shared.fresh(draft=state == "draft")
    if state == "paused":
        shared.move("paused", task)
    assert said in text(shared, f"/join/{task}") and "crowdml device join" in text(shared, f"/join/{task}")


@pytest.mark.parametrize("state", ["paused", "draft", "open"])
def test_a_device_that_must_wait_is_told_why(shared: Any, state: str) -> None:
    rounds = 'algorithm={ kind = "fedavg", per-round = 1 }'
    task = shared.fresh(rounds, draft=state == "draft")
    first, second = shared.device(task), shared.device(task)
    if state == "paused":
        shared.move("paused", task)
    answers = [device.check_out() for device in (first, second)]
    waiting = [answer.headers["crowdml-waiting"] for answer in answers if answer.status_code == 204]
    assert waiting == (["round"] if state == "open" else [state, state])


def test_a_revoked_device_is_told_so_and_a_stranger_is_not(make_app: Any, refused: Any) -> None:
    app = make_app()
    app.create()
    device = app.device()
    assert app.as_operator("DELETE", f"/v1/tasks/walk/devices/{device.id}").status_code == 204
    for again in (app, None):
        if again is None:
            app.close()
            again = make_app()
        device.server = again
        told = refused(again.send("GET", "/v1/devices/me", headers=device.bearer), 401, "revoked")
        assert "the operator has revoked this device" in told["message"] and "new invite" in told["hint"]
        refused(device.check_out(), 401, "revoked")
        refused(again.send("GET", "/v1/devices/me", headers={"authorization": "Bearer x"}), 401, "not-authorised")


def check_in(device: Any, times: int) -> None:
    for number in range(times):
        assert device.check_in(device.body(seed=number)).status_code == 200


def test_the_error_shown_is_of_the_recent_check_ins(make_app: Any) -> None:
    app = make_app()
    app.create("privacy.mode=none")
    check_in(app.device(), 30)
    shown = app.show()
    recent = shown["recent_error"]
    assert (recent["check_ins"], recent["from_version"], recent["to_version"]) == (20, 10, 30)
    assert recent["rows"] == 80 and recent["low"] <= recent["estimate"] <= recent["high"]
    points = app.send("GET", "/v1/tasks/walk/curve").json()["curve"]
    at = {point["version"]: point for point in points}
    # Each sum is an integer: the window's errors are the difference of two sums.
    errors = [round(at[version]["estimated_error"] * at[version]["rows"]) for version in (10, 30)]
    assert recent["estimate"] == pytest.approx((errors[1] - errors[0]) / 80)
    assert points[-1]["recent_error"] == recent
    assert RecentError(**recent).words() in text(app, "/tasks/walk")
    app.close()
    again = make_app()
    assert again.show()["recent_error"] == recent, "it follows from what is stored"


def test_a_task_without_counts_shows_no_error(shared: Any) -> None:
    task = shared.fresh('algorithm={ kind = "fedavg", per-round = 1 }')
    assert shared.show(task)["recent_error"] is None
    assert "Recent error:" not in text(shared, f"/tasks/{task}")


def test_many_labels_and_columns_are_counted_in_sentences_and_named_below(shared: Any) -> None:
    labels, columns = [f"label {number}" for number in range(13)], [f"column-{number}" for number in range(13)]
    task = shared.fresh(f"data={{ labels = {json.dumps(labels)}, columns = {json.dumps(columns)} }}")
    first, page, join = text(shared, "/"), text(shared, f"/tasks/{task}"), text(shared, f"/join/{task}")
    assert "predicts one of 13 labels" in first and "label 12" not in first
    for shown in (page, join):
        assert "one of 13 labels" in shown and "13 numbers" in shown
        for summary, names in (("The 13 labels by name", labels), ("The 13 columns by name", columns)):
            assert f'<summary>{summary}</summary><p class="small">{", ".join(names)}</p>' in shown
    assert "by name</summary>" not in text(shared, f"/tasks/{shared.fresh()}")


def as_text(body: bytes | memoryview) -> str:
    return bytes(body).decode()


@pytest.mark.parametrize(
    ("status", "title"),
    [
        (404, "There is nothing here"),
        (409, "This is not possible"),
        (429, "Not at this moment"),
        (500, "This went wrong"),
    ],
)
def test_a_refusal_is_a_page_of_sentences(status: int, title: str) -> None:
    shown = as_text(refusal_page(Refusal(status, "some", "the task is paused", hint="wait")).body)
    assert f"<h1>{title}</h1>" in shown and f"<title>{title} – crowdml</title>" in shown
    assert ("<p>The task is paused.</p>" in shown) == (status != 404) and '<p class="small">Wait.</p>' in shown


def test_whoever_meets_a_busy_server_is_told_to_come_again() -> None:
    answer = refusal_page(Refusal(503, "busy", "the server could not store this", retry_after_s=5))
    assert "Load the page again in a few seconds." in as_text(answer.body) and answer.headers["retry-after"] == "5"


WRONG = ["/taks/walk", "/tasks/nobody", "/join/nobody", "/tasks/Not_A_Name", "/v1/nothing", "/tasks/walk/more"]


@pytest.mark.parametrize("path", WRONG)
def test_a_wrong_path_answers_people_with_a_page(shared: Any, path: str) -> None:
    answer = shared.send("GET", path, headers=HTML)
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "text/html; charset=utf-8" and answer.headers["crowdml-protocol"] == "2"
    assert "There is nothing here" in answer.text and '<a href="/">' in answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize("path", WRONG)
@pytest.mark.parametrize("accept", ["*/*", "application/json"])
def test_a_wrong_path_answers_programs_in_the_one_shape(shared: Any, refused: Any, path: str, accept: str) -> None:
    answer = shared.send("GET", path, headers={"accept": accept})
    refused(answer, 422 if path == "/tasks/Not_A_Name" else 404)


def test_head_answers_as_get_does_without_a_body(on_socket: Any) -> None:
    for path, status in (("/", 200), ("/tasks/walk", 200), ("/join/walk", 200), ("/taks/walk", 404)):
        full = on_socket.send("GET", path, headers=HTML)
        head = on_socket.send("HEAD", path, headers=HTML)
        assert (head.status_code, full.status_code) == (status, status) and head.content == b""
        for name in ("content-type", "content-length", "content-security-policy"):
            assert head.headers[name] == full.headers[name], (path, name)
