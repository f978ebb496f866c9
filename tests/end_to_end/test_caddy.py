"""The proxy for real phones: Debian's Caddy with our Caddyfile, on loopback, with certificates of its own."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.ports import free_port
from tests.support.process import Process
from tests.support.served import WAIT_S

ROOT = Path(__file__).parents[2]
CADDYFILE = ROOT / "examples" / "phones" / "Caddyfile"
COMPOSE = ROOT / "examples" / "phones" / "compose.yaml"


@pytest.fixture
def caddy() -> str:
    found = shutil.which("caddy")
    if found is None:
        if os.environ.get("CROWDML_CI"):
            pytest.fail("caddy is missing: make system-packages")
        pytest.skip("caddy is not installed (make system-packages)")
    return found


@pytest.fixture
def proxied(caddy: str, tmp_path: Path) -> Iterator[tuple[Process, httpx.Client, str]]:
    port = free_port()
    address = f"https://localhost:{port}"
    server = Process(tmp_path / "server", None, "--behind-proxy", "127.0.0.1", "--address", address)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "XDG_DATA_HOME": str(tmp_path / "caddy"),
        "CROWDML_NAME": address,
        "CROWDML_UPSTREAM": server.address.removeprefix("http://"),
        "CADDY_TLS": "tls internal",
        "CADDY_OPTIONS": "skip_install_trust\n\tauto_https disable_redirects",
    }
    command = [caddy, "run", "--config", str(CADDYFILE), "--adapter", "caddyfile"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        authority = tmp_path / "caddy" / "caddy" / "pki" / "authorities" / "local" / "root.crt"
        give_up = time.monotonic() + WAIT_S
        while not (authority.exists() and _answers(port, authority)):
            assert process.poll() is None and time.monotonic() < give_up, (tmp_path / "log").read_text()
            time.sleep(0.02)
        with httpx.Client(
            base_url=address, verify=ssl.create_default_context(cafile=str(authority)), timeout=WAIT_S
        ) as client:
            yield server, client, address
    finally:
        server.end()
        process.terminate()
        process.wait(WAIT_S)


def _answers(port: int, authority: Path) -> bool:
    """Tell whether Caddy listens and has its certificate: it makes one after it has begun to listen."""
    try:
        context = ssl.create_default_context(cafile=str(authority))
        with (
            socket.create_connection(("127.0.0.1", port)) as link,
            context.wrap_socket(link, server_hostname="localhost"),
        ):
            return True
    except (OSError, ssl.SSLError):
        return False


def test_phones_reach_the_server_through_caddy(proxied: tuple[Process, httpx.Client, str]) -> None:
    server, client, address = proxied
    server.create()
    page = client.get("/tasks/walk", headers={"accept": "text/html"})
    assert page.status_code == 200 and "Tell walking from standing" in page.text
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert "strict-transport-security" in page.headers
    assert server.invites()[0].server == address, "invites lead to the proxy"
    with client.stream("GET", "/v1/tasks/walk/events") as stream:
        first = next(stream.iter_lines())
        assert first.startswith("event:"), "events are not kept back"


def test_another_name_is_not_answered_with_our_pages(proxied: tuple[Process, httpx.Client, str]) -> None:
    server, client, _ = proxied
    assert client.get("/", headers={"host": "else.example"}).content == b""
    # Nor by the server itself, should it be reached past the proxy.
    assert server.send("GET", "/", headers={"host": "else.example"}).status_code == 400


def test_the_compose_file_names_what_there_is() -> None:
    text = COMPOSE.read_text(encoding="utf-8")
    assert (COMPOSE.parent / "../..").resolve() == ROOT and (ROOT / "Containerfile").exists()
    assert "./Caddyfile:/etc/caddy/Caddyfile" in text and "crowdml:8800" in text
    assert "image: caddy:2" in text and "10.89.77.0/24" in text
    assert text.count("10.89.77.0/24") == 2, "whose word is taken is the network of both"
