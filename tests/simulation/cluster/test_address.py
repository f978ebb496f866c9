"""What --on says, and what is refused before Ray is asked."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from typer.testing import CliRunner

from crowdml.cli.app import app
from crowdml.core import BadInput
from crowdml.simulation.cluster import connection
from crowdml.simulation.cluster.address import Place, has_token, read_place, require_guarded
from crowdml.simulation.cluster.hiring import hire
from crowdml.simulation.workers.crew import HERE

EXAMPLE = str(Path(__file__).parents[3] / "examples" / "digits.toml")


@pytest.fixture(autouse=True)
def no_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_USE_TLS"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("on", "address", "host"),
    [
        ("ray", "", ""),
        ("ray://head", "ray://head:10001", "head"),
        ("ray://[::1]:7", "ray://[::1]:7", "::1"),
        ("10.1.2.3:6379", "10.1.2.3:6379", "10.1.2.3"),
    ],
)
def test_places(on: str, address: str, host: str) -> None:
    assert read_place(on) == Place(address=address, host=host)


@pytest.mark.parametrize("on", ["", "head", "head:", "head:port", "head:0", "head:65536", ":6379", "http://head:80/x"])
def test_what_is_no_cluster_is_refused(on: str) -> None:
    with pytest.raises(BadInput, match="is no cluster"):
        read_place(on)


@pytest.mark.parametrize("on", ["ray", "127.0.0.1:6379", "127.8.0.1:6379", "ray://localhost:10001", "ray://[::1]:7"])
def test_this_machine_needs_no_token(on: str) -> None:
    require_guarded(read_place(on))


@pytest.mark.parametrize(
    "on", ["10.0.0.1:6379", "ray://crowd.example", "ray://localhost.crowd.example:7", "[::2]:6379"]
)
def test_others_need_a_token_or_tls(on: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    place = read_place(on)
    with pytest.raises(BadInput, match="neither a token nor TLS guards it"):
        require_guarded(place)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    assert not has_token(), "there is no such file"
    (tmp_path / "token").write_text("secret")
    require_guarded(place)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with pytest.raises(BadInput, match="neither a token nor TLS"):
        require_guarded(place)
    monkeypatch.setenv("RAY_USE_TLS", "1")
    require_guarded(place)


def test_a_cluster_of_our_own_has_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ray:
        def is_initialized(self) -> bool:
            return False

    monkeypatch.setattr(connection, "import_ray", Ray)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with pytest.raises(BadInput, match="open to everybody"), hire("ray"):
        pass


@pytest.mark.parametrize("command", [["simulate", EXAMPLE], ["compare", EXAMPLE, "--vary", "algorithm.batch=1,2"]])
def test_without_ray_one_sentence_says_so(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "ray" else find(name, *rest))
    with pytest.raises(BadInput, match="Ray is not installed here") as refused:
        CliRunner().invoke(app, [*command, "--on", "ray"], catch_exceptions=False)
    assert refused.value.where == "--on" and "[ray]" in refused.value.hint


def test_here_is_the_crew_of_this_machine() -> None:
    with hire(None) as one, hire(one) as other:
        assert one is HERE and other is HERE
