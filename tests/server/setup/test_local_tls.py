"""An authority of one's own: what it signs is accepted by TLS libraries, is renewed in time, and reaches no further."""

from __future__ import annotations

import datetime as dt
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from crowdml.core import BadInput
from crowdml.server.setup.local_tls import (
    LocalTls,
    make_authority,
    require_local_tls,
    require_readable,
    sign_server,
)

NAMES = ["192.168.1.20", "box", "box.local"]
NOW = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)


def server_of(found: LocalTls) -> x509.Certificate:
    return x509.load_pem_x509_certificate(found.server_file.read_bytes())


def authority_of(found: LocalTls) -> x509.Certificate:
    return x509.load_pem_x509_certificate(found.authority_file.read_bytes())


def shake_hands(found: LocalTls, name: str) -> None:
    """Connect a TLS client and a server in memory, as strictly as OpenSSL can."""
    server_context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server_context.load_cert_chain(found.server_file)
    device_context = ssl.create_default_context(cafile=str(found.authority_file))
    device_context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT
    to_server, to_device = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_context.wrap_bio(to_server, to_device, server_side=True)
    device = device_context.wrap_bio(to_device, to_server, server_hostname=name)
    done = 0
    while done < 2:
        done = 0
        for side in (device, server):
            try:
                side.do_handshake()
                done += 1
            except ssl.SSLWantReadError:
                pass


def test_devices_accept_it_under_every_name(tmp_path: Path) -> None:
    found = require_local_tls(tmp_path, NAMES)
    for name in NAMES:
        shake_hands(found, name)
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        shake_hands(found, "192.168.1.21")


def test_lifetimes(tmp_path: Path) -> None:
    found = require_local_tls(tmp_path, NAMES, NOW)
    server, authority = server_of(found), authority_of(found)
    assert server.not_valid_after_utc - server.not_valid_before_utc == 397 * DAY
    assert authority.not_valid_after_utc - authority.not_valid_before_utc == 3650 * DAY
    assert server.not_valid_before_utc < NOW and found.until == server.not_valid_after_utc


def test_only_the_owner_reads_the_files(tmp_path: Path) -> None:
    require_local_tls(tmp_path, NAMES)
    assert {path.name for path in tmp_path.iterdir()} == {"ca-with-key.pem", "server-with-key.pem", "ca.pem"}
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in tmp_path.iterdir())
    (tmp_path / "server-with-key.pem").chmod(0o644)
    require_local_tls(tmp_path, NAMES)
    assert (tmp_path / "server-with-key.pem").stat().st_mode & 0o777 == 0o600
    assert b"PRIVATE" not in (tmp_path / "ca.pem").read_bytes()


def test_a_restart_changes_nothing(tmp_path: Path) -> None:
    first = require_local_tls(tmp_path, NAMES, NOW)
    before = server_of(first)
    again = require_local_tls(tmp_path, NAMES, NOW + 366 * DAY)
    assert first.new_authority and not again.new_authority
    assert server_of(again) == before and again.fingerprint == first.fingerprint
    assert first.fingerprint.replace(":", "").lower() == authority_of(first).fingerprint(hashes.SHA256()).hex()


@pytest.mark.parametrize("days", [367, 500])
def test_a_server_certificate_is_renewed_in_its_last_30_days(tmp_path: Path, days: int) -> None:
    first = require_local_tls(tmp_path, NAMES, NOW)
    before = server_of(first)
    again = require_local_tls(tmp_path, NAMES, NOW + days * DAY)
    assert again.fingerprint == first.fingerprint and not again.new_authority
    assert server_of(again) != before and again.until > NOW + days * DAY + 300 * DAY


@pytest.mark.parametrize("names", [["192.168.1.21", "box", "box.local"], ["192.168.1.20", "other.local"]])
def test_other_addresses_or_names_need_another_certificate(tmp_path: Path, names: list[str]) -> None:
    first = require_local_tls(tmp_path, NAMES)
    again = require_local_tls(tmp_path, names)
    assert again.fingerprint == first.fingerprint, "owners trust the same authority as before"
    shake_hands(again, names[0])
    shake_hands(again, names[-1])


