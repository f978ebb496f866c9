"""TLS for real: given certificates, an authority of the server's own, a proxy in front."""

from __future__ import annotations

import datetime as dt
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest

from crowdml.core import BadInput
from crowdml.server.http.bounded_connection import ConnectionLimits
from crowdml.server.setup.local_tls import make_authority, sign_server
from crowdml.server.setup.serve_options import lan_address

Serve = Callable[..., Any]
Type = Callable[..., tuple[int, str]]

TASK = """
crowdml = 1
name = "walk"
objective = "Tell walking from standing"
[data]
features = 3
labels = ["standing", "walking"]
transform = [{ kind = "scale", by = 0.5 }, { kind = "norm", order = 2, at-most = 1.0 }]
[model]
kind = "softmax"
[algorithm]
kind = "crowd-sgd"
batch = 10
rate = { kind = "inverse-sqrt", c = 10.0 }
[privacy]
mode = "sound"
mechanism = "gaussian"
clip = 1.0
epsilon = 20.0
delta = 1e-6
max-uses = 10
[crowd]
passes = 1
"""


def get(address: str, ca: Path | None, path: str = "/healthz", **options: Any) -> httpx.Response:
    trusted: Any = True if ca is None else ssl.create_default_context(cafile=str(ca))
    return httpx.get(address + path, verify=trusted, timeout=30.0, **options)


def test_given_certificate(serve: Serve, tmp_path: Path) -> None:
    now = dt.datetime.now(dt.UTC)
    authority = make_authority(["127.0.0.1"], now)
    pair = sign_server(authority, ["127.0.0.1"], now)
    ca, certificate, key = (tmp_path / name for name in ("ca.pem", "certificate.pem", "key.pem"))
    secret, _, public = pair.to_pem().partition(b"-----BEGIN CERTIFICATE")
    key.write_bytes(secret)
    certificate.write_bytes(b"-----BEGIN CERTIFICATE" + public)
    ca.write_bytes(authority.to_pem().partition(b"-----END PRIVATE KEY-----\n")[2])
    server = serve("--tls-cert", str(certificate), "--tls-key", str(key))
    assert server.address.startswith("https://127.0.0.1:")
    assert get(server.address, ca).json() == {"status": "ok"}
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        get(server.address, None)
    with pytest.raises(httpx.ConnectError, match="mismatch"):
        get(server.address.replace("127.0.0.1", "localhost"), ca)
    with pytest.raises(httpx.TransportError):
        get(server.address.replace("https", "http"), None)
    assert server.stop() == 0


def test_whoever_connects_and_says_nothing_is_cut_off_as_soon_as_without_tls(serve: Serve, tmp_path: Path) -> None:
    now = dt.datetime.now(dt.UTC)
    pair = tmp_path / "pair.pem"
    pair.write_bytes(sign_server(make_authority(["127.0.0.1"], now), ["127.0.0.1"], now).to_pem())
    server = serve("--tls-cert", str(pair), "--tls-key", str(pair))
    port = urlsplit(server.address).port
    silent, begun = socket.create_connection(("127.0.0.1", port), 30.0), time.monotonic()
    hello = socket.create_connection(("127.0.0.1", port), 30.0)
    with silent, hello:
        hello.sendall(b"\x16\x03\x01\x02\x00")  # the beginning of a handshake that never goes on
        assert (silent.recv(1), hello.recv(1)) == (b"", b"")
    assert time.monotonic() - begun < 2 * ConnectionLimits().deadline_s
    assert server.stop() == 0


@pytest.fixture
def needs_network() -> str:
    """This machine's address in its network."""
    try:
        return lan_address()
    except BadInput:
        pytest.skip("this machine is in no network")


def test_lan_from_task_to_export(serve: Serve, type_crowdml: Type, needs_network: str, tmp_path: Path) -> None:
    server = serve("--lan")
    host = urlsplit(server.address).hostname
    assert server.address.startswith("https://") and host == needs_network
    ca = server.home / "tls" / "ca.pem"
    assert str(ca) in server.said and "SHA-256 fingerprint: " in server.said and "nobody trusts yet" in server.said
    assert get(server.address, ca).json() == {"status": "ok"}
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        get(server.address, None)

    (tmp_path / "walk.toml").write_text(TASK)
    home = ("--home", str(server.home))
    assert type_crowdml("task", "create", str(tmp_path / "walk.toml"), *home)[0] == 0
    code, link = type_crowdml("invite", "walk", *home)
    assert code == 0 and link.startswith(f"{server.address}/join/walk#")

    random = np.random.default_rng(3)
    labels = np.arange(40) % 2
    rows = random.normal(size=(40, 3)) + labels[:, None]
    np.savez(tmp_path / "rows.npz", rows=rows.astype(np.float32), labels=labels)
    device = ("--home", str(tmp_path / "device"))
    code, said = type_crowdml("device", "join", link.strip(), "--yes", "--ca", str(ca), *device)
    assert code == 0, said
    code, said = type_crowdml("device", "run", "--rows", str(tmp_path / "rows.npz"), "--releases", "4", *device)
    assert code == 0 and "4 releases, 4 used" in said, said
    check_export(type_crowdml, home, rows.astype(np.float32), tmp_path)
    assert server.stop() == 0


