"""Groups on the page of a task: figures beside what they are compared with, and pages of tasks that have none yet."""

from __future__ import annotations

from typing import Any

from crowdml.server.pages.group_cards import group_card
from crowdml.server.pages.rendering import WrittenPage
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
