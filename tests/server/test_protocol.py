"""Two sides that speak different protocols: each says so in a sentence, and nothing is stored."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from crowdml.cli.operator import Operator, ServerRefused

ROUTES = [
    ("GET", "/v1/tasks"),
    ("GET", "/v1/tasks/walk"),
    ("GET", "/v1/tasks/walk/check-out"),
    ("POST", "/v1/tasks/walk/check-ins"),
    ("GET", "/v1/tasks/walk/sums"),
    ("POST", "/v1/tasks/walk/devices"),
    ("GET", "/v1/devices/me"),
]


@pytest.mark.parametrize("spoken", ["1", "3", "", "two", "2, 1"])
def test_a_device_that_speaks_another_protocol_is_told_so(shared: Any, refused: Any, spoken: str) -> None:
    before = shared.stored()
    for method, path in ROUTES:
        answer = shared.send(method, path, headers={"crowdml-protocol": spoken})
        refused(answer, 400, "protocol")
        error = answer.json()["error"]
        assert error["message"] == f"this server speaks protocol 2, and the request {spoken!r}"
        assert error["hint"] == "install the crowdml that fits this server"
        assert answer.headers["crowdml-protocol"] == "2"
    assert shared.stored() == before


def test_a_browser_names_no_protocol_and_is_served(shared: Any) -> None:
    assert shared.send("GET", "/").status_code == 200


class _OldServer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Crowdml-Protocol", "1")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"[]")

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def old_server() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _OldServer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_command_of_the_operator_refuses_an_old_server(old_server: str, tmp_path: Any) -> None:
    with pytest.raises(ServerRefused, match="speaks protocol '1', and 2 is spoken here\n  the server is older"):
        Operator(old_server, tmp_path, None, public=True).ask("GET", "/v1/tasks")
