"""What stands in `deploy/`: the files are whole, and the same parts work together as processes on loopback."""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml  # type: ignore[import-untyped]

from tests.docs.test_deployment import serve_options
from tests.end_to_end.test_caddy import _answers, caddy
from tests.support.ports import free_port
from tests.support.process import Process
from tests.support.served import WAIT_S, Member, Served, honest

__all__ = ["caddy"]

DEPLOY = Path(__file__).parents[2] / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
MANIFESTS: list[dict[str, Any]] = list(
    yaml.safe_load_all((DEPLOY / "kubernetes" / "crowdml.yaml").read_text(encoding="utf-8"))
)


@pytest.mark.parametrize(
    "manifest", MANIFESTS, ids=lambda manifest: manifest["kind"] + "-" + manifest["metadata"]["name"]
)
def test_a_manifest_fits_the_schema_of_kubernetes(manifest: dict[str, Any]) -> None:
    kubernetes_validate.validate(manifest, "1.34", strict=True)
    broken = {**manifest, "spec": {"no-such-key": 1}, "data": 1}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, "1.34", strict=True)


def test_manifests_name_each_other() -> None:
    found = {(each["kind"], each["metadata"]["name"]): each for each in MANIFESTS}
    front = found["StatefulSet", "crowdml"]["spec"]
    labels = front["template"]["metadata"]["labels"]
    assert ("Service", front["serviceName"]) in found
    for kind in ("Service", "PodDisruptionBudget"):
        selector = found[kind, "crowdml"]["spec"]["selector"]
        assert selector.get("matchLabels", selector) == labels
    (container,) = front["template"]["spec"]["containers"]
    options = [word for word in container["args"] if word.startswith("--")]
    assert set(options) <= serve_options()
    names = found["ConfigMap", "crowdml"]["data"]
    assert all(word.startswith("--") or word[2:-1] in names for word in container["args"])
    (rule,) = found["Ingress", "crowdml"]["spec"]["rules"]
    assert names["CROWDML_ADDRESS"] == f"https://{rule['host']}"


def test_the_compose_file_names_what_there_is() -> None:
    services = COMPOSE["services"]
    fronts = [name for name in services if name.startswith("front-")]
    assert len(fronts) == 2
    for name in fronts:
        front = services[name]
        assert (DEPLOY / front["build"]["context"] / front["build"]["dockerfile"]).exists()
        assert {word for word in front["command"] if word.startswith("--")} <= serve_options()
        assert front["restart"] == "always" and set(front["depends_on"]) <= set(services)
        assert front["command"][3] == COMPOSE["networks"]["inside"]["ipam"]["config"][0]["subnet"]
    assert services["caddy"]["environment"]["CROWDML_FRONTS"].split() == [f"{name}:8800" for name in fronts]
    used = {volume.partition(":")[0] for each in services.values() for volume in each.get("volumes", ())}
    assert {name for name in used if not name.startswith(".")} == set(COMPOSE["volumes"])
    assert "./Caddyfile:/etc/caddy/Caddyfile:ro" in services["caddy"]["volumes"] and (DEPLOY / "Caddyfile").exists()
    assert "./crowds:/etc/caddy/crowds:ro" in services["caddy"]["volumes"] and (DEPLOY / "crowds").is_dir()


class Deployed(Served):
    """Two front ends of one database, by the options of `deploy/compose.yaml`; Caddy leads to them."""

    client: httpx.Client

    def __init__(self, folder: Path, database: str) -> None:
        folder.mkdir(exist_ok=True)
        self.port = free_port()
        self.address = f"https://localhost:{self.port}"
        places = {"--db": database, "--behind-proxy": "127.0.0.1", "--address": self.address}
        command = COMPOSE["services"]["front-1"]["command"]
        options = [word if word.startswith("--") else places[command[at - 1]] for at, word in enumerate(command)]
        self.fronts = [Process(folder / "front-1", None, *options)]
        (folder / "front-2").mkdir(mode=0o700)
        shutil.copy(folder / "front-1" / "operator.token", folder / "front-2")
        self.fronts.append(Process(folder / "front-2", None, *options))
        self.token = self.fronts[0].token

    @property
    def names(self) -> str:
        """Where Caddy finds them."""
        return " ".join(front.address.removeprefix("http://") for front in self.fronts)

    def send(self, method: str, path: str, **more: Any) -> httpx.Response:
        return self.client.request(method, path, **more)

    def send_patiently(self, member: Member, number: int) -> httpx.Response:
        """Check in again and again until somebody stores it."""
        end, body = time.monotonic() + 3 * WAIT_S, honest(member.live, number)
        while (done := member.check_in(body, f"key-{number:06d}")).status_code >= 500:
            assert time.monotonic() < end, done.text
            time.sleep(0.1)
        return done

    def kill(self) -> None:
        for front in self.fronts:
            front.process.kill()
            front.process.wait()


