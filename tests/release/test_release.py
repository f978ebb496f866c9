"""A release: the bill of materials is complete, checksums and signature hold, and a second build has the same bytes."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import re
import subprocess
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from release import build, checksums, sbom

ROOT = Path(__file__).parents[2]
WHEN = "2026-11-17T00:00:00Z"


@pytest.fixture(scope="module")
def bill() -> dict[str, Any]:
    return sbom.sbom(ROOT, "1.2.3", WHEN)


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_bill_has_every_package_that_is_installed(bill: dict[str, Any]) -> None:
    listed = {(normal(each["name"]), each["version"]) for each in bill["components"]}
    brought = {"crowdml", "pip", "setuptools", "uv", "wheel"}  # the project, and what installs
    installed = {(normal(each.name), each.version) for each in importlib.metadata.distributions()}
    missing = {each for each in installed if each[0] not in brought} - listed
    assert not missing, f"installed, and not in the lock: {missing}"


def test_the_bill_has_every_line_of_the_lock_and_its_hashes(bill: dict[str, Any]) -> None:
    text = (ROOT / "requirements.lock").read_text()
    entries = re.findall(r"^([\w.-]+)==([^\s;]+)", text, flags=re.M)
    assert len(entries) > 100
    assert sorted(entries) == sorted((each["name"], each["version"]) for each in bill["components"])
    hashes = [told["value"] for each in bill["components"] for told in each["properties"] if "sha256" in told["name"]]
    assert sorted(hashes) == sorted(re.findall(r"sha256:([0-9a-f]{64})", text))
    references = [each["bom-ref"] for each in bill["components"]]
    assert len(set(references)) == len(references)
    assert set(bill["dependencies"][0]["dependsOn"]) <= set(references)
    direct = {normal(each.split("@")[0].removeprefix("pkg:pypi/")) for each in bill["dependencies"][0]["dependsOn"]}
    assert {"numpy", "cryptography", "typer", "pydantic"} <= direct and "ray" not in direct


def test_the_bill_is_cyclonedx_and_the_same_every_time(bill: dict[str, Any]) -> None:
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", bill["serialNumber"])
    assert bill == sbom.sbom(ROOT, "1.2.3", WHEN)
    assert bill["serialNumber"] != sbom.sbom(ROOT, "1.2.4", WHEN)["serialNumber"]
    scopes = {each["name"]: each["scope"] for each in bill["components"]}
    assert scopes["fastapi"] == scopes["numpy"] == "required" and scopes["pytest"] == scopes["ray"] == "optional"


@pytest.mark.parametrize("line", ["numpy>=2", "numpy==2.0", "./local --hash=sha256:" + "0" * 64])
def test_a_lock_with_something_else_in_it_is_refused(line: str, tmp_path: Path) -> None:
    (tmp_path / "some.lock").write_text(f"# comment\n{line}\n")
    with pytest.raises(ValueError, match="no package with hashes"):
        sbom.read_lock(tmp_path / "some.lock")


def test_no_lock_names_a_host() -> None:
    for path in ROOT.glob("*.lock"):
        assert "://" not in path.read_text(), path.name
        assert len(sbom.read_lock(path)) > 0


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("key") / "release"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(path)], check=True)
    return path


def test_a_release_is_whole_signed_and_built_the_same_again(key: Path, tmp_path: Path) -> None:
    names = build.build(tmp_path / "one", key, 1_700_000_000)
    wheel, source = (next(name for name in names if name.endswith(end)) for end in (".whl", ".tar.gz"))
    assert {"SHA256SUMS", "SHA256SUMS.sig"} < set(names) and len(names) == 5
    again = build.build(tmp_path / "two", None, 1_700_000_000)
    assert set(names) - set(again) == {"SHA256SUMS.sig"}
    for name in again:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name
    with zipfile.ZipFile(tmp_path / "one" / wheel) as archive:
        assert "crowdml/version.py" in archive.namelist()
    with tarfile.open(tmp_path / "one" / source) as archive:
        assert any(name.endswith("/requirements.lock") for name in archive.getnames())
    listed = dict(line.split("  ")[::-1] for line in (tmp_path / "one" / "SHA256SUMS").read_text().splitlines())
    assert listed.keys() == set(names) - {"SHA256SUMS", "SHA256SUMS.sig"}
    assert listed[wheel] == hashlib.sha256((tmp_path / "one" / wheel).read_bytes()).hexdigest()
    bill = json.loads((tmp_path / "one" / next(name for name in names if name.endswith(".cdx.json"))).read_text())
    assert bill["metadata"]["timestamp"] == "2023-11-14T22:13:20Z"


def test_what_was_changed_is_found(key: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    sums = checksums.write_sums(tmp_path, ["file"])
    checksums.sign(sums, key)
    signers = tmp_path / "signers"
    signers.write_text(f"maker@crowd.example {key.with_suffix('.pub').read_text()}")
    assert checksums.check_sums(tmp_path) == [] and checksums.verify(sums, signers, "maker@crowd.example")
    assert not checksums.verify(sums, signers, "other@crowd.example")
    (tmp_path / "file").write_bytes(b"Content")
    assert checksums.check_sums(tmp_path) == ["file"]
    checksums.write_sums(tmp_path, ["file"])
    assert not checksums.verify(sums, signers, "maker@crowd.example"), "signed was something else"
    with pytest.raises(checksums.Refused, match="ssh-keygen"):
        checksums.sign(sums, tmp_path / "no key")
