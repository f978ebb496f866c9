"""The bill of materials: every package of the lock file, as CycloneDX JSON.

It is made of files alone, so it is the same wherever it is made.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
ENTRY = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)\s*(?:;\s*(.*?))?\s*(?=--hash)")


@dataclass(frozen=True)
class Locked:
    """A package of the lock file.

    Attributes:
        name: As registries spell it.
        version: Exactly this one.
        marker: On which machines; empty: on all.
        hashes: SHA-256 of every file that may be installed for it.
    """

    name: str
    version: str
    marker: str
    hashes: tuple[str, ...]


def read_lock(path: Path) -> list[Locked]:
    """Read a lock file; what is no package with hashes is refused."""
    found = []
    for line in path.read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
        if line.startswith("#") or not line.strip():
            continue
        entry, hashes = ENTRY.match(line), tuple(HASH.findall(line))
        if entry is None or not hashes:
            raise ValueError(f"{path}: no package with hashes: {line[:80]}")
        found.append(Locked(entry[1], entry[2], (entry[3] or "").strip(), hashes))
    return found


def sbom(root: Path, version: str, made: str) -> dict[str, Any]:
    """Return the bill of materials of a version.

    Args:
        root: The checkout.
        version: Of the project.
        made: When, as ISO 8601: the commit's time, so that it is the same wherever it is made.
    """
    server = {(each.name, each.version) for each in read_lock(root / "container.lock")}
    direct = _direct(root)
    components = [_component(each, server, direct) for each in read_lock(root / "requirements.lock")]
    project = {"type": "application", "bom-ref": "crowdml", "name": "crowdml", "version": version}
    content: dict[str, Any] = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": made,
            "component": project
            | {"purl": f"pkg:pypi/crowdml@{version}", "licenses": [{"license": {"id": "Apache-2.0"}}]},
            "properties": [{"name": "crowdml:browser", "value": "the browser device has no dependencies at run time"}],
        },
        "components": components,
        "dependencies": [
            {"ref": "crowdml", "dependsOn": sorted(each["bom-ref"] for each in components if each["name"] in direct)}
        ],
    }
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return content | {"serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, digest)}"}


def _component(each: Locked, server: set[tuple[str, str]], direct: set[str]) -> dict[str, Any]:
    purl = f"pkg:pypi/{each.name}@{each.version}"
    told = [("crowdml:lock:marker", each.marker)] if each.marker else []
    told += [("crowdml:lock:sha256", digest) for digest in each.hashes]
    return {
        "type": "library",
        "bom-ref": purl,
        "name": each.name,
        "version": each.version,
        "purl": purl,
        # A server has these; the rest is for simulations, building and testing.
        "scope": "required" if (each.name, each.version) in server or each.name in direct else "optional",
        "properties": [{"name": name, "value": value} for name, value in told],
    }


def _direct(root: Path) -> set[str]:
    """Return what the package itself asks for, without extras."""
    asked = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    return set(_names(asked))


def _names(requirements: list[str]) -> Iterator[str]:
    for requirement in requirements:
        yield re.split(r"[\[<>=!~; ]", requirement, maxsplit=1)[0].lower().replace("_", "-")