def check_export(type_crowdml: Type, home: tuple[str, ...], rows: Any, folder: Path) -> None:
    """The exported files agree: ONNX on rows as the owner has them, and the arrays used by hand."""
    import onnxruntime
    from safetensors.numpy import load_file

    for name in ("model.onnx", "model.safetensors"):
        code, said = type_crowdml("task", "export", "walk", "-o", str(folder / name), *home)
        assert code == 0, said
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    scores, label = session.run(["scores", "label"], {"rows": rows})
    (weights,) = load_file(folder / "model.safetensors").values()
    assert np.abs(weights).max() > 0
    shorter = rows * np.float32(0.5)
    shorter /= np.maximum(1.0, np.linalg.norm(shorter, axis=1, keepdims=True))
    np.testing.assert_allclose(scores, shorter @ weights.T, atol=1e-5 * np.abs(weights).max())
    np.testing.assert_array_equal(label, scores.argmax(axis=1))
    found = session.get_modelmeta().custom_metadata_map
    assert found["task"] == "walk" and found["version"] == "4" and '"epsilon": 20.0' in found["privacy"]
    assert "no method guesses right more than" in found["odds"] and "times in 100" in found["odds of one row"]


def test_lan_after_a_restart_is_trusted_as_before(serve: Serve, needs_network: str) -> None:
    first = serve("--lan")
    ca = first.home / "tls" / "ca.pem"
    assert get(first.address, ca).status_code == 200
    assert first.stop() == 0
    again = serve("--lan")
    assert "nobody trusts yet" not in again.said and get(again.address, ca).status_code == 200
    fingerprints = [server.said.partition("fingerprint: ")[2].split()[0] for server in (first, again)]
    assert fingerprints[0] == fingerprints[1]


def test_beyond_this_machine_without_tls_is_refused(type_crowdml: Type, tmp_path: Path) -> None:
    home = tmp_path / "server"
    for host in ("0.0.0.0", "192.168.1.20"):
        code, said = type_crowdml("serve", "--home", str(home), "--port", "0", "--host", host)
        assert code == 2 and f"{host} is beyond this machine" in said
    assert not home.exists(), "nothing was made"


def test_insecure_says_what_it_means(serve: Serve) -> None:
    server = serve("--host", "0.0.0.0", "--insecure")
    assert "0.0.0.0 is every address of this machine" in server.said and "no TLS" in server.said
    assert get(server.address, None).status_code == 200
    foreign = get(server.address, None, headers={"host": "elsewhere.example"})
    assert foreign.status_code == 400 and foreign.json()["error"]["code"] == "host"


def test_behind_a_proxy_each_origin_is_judged_alone(serve: Serve, type_crowdml: Type, tmp_path: Path) -> None:
    server = serve("--behind-proxy", "127.0.0.1", "--address", "https://crowd.example")
    (tmp_path / "walk.toml").write_text(TASK)
    home = ("--home", str(server.home))
    assert type_crowdml("task", "create", str(tmp_path / "walk.toml"), *home)[0] == 0
    assert type_crowdml("invite", "walk", *home)[1].startswith("https://crowd.example/join/walk#")

    def knock(origin: str) -> int:
        headers = {"authorization": "Bearer wrong", "x-forwarded-for": f"9.9.9.9, {origin}", "host": "crowd.example"}
        return session.get("/v1/devices/me", headers=headers).status_code

    with httpx.Client(base_url=server.address, timeout=30.0) as session:
        statuses = [knock("198.51.100.1") for _ in range(200)]
        assert statuses[0] == 401 and statuses[-1] == 429
        assert knock("198.51.100.2") == 401, "another origin is not slowed down"


def test_without_a_proxy_nobody_is_believed(serve: Serve) -> None:
    server = serve()
    with httpx.Client(base_url=server.address, timeout=30.0) as session:
        for number in range(200):
            headers = {"authorization": "Bearer wrong", "x-forwarded-for": f"198.51.100.{number % 250}"}
            status = session.get("/v1/devices/me", headers=headers).status_code
        assert status == 429