def test_a_name_that_the_authority_may_not_sign_is_left_out(tmp_path: Path) -> None:
    first = require_local_tls(tmp_path, NAMES)
    again = require_local_tls(tmp_path, ["192.168.1.20", "renamed", "renamed.local"])
    assert again.fingerprint == first.fingerprint
    shake_hands(again, "192.168.1.20")
    shake_hands(again, "renamed.local")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(again, "renamed")


def test_an_authority_ends_with_a_new_one_and_says_so(tmp_path: Path) -> None:
    first = require_local_tls(tmp_path, NAMES, NOW)
    late = require_local_tls(tmp_path, NAMES, NOW + 3500 * DAY)
    assert late.until == authority_of(first).not_valid_after_utc, "no certificate outlives its authority"
    again = require_local_tls(tmp_path, NAMES, NOW + 3630 * DAY)
    assert again.new_authority and again.fingerprint != first.fingerprint


def test_an_address_beyond_local_networks_needs_a_new_authority(tmp_path: Path) -> None:
    first = require_local_tls(tmp_path, NAMES)
    again = require_local_tls(tmp_path, ["203.0.113.7", "box"])
    assert again.new_authority and again.fingerprint != first.fingerprint
    shake_hands(again, "203.0.113.7")


def test_the_authority_cannot_speak_for_others(tmp_path: Path) -> None:
    now = dt.datetime.now(dt.UTC)
    authority = make_authority(NAMES, now)
    for name in ("bank.example", "203.0.113.7"):
        forged = sign_server(authority, [name], now)
        ca, server = tmp_path / "ca.pem", tmp_path / "server.pem"
        ca.write_bytes(authority.to_pem())
        server.write_bytes(forged.to_pem())
        found = LocalTls(authority_file=ca, server_file=server, fingerprint="", until=now, new_authority=True)
        with pytest.raises(ssl.SSLCertVerificationError, match="permitted subtree"):
            shake_hands(found, name)


def test_damaged_files_are_named(tmp_path: Path) -> None:
    require_local_tls(tmp_path, NAMES)
    path = tmp_path / "server-with-key.pem"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(BadInput, match=r"server-with-key\.pem is not a certificate with its key"):
        require_local_tls(tmp_path, NAMES)


def test_a_key_of_another_certificate_is_refused(tmp_path: Path) -> None:
    now = dt.datetime.now(dt.UTC)
    one, other = make_authority(NAMES, now), make_authority(NAMES, now)
    mixed = (
        one.to_pem().split(b"-----BEGIN CERTIFICATE")[0] + other.to_pem()[other.to_pem().index(b"-----BEGIN CERT") :]
    )
    (tmp_path / "ca-with-key.pem").write_bytes(mixed)
    with pytest.raises(BadInput, match="the key is not the certificate's"):
        require_local_tls(tmp_path, NAMES)
    with pytest.raises(BadInput, match="not a certificate with its key"):
        require_readable(tmp_path / "ca-with-key.pem", None)


def test_given_files_are_checked_before_anything_starts(tmp_path: Path) -> None:
    pair = make_authority(NAMES, dt.datetime.now(dt.UTC))
    good, key = tmp_path / "good.pem", tmp_path / "key.pem"
    good.write_bytes(pair.to_pem())
    require_readable(good, None)
    require_readable(good, good)
    with pytest.raises(BadInput, match=r"key\.pem does not exist"):
        require_readable(good, key)
    with pytest.raises(BadInput, match=r"none\.pem does not exist"):
        require_readable(tmp_path / "none.pem", good)
    locked = serialization.BestAvailableEncryption(b"secret")
    key.write_bytes(
        pair.key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked),
    )
    with pytest.raises(BadInput, match="protected by a password"):
        require_readable(good, key)
    key.write_text("nothing")
    with pytest.raises(BadInput, match="not a certificate with its key"):
        require_readable(good, key)
