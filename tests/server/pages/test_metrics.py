"""Metrics: the text that Prometheus reads, and nothing private in it."""

from __future__ import annotations

import re
from typing import Any

from crowdml.server.pages.status_routes import metrics_text

LINE = re.compile(r'[a-z_]+(\{[a-z]+="[^"\\\n]*"\})? -?[0-9.e+-]+')


def parse(text: str) -> dict[str, float]:
    """Read the text format, strictly: types come before values, no name comes back, and the last line ends."""
    assert text == "" or text.endswith("\n")
    values, kinds, helps, done, last = {}, {}, set[str](), set[str](), ""
    for line in text.splitlines():
        if line.startswith("# "):
            what, name, rest = line[2:].split(" ", 2)
            assert what in ("HELP", "TYPE") and rest
            assert name not in done
            if what == "TYPE":
                kinds[name] = rest
            else:
                helps.add(name)
            continue
        assert LINE.fullmatch(line), line
        name = re.split(r"[{ ]", line)[0]
        assert name in kinds and name in helps, f"{name} is not explained"
        if name != last:
            assert name not in done
            done.add(last)
            last = name
        assert kinds[name] == ("counter" if name.endswith("_total") else "gauge")
        key, _, value = line.rpartition(" ")
        assert key not in values
        values[key] = float(value)
    return values


def test_counters_and_gauges_have_types_and_stand_together() -> None:
    numbers = {
        ("crowdml_version", 'task="a"'): 12,
        ("crowdml_check_ins_total", 'status="200"'): 5,
        ("crowdml_stored_total", 'task="b"'): 6,
        ("crowdml_devices", 'task="a"'): 2,
        ("crowdml_stored_total", 'task="a"'): 3,
        ("crowdml_check_outs_total", 'status="304"'): 2,
        ("crowdml_check_ins_total", 'status="409"'): 1,
        ("crowdml_transaction_seconds_total", 'task="b"'): 0.5,
    }
    assert parse(metrics_text(numbers)) == {f"{name}{{{label}}}": value for (name, label), value in numbers.items()}


def test_a_server_that_did_nothing_has_metrics() -> None:
    assert parse(metrics_text({})) == {}


def test_what_is_answered_is_counted(app: Any) -> None:
    device = app.device()
    device.check_out()
    device.check_in(key="key-number-1")
    device.check_in(b"")
    app.send("GET", "/v1/tasks/walk/check-out")
    answer = app.send("GET", "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    values = parse(answer.text)
    assert values['crowdml_check_outs_total{status="200"}'] == values['crowdml_check_outs_total{status="401"}'] == 1
    assert values['crowdml_check_ins_total{status="200"}'] == values['crowdml_check_ins_total{status="422"}'] == 1
    assert values['crowdml_stored_total{task="walk"}'] == values['crowdml_version{task="walk"}'] == 1
    assert values['crowdml_transactions_total{task="walk"}'] == 1
    assert values['crowdml_transaction_seconds_total{task="walk"}'] > 0
    for secret in (device.id, device.token, app.token, "key-number-1"):
        assert secret not in answer.text


def test_health_is_well_while_writers_work(app: Any) -> None:
    assert app.send("GET", "/healthz").json() == {"status": "ok"}
