"""Local TLS: a certificate authority for a local network, and the server's certificate that it signs.

Browsers and devices speak to a server beyond their own machine only over TLS, and no public authority signs for
192.168.1.20. So the server makes an authority that owners decide to trust, once, after comparing its fingerprint. The
authority is allowed to sign for local names and addresses only: whoever steals its key cannot pretend to be a bank.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from crowdml.core import BadInput, record
from crowdml.core.files import write_whole

AUTHORITY_DAYS = 3650
SERVER_DAYS = 397
RENEW_DAYS = 30
SKEW = dt.timedelta(hours=1)
"""Clocks of devices may be late by so much."""
LOCAL_NETWORKS = (
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "169.254.0.0/16",
    "100.64.0.0/10",
    "fc00::/7",
    "fe80::/10",
)
FILES = ("ca-with-key.pem", "server-with-key.pem", "ca.pem")
"""The authority's key and certificate, the server's, and the authority's certificate alone."""
_DAY = dt.timedelta(days=1)


@record
class Pair:
    """A certificate with its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def to_pem(self) -> bytes:
        """Write both into one text, so that they can be replaced together."""
        secret = self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return secret + self.certificate.public_bytes(serialization.Encoding.PEM)


@record
class LocalTls:
    """What a server on a local network uses.

    Attributes:
        authority_file: The authority's certificate, PEM: what owners trust.
        server_file: The server's certificate and its key, PEM.
        fingerprint: SHA-256 of the authority's certificate, as browsers show it.
        until: When the server's certificate ends.
        new_authority: Whether the authority was made just now, so that nobody trusts it yet.
    """

    authority_file: Path
    server_file: Path
    fingerprint: str
    until: dt.datetime
    new_authority: bool


def require_local_tls(folder: Path, names: Sequence[str], now: dt.datetime | None = None) -> LocalTls:
    """Return the certificates in a folder; make or renew what is missing, nearly over, or for other names.

    Args:
        folder: Where they are kept; keys can be read by the owner of the files alone.
        names: Addresses and host names under which the server is reached; the first one must be in its certificate.
        now: For tests: the time, UTC.
    """
    now = now or dt.datetime.now(dt.UTC)
    authority_place, server_place, public_place = (folder / name for name in FILES)
    authority = _read(authority_place)
    new = authority is None or not _usable(authority, now) or not _may_sign(authority.certificate, names[0])
    if authority is None or new:
        authority = make_authority(names, now)
        write_whole(authority_place, authority.to_pem(), secret=True)
    # A machine that was given another name keeps the authority that owners trust, and is reached by its address.
    names = [name for name in names if _may_sign(authority.certificate, name)]
    server = _read(server_place)
    if server is None or new or not _usable(server, now) or not _fits(server.certificate, authority, names):
        server = sign_server(authority, names, now)
        write_whole(server_place, server.to_pem(), secret=True)
    write_whole(public_place, authority.certificate.public_bytes(serialization.Encoding.PEM), secret=True)
    return LocalTls(
        authority_file=public_place,
        server_file=server_place,
        fingerprint=authority.certificate.fingerprint(hashes.SHA256()).hex(":").upper(),
        until=server.certificate.not_valid_after_utc,
        new_authority=new,
    )


def require_readable(certificate: Path, key: Path | None) -> None:
    """Refuse files from which no TLS server can be made, before anything is started."""

    def no_password() -> str:
        raise BadInput(f"{key or certificate} is protected by a password", hint="give a key without one, mode 0600")

    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key, no_password)
    except FileNotFoundError:
        missing = certificate if not certificate.exists() else key
        raise BadInput(f"{missing} does not exist", where="--tls-cert, --tls-key") from None
    except OSError as error:  # ssl.SSLError is one
        text = error.strerror or str(error)
        raise BadInput(f"not a certificate with its key: {text}", where="--tls-cert, --tls-key") from None


def make_authority(names: Sequence[str], now: dt.datetime) -> Pair:
    """Make an authority that may sign for these names and for whatever is local."""
    key = ec.generate_private_key(ec.SECP256R1())
    permitted = [_subtree(name) for name in dict.fromkeys((*LOCAL_NETWORKS, "local", *names))]
    usage = _usage(key_cert_sign=True, crl_sign=True)
    begun = _begin("crowdml authority", key, now, AUTHORITY_DAYS)
    made = (
        begun.issuer_name(_name("crowdml authority", key))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.NameConstraints(permitted_subtrees=permitted, excluded_subtrees=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Pair(certificate=made, key=key)


def sign_server(authority: Pair, names: Sequence[str], now: dt.datetime) -> Pair:
    """Make a server's certificate for these names."""
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.SubjectKeyIdentifier.from_public_key(authority.key.public_key())
    made = (
        _begin("crowdml server", key, now, SERVER_DAYS, authority.certificate.not_valid_after_utc)
        .issuer_name(authority.certificate.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer), critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    return Pair(certificate=made, key=key)


def _begin(
    title: str, key: ec.EllipticCurvePrivateKey, now: dt.datetime, days: int, latest: dt.datetime | None = None
) -> x509.CertificateBuilder:
    start = now.replace(microsecond=0) - SKEW
    end = start + days * _DAY
    return (
        x509.CertificateBuilder()
        .subject_name(_name(title, key))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end if latest is None else min(end, latest))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _name(title: str, key: ec.EllipticCurvePrivateKey) -> x509.Name:
    """Name a certificate so that two authorities on one phone can be told apart."""
    mark = x509.SubjectKeyIdentifier.from_public_key(key.public_key()).digest.hex()[:8]
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{title} {mark}")])


def _usage(*, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _subtree(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_network(name))
    except ValueError:
        return x509.DNSName(name)


def _read(path: Path) -> Pair | None:
    """Read a pair; None if there is none, or one whose halves do not belong together."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from None
    try:
        certificate = x509.load_pem_x509_certificate(text)
        key = serialization.load_pem_private_key(text, password=None)
    except ValueError:
        raise BadInput(f"{path} is not a certificate with its key", hint="remove it: a new one is made") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise BadInput(f"{path}: the key is not the certificate's", hint="remove it: a new one is made")
    path.chmod(0o600)
    return Pair(certificate=certificate, key=key)


def _usable(pair: Pair, now: dt.datetime) -> bool:
    found = pair.certificate
    return found.not_valid_before_utc <= now and now + RENEW_DAYS * _DAY < found.not_valid_after_utc


def _fits(found: x509.Certificate, authority: Pair, names: Sequence[str]) -> bool:
    """Tell whether a certificate is for exactly these names, and signed by this authority."""
    signed_names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    try:
        found.verify_directly_issued_by(authority.certificate)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return set(signed_names) == {_general(name) for name in names}


def _may_sign(authority: x509.Certificate, name: str) -> bool:
    permitted = authority.extensions.get_extension_for_class(x509.NameConstraints).value.permitted_subtrees or []
    return any(_covers(subtree, name) for subtree in permitted)


def _covers(subtree: x509.GeneralName, name: str) -> bool:
    wanted = _general(name)
    if isinstance(wanted, x509.IPAddress) and isinstance(subtree, x509.IPAddress):
        return wanted.value in subtree.value  # type: ignore[operator]
    if isinstance(wanted, x509.DNSName) and isinstance(subtree, x509.DNSName):
        return f".{wanted.value}".endswith(f".{subtree.value}")
    return False