class Caddy:
    """Debian's Caddy with the configuration of `deploy/`: the first crowd by its variables, others by files."""

    def __init__(self, program: str, folder: Path, crowds: Sequence[Deployed]) -> None:
        (folder / "crowds").mkdir()
        shutil.copy(DEPLOY / "Caddyfile", folder)
        example = (DEPLOY / "crowds" / "walk.caddy.example").read_text()
        for number, crowd in enumerate(crowds[1:]):
            block = example.replace("walk.crowd.example", crowd.address).replace("walk-1:8800 walk-2:8800", crowd.names)
            (folder / "crowds" / f"{number}.caddy").write_text(block)
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "XDG_DATA_HOME": str(folder / "caddy"),
            "CROWDML_NAME": crowds[0].address,
            "CROWDML_FRONTS": crowds[0].names,
            "CADDY_TLS": "tls internal",
            "CADDY_OPTIONS": "skip_install_trust\n\tauto_https disable_redirects",
        }
        run = [program, "run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile"]
        self.log = folder / "caddy.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(run, env=environment, stdout=log, stderr=log)
        self.folder, self.crowds = folder, crowds

    def wait(self) -> None:
        """Wait until it leads to all crowds."""
        authority = self.folder / "caddy" / "caddy" / "pki" / "authorities" / "local" / "root.crt"
        give_up = time.monotonic() + 3 * WAIT_S
        for crowd in self.crowds:
            while not (authority.exists() and _answers(crowd.port, authority)):
                assert self.process.poll() is None and time.monotonic() < give_up, self.log.read_text()[-2000:]
                time.sleep(0.05)
            trusted = ssl.create_default_context(cafile=str(authority))
            crowd.client = httpx.Client(base_url=crowd.address, verify=trusted, timeout=WAIT_S)
            while crowd.send("GET", "/v1/tasks").status_code != 200:
                assert time.monotonic() < give_up, self.log.read_text()[-2000:]
                time.sleep(0.05)

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(WAIT_S)


Deploy = Callable[[int], list[Deployed]]


@pytest.fixture
def deploy(caddy: str, postgres: Any, tmp_path: Path) -> Iterator[Deploy]:
    """Deploy so many crowds behind one Caddy, each on a database of its own."""
    with ExitStack() as stack:

        def made(count: int) -> list[Deployed]:
            crowds = []
            for number in range(count):
                crowds.append(Deployed(tmp_path / f"crowd-{number}", postgres.database()))
                stack.callback(crowds[-1].kill)
            leading = Caddy(caddy, tmp_path, crowds)
            stack.callback(leading.close)
            leading.wait()
            for crowd in crowds:
                stack.callback(crowd.client.close)
            return crowds

        yield made


@pytest.mark.postgres
def test_devices_are_served_through_caddy_whichever_front_end_is_lost(deploy: Deploy) -> None:
    (deployed,) = deploy(1)
    deployed.create()
    member = deployed.device()
    assert member.link.server == deployed.address, "invites lead to the proxy"
    for number in range(10):
        assert int(member.check_out().headers["crowdml-version"]) == number
        done = member.check_in(honest(member.live, number), f"key-{number:06d}")
        assert (done.status_code, done.json()["version"]) == (200, number + 1)
    deployed.fronts[0].process.kill()  # it started first, so it aggregates
    done = deployed.send_patiently(member, 10)
    assert done.status_code == 200 and done.json()["number"] == 11
    assert deployed.show()["version"] == 11


@pytest.mark.postgres
def test_a_busy_task_has_a_database_and_an_aggregator_of_its_own(deploy: Deploy) -> None:
    """Two crowds in one PostgreSQL, behind one Caddy: what happens to one is no matter of the other's."""
    first, second = deploy(2)
    members = []
    for crowd in (first, second):
        crowd.create()
        members.append(crowd.device())
        assert members[-1].link.server == crowd.address, "an invite leads to the crowd of its task"
    for number in range(5):
        assert all(
            crowd.send_patiently(member, number).status_code == 200
            for crowd, member in zip((first, second), members, strict=True)
        )
    for crowd in (first, second):
        mine = [httpx.get(f"{front.address}/metrics").text for front in crowd.fronts]
        assert all('crowdml_stored_total{task="walk"} 5' in told for told in mine), "each has an aggregator"
    for front in first.fronts:
        front.process.kill()
    done = second.send_patiently(members[1], 5)
    assert (done.status_code, done.json()["version"]) == (200, 6)
    stranger = second.send("GET", "/v1/tasks/walk/check-out", headers=members[0].bearer)
    assert stranger.status_code == 401, "devices of the one are strangers to the other"
