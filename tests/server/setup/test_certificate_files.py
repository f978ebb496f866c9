"""Certificates that are renewed while a server runs."""

from __future__ import annotations

import datetime as dt
import signal
import ssl
import threading
import time
from pathlib import Path

from crowdml.server.setup.certificate_files import CertificateFiles
from crowdml.server.setup.local_tls import Pair, make_authority, sign_server
from tests.support.process import Process

NOW = dt.datetime.now(dt.UTC)


def write(pair: Pair, certificate: Path, key: Path | None) -> None:
    secret, _, public = pair.to_pem().partition(b"-----BEGIN CERTIFICATE")
    if key is not None:
        key.write_bytes(secret)
    certificate.write_bytes(b"-----BEGIN CERTIFICATE" + public)


def test_half_of_a_new_pair_does_not_replace_a_whole_one(tmp_path: Path) -> None:
    authority = make_authority(["127.0.0.1"], NOW)
    old, new = (sign_server(authority, ["127.0.0.1"], NOW) for _ in range(2))
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    write(old, certificate, key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    files = CertificateFiles(context, certificate, key)
    assert not files.look(), "nothing has changed"
    write(new, certificate, None)
    assert not files.look(), "the key is still that of the old one"
    write(new, certificate, key)
    assert files.look() and not files.look()
    key.unlink()
    assert not files.look(), "a file that is gone changes nothing"


def test_a_server_shows_a_renewed_certificate_without_a_restart(tmp_path: Path) -> None:
    authority = make_authority(["127.0.0.1"], NOW)
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    write(sign_server(authority, ["127.0.0.1"], NOW), certificate, key)
    server = Process(tmp_path / "server", None, "--tls-cert", str(certificate), "--tls-key", str(key))
    try:
        port = int(server.address.rpartition(":")[2])
        first = ssl.get_server_certificate(("127.0.0.1", port), timeout=60)
        assert first.strip() in certificate.read_text()
        write(sign_server(authority, ["127.0.0.1"], NOW), certificate, key)
        server.process.send_signal(signal.SIGHUP)
        end = time.monotonic() + 60
        while (shown := ssl.get_server_certificate(("127.0.0.1", port), timeout=60)) == first:
            assert time.monotonic() < end, server.log.read_text()
            threading.Event().wait(0.05)
        assert shown.strip() in certificate.read_text()
    finally:
        assert server.end() == 0
