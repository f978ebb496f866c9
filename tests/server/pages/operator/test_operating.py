"""What an operator does to a running task and to the server, by portal; and what the event log says of it."""

from __future__ import annotations

import csv
import errno
import io
import os
import re
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from safetensors.numpy import load

from crowdml.server.pages.operator.crowd_pages import draw
from crowdml.server.pages.operator.log_pages import Line, harmless
from crowdml.server.pages.operator.server_pages import BackupStream
from crowdml.server.store import Event, open_store
from crowdml.server.store.backups import restore
from crowdml.wire.join_link import InviteLink
from tests.support.portal import Browser, signed_in


@pytest.fixture
def browser(app: Any) -> Browser:
    return signed_in(app)


def words(page: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


def test_a_task_is_paused_resumed_and_stopped(browser: Browser) -> None:
    path, app = "/operator/tasks/walk", browser.app
    for wanted, verb in (("paused", "Pause"), ("open", "Resume"), ("stopped", "Stop for good")):
        assert verb in browser.get(path).text
        asked = browser.get(f"{path}/state/{wanted}")
        assert verb in asked.text and app.show()["state"] != wanted, "looking changes nothing"
        assert browser.post(f"{path}/state/{wanted}").headers["location"] == path
        assert app.show()["state"] == wanted
    page = browser.get(path).text
    assert "/state/" not in page and "Make invites" not in page and "Safetensors" in page
    assert browser.get(f"{path}/state/open").status_code == 303
    refused = browser.post(f"{path}/state/open")
    assert (
        refused.status_code == 409 and "cannot become open" in refused.text and "This is not possible" in refused.text
    )


@pytest.mark.parametrize("wanted", ["draft", "gone", "..%2F..", "open%0d%0ax"])
def test_there_are_no_other_states(browser: Browser, wanted: str) -> None:
    for answer in (
        browser.get(f"/operator/tasks/walk/state/{wanted}"),
        browser.post(f"/operator/tasks/walk/state/{wanted}"),
    ):
        assert answer.status_code in (404, 405, 422) and browser.app.show()["state"] == "open"


@pytest.mark.parametrize(
    "name", ["nobody", "%252e%252e", "con", "a" * 64, "x%00", "%E2%80%AEtxt", "walk%0d%0aSet-Cookie:a=b"]
)
def test_a_task_that_is_not_there_is_not_found(browser: Browser, name: str) -> None:
    for path in (f"/operator/tasks/{name}", f"/operator/tasks/{name}/model/onnx", f"/operator/tasks/{name}/devices"):
        answer = browser.get(path)
        assert answer.status_code in (404, 422) and "set-cookie" not in answer.headers
        assert unquote(name) not in answer.text or len(name) < 8


def test_invites_are_shown_once_as_links_and_codes(browser: Browser) -> None:
    page = browser.post("/operator/tasks/walk/invites", {"count": "3"}).text
    links = re.findall(r'<textarea id="link-\d"[^>]*>([^<]+)</textarea>', page)
    assert len(links) == len(set(links)) == 3 and page.count("<svg") == 3
    link = InviteLink.parse(links[0].replace("&amp;", "&"))
    assert link.task == "walk" and link.server == browser.app.address
    assert link.code not in browser.get("/operator/tasks/walk").text + browser.get("/operator/log").text
    browser.post("/operator/tasks/walk/state/stopped")
    assert browser.post("/operator/tasks/walk/invites", {"count": "1"}).status_code == 410


@pytest.mark.parametrize("count", ["", "0", "-1", "101", "1e2", "٣", "1" * 400, "<b>"])
def test_so_many_invites_and_no_more(browser: Browser, count: str) -> None:
    answer = browser.post("/operator/tasks/walk/invites", {"count": count})
    assert answer.status_code == 422 and "<b>" not in answer.text and len(answer.text) < 5000


def test_a_code_is_nothing_but_squares() -> None:
    drawn = str(draw('https://crowd.example/join/x#code="><script>alert(1)</script>'))
    assert re.fullmatch(r"<svg[^<>]*><path[^<>]*/></svg>", drawn.strip()) and "alert" not in drawn


def test_devices_are_listed_with_their_totals_and_revoked(browser: Browser) -> None:
    app = browser.app
    first, second = app.device(), app.device()
    for _ in range(3):
        first.check_in()
    assert first.check_in(b"x" * len(first.body())).status_code == 422
    listed = words(browser.get("/operator/tasks/walk/devices").text)
    assert f"{first.id} no. 0 3 check-ins" in listed and "1 refused" in listed and second.id in listed
    path = f"/operator/tasks/walk/devices/{first.id}/revoke"
    assert "Revoke device 0?" in browser.get(path).text and first.check_out().status_code == 200
    assert browser.post(path).status_code == 303 and first.check_out().status_code == 401
    assert first.id not in browser.get("/operator/tasks/walk/devices").text
    for answer in (browser.get(path), browser.post(path)):
        assert answer.status_code == 404


def test_without_devices_the_way_to_invites_is_shown(browser: Browser) -> None:
    path = "/operator/tasks/walk/devices"
    assert '<a href="/operator/tasks/walk">Invite some</a>' in browser.get(path).text
    browser.app.move("stopped")
    assert "No device has joined yet." in browser.get(path).text and "Invite some" not in browser.get(path).text


def test_long_lists_of_devices_have_pages(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crowdml.server.pages.operator.crowd_pages.ON_A_PAGE", 2)
    names = [browser.app.device().id for _ in range(5)]
    seen, path = [], "/operator/tasks/walk/devices"
    for _ in range(3):
        page = browser.get(path).text
        seen += re.findall(r"<code>([0-9a-f]{32})</code>", page)
        later = re.search(r'href="(\?start=\d+)">Later', page)
        path = f"/operator/tasks/walk/devices{later[1]}" if later else ""
    assert seen == names and not path
    back = re.search(r'href="\?start=(\d+)">Earlier', browser.get("/operator/tasks/walk/devices?start=4").text)
    assert back and back[1] == "2"


def test_the_model_is_exported(browser: Browser) -> None:
    answer = browser.get("/operator/tasks/walk/model/safetensors")
    assert answer.headers["content-disposition"] == 'attachment; filename="walk.safetensors"'
    assert answer.headers["x-content-type-options"] == "nosniff" and load(answer.content)
    assert browser.get("/operator/tasks/walk/model/onnx").content[:1] == b"\x08"
    assert browser.get("/operator/tasks/walk/model/pickle").status_code == 404


def test_the_log_says_who_did_what(browser: Browser) -> None:
    app = browser.app
    device = app.device()
    browser.post("/operator/tasks/walk/state/paused")
    app.move("open")
    app.send("DELETE", "/v1/devices/me", headers=device.bearer)
    page = words(browser.get("/operator/log?task=walk").text)
    for entry in ("operator, by portal paused", "operator, by token opened", "device joined", "device withdrew"):
        assert entry in page, entry
    assert "device 0" not in page and device.id not in page and app.token not in page
    told = app.as_operator("GET", "/v1/operator/log?task=walk").json()
    actions = [event["action"] for event in reversed(told["events"])]
    assert actions == ["created", "invited", "joined", "paused", "opened", "withdrew"] and told["next"] is None


def test_the_log_has_pages_and_a_file(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crowdml.server.pages.operator.log_pages.ON_A_PAGE", 3)
    for state in ("paused", "open", "paused", "open"):
        browser.post(f"/operator/tasks/walk/state/{state}")
    first = browser.get("/operator/log").text
    older = re.search(r'href="(/operator/log\?before=\d+)">Older', first)
    assert older and "opened" in first and "created" not in first
    assert "created" in browser.get(older[1]).text
    answer = browser.get("/operator/log.csv")
    assert (
        answer.headers["content-type"] == "text/csv; charset=utf-8"
        and "attachment" in answer.headers["content-disposition"]
    )
    rows = list(csv.reader(io.StringIO(answer.text)))
    assert rows[0] == ["time", "who", "what", "task", "more"] and len(rows) == 7
    assert browser.get("/operator/log?before=0").status_code == 422
    assert browser.get("/operator/log?task=nobody").status_code == 404


@pytest.mark.parametrize("cell", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"])
def test_no_cell_is_a_formula(cell: str) -> None:
    assert harmless(cell) == f"'{cell}"
    event = Event(id=1, time=0.0, actor="x", action="stopped", task=None, slot=None, count=1, detail=cell)
    assert harmless(Line.of(event).more).startswith("'")


def test_a_log_that_somebody_tries_to_forge_stays_one_line(browser: Browser) -> None:
    app = browser.app
    app.store.note("server", "stopped", detail="x\n2026-01-01 operator revoked\x1b[2J<script>")
    page = browser.get("/operator/log").text
    assert "x 2026-01-01 operator revoked [2J&lt;script&gt;" in page and "\x1b" not in page
    assert len(list(csv.reader(io.StringIO(browser.get("/operator/log.csv").text)))) == 4


def test_refused_check_ins_are_counted_not_listed(browser: Browser) -> None:
    device = browser.app.device()
    for _ in range(30):
        device.check_in(b"x" * len(device.body()))
    page = words(browser.get("/operator/log?task=walk").text)
    assert page.count("refused check-in") == 1 and "refused check-in (30)" in page


def test_a_backup_can_be_restored_and_brings_no_session_back(browser: Browser, tmp_path: Path) -> None:
    app = browser.app
    answer = browser.post("/operator/server/backup", {"token": app.token})
    assert answer.status_code == 200 and answer.content.startswith(b"SQLite format 3\0")
    assert answer.headers["content-disposition"] == 'attachment; filename="crowdml.backup"'
    file = tmp_path / "crowdml.backup"
    file.write_bytes(answer.content)
    with closing(sqlite3.connect(file)) as kept:
        assert kept.execute("SELECT COUNT(*) FROM operator_sessions").fetchone() == (1,)
        cookie = browser.cookie.partition("=")[2].encode()
        assert cookie not in answer.content and app.token.encode() not in answer.content, "hashes alone are stored"
    restore(file, f"sqlite:///{tmp_path}/again.sqlite")
    with open_store(f"sqlite:///{tmp_path}/again.sqlite") as again:
        assert again.sessions() == [] and again.events()[0].action == "restored a backup"
    assert "made a backup" in words(browser.get("/operator/log").text)


def test_a_backup_on_its_way_has_no_name_on_the_disk(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = tmp_path / "room"
    room.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(room))
    seen, begun = [], BackupStream.__call__

    async def watched(stream: BackupStream, *given: Any) -> None:
        seen.append(list(room.iterdir()))
        await begun(stream, *given)

    monkeypatch.setattr(BackupStream, "__call__", watched)
    answer = browser.post("/operator/server/backup", {"token": browser.app.token})
    assert answer.content.startswith(b"SQLite format 3\0") and seen == [[]], "a server that is killed leaves no key"


def test_a_server_without_room_for_a_copy_says_so(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(prefix: str) -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "TemporaryDirectory", full)
    answer = browser.post("/operator/server/backup", {"token": browser.app.token})
    assert answer.status_code == 503 and "No space left on device" in words(answer.text)
