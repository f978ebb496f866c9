"""TLS with an authority of one's own: trusted when it is named, refused at once when it is not."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


def certificate(folder: Path) -> tuple[Path, Path]:
    """Make a key and a certificate for this machine that vouches for itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "loopback")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / "cert.pem").write_bytes(made.public_bytes(pem))
    raw = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "key.pem").write_bytes(raw)
    return folder / "cert.pem", folder / "key.pem"


def test_an_authority_of_ones_own(
    make_server: Callable[..., Any], crowdml: Callable[..., Any], rows: Path, tmp_path: Path
) -> None:
    cert, key = certificate(tmp_path)
    server = make_server("--tls-cert", str(cert), "--tls-key", str(key), ca=cert)
    server.open()
    invite = server.invite()
    assert invite.startswith("https://")
    home = ("--home", str(tmp_path / "device"))
    refused = crowdml("device", "join", invite, *home, "--yes")
    assert refused.returncode == 2 and "certificate that is not trusted" in refused.stderr and "--ca" in refused.stderr
    joined = crowdml("device", "join", invite, *home, "--yes", "--quiet", "--ca", str(cert))
    assert joined.returncode == 0, joined.stderr
    ran = crowdml("device", "run", "--rows", str(rows), *home, "--once")
    assert ran.returncode == 0 and "1 used" in ran.stdout, "the authority is remembered"
    (server.folder / "server.address").write_text(f"{server.address}\n")  # an operator who was not told of it
    for command in (("task", "list"), ("task", "stop", server.task)):
        refused = crowdml(*command, "--home", str(server.folder))
        assert refused.returncode == 2 and "certificate that is not trusted" in refused.stderr
        assert "--ca" in refused.stderr and "crowdml serve" not in refused.stderr, "it does answer"
        assert crowdml(*command, "--home", str(server.folder), "--ca", str(cert)).returncode == 0
