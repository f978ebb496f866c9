"""Activity: days and staleness follow from receipts, with and without a restart in between."""

from __future__ import annotations

import json
from typing import Any

import pytest

from crowdml.server.store import NewDay, Receipt, StoredDay
from crowdml.server.tasks.task_activity import DAY_S, ActivityLog, Day


def receipt(slot: int, version: int, started: int) -> Receipt:
    return Receipt(slot=slot, key="k", body=b"", number=1, version=version, started=started, status="applied")


def stored(day: NewDay, first: int, over: Day | None = None) -> StoredDay:
    known = {"check_ins": over.check_ins, "devices": over.devices} if over else {"check_ins": None, "devices": None}
    return StoredDay(day=day.day, first=first, version=day.version, staleness=day.staleness, **known)


def test_check_ins_and_devices_are_counted_by_day_once_they_are_stored() -> None:
    log = ActivityLog((), (), in_sums=False)
    begun = log.note([receipt(0, 1, 0), receipt(1, 2, 0)], 0, 10 * DAY_S + 5)
    assert begun is not None and (begun.day, begun.version, begun.over) == (10, 0, None)
    assert log.settle().days == (Day(day=10, check_ins=2, devices=2),)
    assert log.note([receipt(1, 3, 2)], 2, 10 * DAY_S + 6) is None
    assert log.settle().last == Day(day=10, check_ins=3, devices=2)
    next_day = log.note([receipt(1, 4, 3)], 3, 12 * DAY_S)
    assert next_day is not None and next_day.over == (10, 3, 2)
    assert log.settle().days == (Day(day=10, check_ins=3, devices=2), Day(day=12, check_ins=1, devices=1))


def test_staleness_is_how_far_versions_went_on_meanwhile() -> None:
    log = ActivityLog((), (), in_sums=False)
    # The third makes no version, as in a buffer of several; the fourth started five versions before.
    log.note([receipt(0, 11, 10), receipt(1, 12, 10), receipt(2, 12, 11), receipt(3, 13, 7)], 10, 0.0)
    # 0, 1, 1 and 5 versions old.
    assert log.settle().staleness[:4] == (1, 2, 0, 1)


def test_all_check_ins_of_a_secure_sum_meet_the_same_version() -> None:
    log = ActivityLog((), (), in_sums=True)
    log.note([receipt(0, 6, 5), receipt(1, 6, 5), receipt(2, 6, 4)], 5, 0.0)
    assert log.settle().staleness[:2] == (2, 1)


def test_what_was_noted_and_not_stored_is_forgotten() -> None:
    log = ActivityLog((), (), in_sums=False)
    log.note([receipt(0, 1, 0)], 0, 0.0)
    log.forget()
    assert log.settle().days == () and sum(log.settle().staleness) == 0


def test_a_clock_that_goes_back_adds_to_the_last_day() -> None:
    log = ActivityLog((), (), in_sums=False)
    log.note([receipt(0, 1, 0)], 0, 10 * DAY_S)
    log.settle()
    assert log.note([receipt(0, 2, 1)], 1, 9 * DAY_S) is None
    assert log.settle().days == (Day(day=10, check_ins=2, devices=1),)


def test_a_restart_counts_the_receipts_of_the_last_day_anew() -> None:
    batches = [(10, 0, [(0, 1, 0), (1, 2, 0)]), (11, 2, [(1, 3, 1), (2, 4, 3)]), (11, 4, [(1, 5, 4)])]
    log, days, first = ActivityLog((), (), in_sums=False), list[StoredDay](), 1
    for day, version, entries in batches:
        begun = log.note([receipt(*entry) for entry in entries], version, day * DAY_S)
        if begun:
            if begun.over:
                over = Day(day=begun.over[0], check_ins=begun.over[1], devices=begun.over[2])
                days[-1] = stored(NewDay(day=10, version=0, staleness=days[-1].staleness), days[-1].first, over)
            days.append(stored(begun, first))
        first += len(entries)
        log.settle()
    again = ActivityLog(days, [*batches[1][2], *batches[2][2]], in_sums=False)
    assert again.settle() == log.settle()
    assert json.loads(days[-1].staleness) == [1, 1, 0, 0, 0, 0, 0, 0, 0]


def test_receipts_from_before_days_were_kept_have_a_staleness_and_no_day() -> None:
    log = ActivityLog((), [(0, 1, 0), (0, 2, 1)], in_sums=False)
    assert log.settle().days == () and log.settle().staleness[0] == 2


def test_a_server_shows_the_same_after_a_restart(make_app: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.5 * DAY_S]
    monkeypatch.setattr("crowdml.server.tasks.mutable_task.time.time", lambda: now[0])
    app = make_app()
    app.create()
    one, other = app.device(), app.device()
    for day, device in ((100, one), (100, other), (101, one), (101, one)):
        now[0] = (day + 0.5) * DAY_S
        assert device.check_in().status_code == 200
    before = app.send("GET", "/v1/tasks/walk/statistics").json()
    assert [(day["day"], day["check_ins"], day["devices"]) for day in before["participation"]] == [
        ("1970-04-11", 2, 2),
        ("1970-04-12", 2, 1),
    ]
    assert sum(found["check_ins"] for found in before["staleness"]) == 4
    app.close()
    again = make_app()
    assert again.send("GET", "/v1/tasks/walk/statistics").json() == before
