"""Groups on the page of a task: figures beside what they are compared with, and pages of tasks that have none yet."""

from __future__ import annotations

import html
import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from crowdml.cli.task import read_leak
from crowdml.core import BadInput
from crowdml.server.pages.group_cards import group_card
from crowdml.server.pages.rendering import WrittenPage
from crowdml.server.tasks.groups.leak_figure import noted_leak
from tests.support.live_slices import TASK

HTML = {"accept": "text/html"}
TOLD: dict[str, Any] = {
    "group": 2,
    "stage": "running",
    "pass": 1,
    "passes": 5,
    "turn": 7,
    "members": [
        {"member": "abfcff", "there": True, "role": "dominator", "observers": 3},
        {"member": "6e00f0", "there": False, "role": "dummy", "observers": 0},
    ],
    "batches_per_s": 2.5,
    "floor_batches_per_s": 3.0,
    "bytes_per_row": None,
    "planned_bytes_per_row": 1848.0,
    "lost": 1,
    "turns_lost": 0,
    "replays": 4,
    "passes_again": 0,
    "exact_since": 0.0,
    "events": [
        {"time": 61.0, "what": "lost", "why": "follower 2: slow"},
        {"time": 62.0, "what": "go", "why": ""},
    ],
}


def test_a_group_is_told_in_words() -> None:
    card = group_card(TOLD)
    pairs = dict(card.pairs)
    assert (
        pairs["batches a second"] == "2.50 (3.00 by the round trips last measured)"
        and pairs["bytes a row"] == "– (planned 1,848)"
    )
    assert pairs["exact since"] == "01 January, 00:00:00 UTC" and card.standing == "pass 2 of 5, turn 8"
    assert [(row.role, row.observers) for row in card.members] == [("dominator", 3), ("not there", 0)]
    assert card.last == "00:01:01 lost: follower 2: slow"
    done = group_card(TOLD | {"stage": "done", "pass": 5})
    assert done.standing == "all 5 passes made" and {row.role for row in done.members} == {"done"}


def test_the_page_of_a_sliced_task_says_who_sees_what_and_shows_groups(shared: Any) -> None:
    task = shared.fresh(file=TASK)
    shown = {page: shared.send("GET", f"/{page}/{task}", headers=HTML) for page in ("tasks", "join")}
    for answer in shown.values():
        assert answer.status_code == 200
        assert "Within your group" in answer.text and "your labels exactly" in answer.text
    assert "every batch says how many rows it has" in shown["tasks"].text
    assert 'id="groups"' not in shown["tasks"].text


def test_groups_are_written_and_escaped() -> None:
    hostile = TOLD | {"events": [{"time": 0.0, "what": "lost", "why": "<b>altered</b>"}]}
    page = type("Page", (), {"groups": (group_card(hostile),)})()
    written = WrittenPage.of("groups.html", page).plain.decode()
    assert "Group 2" in written and "abfcff" in written and "<b>altered" not in written


def test_what_a_leak_meter_has_read_stands_on_the_page_beside_chance_with_the_date(shared: Any) -> None:
    task = shared.fresh(file=TASK)
    assert "Nobody has measured yet" in shared.send("GET", f"/tasks/{task}", headers=HTML).text
    assert shared.send("GET", f"/v1/tasks/{task}/groups").json()["leak"] is None
    body = {"right": 0.8421, "chance": 0.118, "own_rows": 80}
    assert shared.send("POST", f"/v1/tasks/{task}/leak", json=body).status_code in (401, 403)
    before = time.time()
    noted = shared.as_operator("POST", f"/v1/tasks/{task}/leak", body)
    assert noted.status_code == 201 and before - 1 <= noted.json()["time"] <= time.time() + 1
    assert shared.send("GET", f"/v1/tasks/{task}/groups").json()["leak"] == noted.json()
    assert noted.json()["right"] == 0.842
    day = datetime.fromtimestamp(noted.json()["time"], UTC)

    def told() -> bool:
        page = html.unescape(shared.send("GET", f"/tasks/{task}", headers=HTML).text)
        return (
            "A member with 80 rows of its own reads 84% of the labels" in page
            and "where guessing gets 12%" in page
            and f"{day.day} {day:%B %Y}" in page
        )

    end = time.monotonic() + 30
    # A page may be a moment old.
    while not told():
        assert time.monotonic() < end
        time.sleep(0.1)
    assert shared.as_operator("POST", f"/v1/tasks/{task}/leak", body | {"right": 1.5}).status_code == 422


def test_a_task_without_pieces_has_no_leak_figure(shared: Any) -> None:
    task = shared.fresh()
    body = {"right": 0.5, "chance": 0.1, "own_rows": 80}
    assert shared.as_operator("POST", f"/v1/tasks/{task}/leak", body).status_code == 404
    assert 'id="leak"' not in shared.send("GET", f"/tasks/{task}", headers=HTML).text


def test_the_newest_figure_counts_and_is_kept(shared: Any) -> None:
    task = shared.fresh(file=TASK)
    for right in (0.9, 0.4):
        body = {"right": right, "chance": 0.1, "own_rows": 80}
        assert shared.as_operator("POST", f"/v1/tasks/{task}/leak", body).status_code == 201
    with shared.store._database.look_up() as cursor:
        (number,) = shared.store._database.statements(cursor).first("SELECT id FROM tasks WHERE name = ?", task)
    kept = noted_leak(shared.store, number)
    assert kept is not None and kept.right == 0.4


def test_the_piece_that_tells_most_is_read_from_what_an_audit_wrote(tmp_path: Path) -> None:
    path = tmp_path / "leak.json"
    readings = [
        {"what": "the rows themselves", "right": 0.95, "chance": 0.1},
        {"what": "sums that piece 1 receives", "right": 0.6, "chance": 0.1},
        {"what": "sums that piece 2 receives", "right": 0.8, "chance": 0.1},
        {"what": "weights after 1 row in a batch", "right": None, "chance": None},
    ]
    path.write_text(json.dumps({"own_rows": 80, "readings": readings}))
    assert read_leak(path) == {"right": 0.8, "chance": 0.1, "own_rows": 80}
    for content in ("{", "[]", '{"own_rows": 80, "readings": []}'):
        path.write_text(content)
        with pytest.raises(BadInput, match="says nothing about sums"):
            read_leak(path)
