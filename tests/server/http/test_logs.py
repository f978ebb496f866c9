"""Logs: no token, no invite, no body of anybody, whatever goes well or wrong."""

from __future__ import annotations

import base64
from typing import Any

import pytest


def exercise(server: Any) -> list[bytes]:
    """Do everything that goes well and much that does not; return what must not be found afterwards."""
    server.create()
    device, other = server.device(), server.device()
    body = device.body()
    device.check_out()
    device.check_in(body, "key-number-1")
    device.check_in(body, "key-number-1")
    device.check_in(body[:-1] + b"\xff", "key-number-1")
    device.check_in(b"secret-body")
    device.check_in(b"secret-body" * 1000)
    device.check_in(authorization="Bearer secret-guess")
    server.send("GET", "/v1/devices/me?token=secret-query", headers=device.bearer)
    server.send("GET", "/secret-path", headers=device.bearer)
    server.as_operator("POST", "/v1/tasks", {"file": "secret-file = ["})
    server.as_operator("DELETE", f"/v1/tasks/walk/devices/{other.id}")
    other.check_in(body)
    server.send("DELETE", "/v1/devices/me", headers=device.bearer)
    secrets = [device.token, other.token, server.token, device.link.code, "secret-", device.id, "key-number"]
    return [secret.encode() for secret in secrets] + [body[-40:], base64.b64encode(body[-30:]), device.key.secret]


def test_a_process_logs_nothing_of_what_it_was_sent(make_process: Any) -> None:
    process = make_process()
    secrets = exercise(process)
    assert process.end() == 0
    log = process.log.read_bytes()
    assert b"serving http://127.0.0.1:" in log, "this is the log"
    assert [secret for secret in secrets if secret in log] == []
    files = {path.name: path.stat().st_mode & 0o777 for path in process.home.iterdir()}
    assert files["operator.token"] == files["crowdml.sqlite"] == 0o600, "readable by their owner alone"
    assert process.token.encode() not in (process.home / "crowdml.sqlite").read_bytes()


def test_the_application_logs_nothing_of_what_it_was_sent(make_app: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    secrets = exercise(make_app())
    log = "\n".join(
        line.getMessage() for line in caplog.records if not line.name.startswith(("httpx", "httpcore"))
    ).encode()
    assert [secret for secret in secrets if secret in log] == []
