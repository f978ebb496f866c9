"""Container and service files: what they name exists, and the commands in them are ours."""

import configparser
import fnmatch
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


def instructions(root: Path) -> list[tuple[str, str]]:
    """The Containerfile as pairs of instruction and arguments."""
    text = re.sub(r"^#.*\n", "", (root / "Containerfile").read_text(), flags=re.M).replace("\\\n", " ")
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in text.splitlines() if line)]


def of(root: Path, name: str) -> list[str]:
    return [rest for word, rest in instructions(root) if word == name]


def serve_options() -> set[str]:
    import typer

    from crowdml.cli.app import app

    command: Any = typer.main.get_command(app)
    return {spelling for option in command.commands["serve"].params for spelling in option.opts}


def unit(root: Path) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(root / "examples" / "systemd" / "crowdml.service")
    return parser


def sources(root: Path) -> Iterator[str]:
    for rest in of(root, "COPY"):
        if not rest.startswith("--from"):
            yield from rest.split()[:-1]


def test_what_the_container_copies_is_there_and_not_ignored(root: Path) -> None:
    kept = [line[1:] for line in (root / ".containerignore").read_text().splitlines() if line.startswith("!")]
    found = list(sources(root))
    assert "container.lock" in found and "src" in found
    for source in found:
        assert (root / source).exists(), source
        assert any(fnmatch.fnmatch(source, pattern) for pattern in kept), f"{source} is ignored"


def test_what_the_container_installs_is_pinned_and_exists(root: Path) -> None:
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    installs = [part.strip() for run in of(root, "RUN") for part in run.split("&&") if "pip install" in part]
    assert installs == [
        "pip install --require-hashes -r container.lock",
        "pip install --no-deps --no-index --no-build-isolation .",
    ]
    needs = [need for extra in ("server", "postgres", "onnx") for need in extras[extra]]
    locked = locked_names(root / "container.lock")
    assert {re.split(r"[\[>=<]", need)[0].lower() for need in [*needs, "hatchling"]} <= locked.keys()
    everything = locked_names(root / "requirements.lock")
    assert all(everything[name] == versions for name, versions in locked.items()), "the same versions as elsewhere"


def locked_names(path: Path) -> dict[str, set[str]]:
    """Return the versions of every package that a lock file has, each of which must have a hash."""
    found: dict[str, set[str]] = {}
    for entry in path.read_text().replace("\\\n", " ").splitlines():
        if not entry.startswith("#"):
            name, _, version = entry.split(";")[0].split("--hash")[0].strip().partition("==")
            found.setdefault(name, set()).add(version.strip())
            assert "--hash=sha256:" in entry, name
    return found


def test_the_container_starts_our_server_without_rights(root: Path) -> None:
    program, command, *options = json.loads(of(root, "ENTRYPOINT")[0])
    assert (program, command) == ("crowdml", "serve")
    assert {option for option in options if option.startswith("--")} <= serve_options()
    assert options[options.index("--port") + 1] == of(root, "EXPOSE")[0]
    words = [word for word, _ in instructions(root)]
    assert of(root, "USER") == ["crowdml"] and words.index("USER") < words.index("ENTRYPOINT")
    assert of(root, "VOLUME") == ["/data"] and "XDG_DATA_HOME=/data" in of(root, "ENV")[-1]
    health = json.loads(of(root, "HEALTHCHECK")[0].partition("CMD ")[2])
    assert f"COPY examples/container/health.py {health[1]}" in (root / "Containerfile").read_text()
    assert all(line.split()[0] == "${BASE}" for line in of(root, "FROM")), "a digest can be given"
    assert of(root, "ARG") == ["BASE=python:3.12-slim"], "no address of a registry"


def test_the_service_starts_our_server(root: Path) -> None:
    text = (root / "examples" / "systemd" / "crowdml.service").read_text()
    starts = re.findall(r"ExecStart=(.+)", text)
    assert len(starts) == 2
    for start in starts:
        program, command, *options = shlex.split(start)
        assert (program, command) == ("/opt/crowdml/bin/crowdml", "serve")
        assert {option for option in options if option.startswith("--")} <= serve_options()
    service = unit(root)["Service"]
    assert service["Restart"] == "always" and service["DynamicUser"] == "yes" and service["ProtectSystem"] == "strict"
    assert "XDG_DATA_HOME=%S" in service["Environment"] and service["StateDirectory"] == "crowdml"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_accepts_the_service(root: Path, tmp_path: Path) -> None:
    text = (root / "examples" / "systemd" / "crowdml.service").read_text()
    copy = tmp_path / "crowdml.service"
    copy.write_text(text.replace("/opt/crowdml/bin/crowdml", sys.executable))
    verified = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True)
    assert verified.returncode == 0 and not verified.stderr, verified.stderr
    command = ["systemd-analyze", "security", "--offline=yes", "--threshold=20", str(copy)]
    judged = subprocess.run(command, capture_output=True, text=True)
    assert judged.returncode == 0, f"exposed more than 2.0 of 10:\n{judged.stdout[-200:]}"
