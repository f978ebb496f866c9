"""Checksums of a release's files, and their signature by an SSH key."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

NAMESPACE = "crowdml-release"
"""What a signature is for: one that the same key has made for something else is refused."""

SUMS = "SHA256SUMS"


class Refused(Exception):
    """Something that is asked for cannot be done, in one sentence."""


def write_sums(folder: Path, names: Iterable[str]) -> Path:
    """Write the file that `sha256sum --check` reads."""
    lines = [f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in sorted(names)]
    path = folder / SUMS
    path.write_text("".join(lines), encoding="utf-8")
    return path


def check_sums(folder: Path) -> list[str]:
    """Return the names of files that are not what the checksums say, or not there."""
    wrong = []
    for line in (folder / SUMS).read_text(encoding="utf-8").splitlines():
        digest, _, name = line.partition("  ")
        path = folder / Path(name).name
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            wrong.append(name)
    return wrong


def sign(sums: Path, key: Path) -> Path:
    """Sign the checksums; return the signature's file."""
    signature = sums.with_name(sums.name + ".sig")
    signature.unlink(missing_ok=True)
    _keygen("-Y", "sign", "-q", "-f", str(key), "-n", NAMESPACE, str(sums))
    return signature


def verify(sums: Path, signers: Path, identity: str) -> bool:
    """Tell whether one of the allowed signers has signed the checksums."""
    signature = str(sums.with_name(sums.name + ".sig"))
    command = ("-Y", "verify", "-f", str(signers), "-I", identity, "-n", NAMESPACE, "-s", signature)
    try:
        _keygen(*command, content=sums.read_bytes())
    except Refused:
        return False
    return True


def _keygen(*arguments: str, content: bytes = b"") -> None:
    program = shutil.which("ssh-keygen")
    if program is None:
        raise Refused("ssh-keygen is not here; on Debian: apt-get install openssh-client")
    done = subprocess.run([program, *arguments], input=content, capture_output=True, check=False)  # noqa: S603
    if done.returncode:
        raise Refused(f"ssh-keygen: {done.stderr.decode(errors='replace').strip() or done.stdout.decode().strip()}")
