"""Where a server can be reached: never further than was asked for, never without TLS by accident."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from crowdml.core import BadInput
from crowdml.server.setup import serve_options
from crowdml.server.setup.serve_options import Endpoint, ServeOptions, endpoint_of

FILES = {"tls_cert": Path("c.pem"), "tls_key": Path("k.pem")}


def of(**options: Any) -> Endpoint:
    return endpoint_of(ServeOptions(**options), find=lambda: "192.168.1.20", host_name="Box.Example.org")


def test_by_default_only_this_machine_reaches_it() -> None:
    found = of()
    assert (found.host, found.scheme, found.names) == ("127.0.0.1", "http", ())
    assert found.hosts == {"127.0.0.1", "localhost", "[::1]"}
    assert found.local_address(8800) == "http://127.0.0.1:8800"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_loopback_needs_no_tls(host: str) -> None:
    assert of(host=host).scheme == "http"


@pytest.mark.parametrize("host", ["192.168.1.20", "0.0.0.0", "::", "203.0.113.7", "box.example.org", "fe80::1"])
def test_beyond_this_machine_tls_is_needed(host: str) -> None:
    with pytest.raises(BadInput, match="is beyond this machine") as caught:
        of(host=host)
    assert caught.value.where == "--host"
    for way in ("--lan", "--tls-cert", "--behind-proxy", "--insecure"):
        assert way in caught.value.hint
    assert of(host=host, insecure=True).scheme == "http"
    assert of(host=host, **FILES).scheme == "https"
    assert of(host=host, behind_proxy="10.0.0.1", address="https://crowd.example").scheme == "http"


def test_lan_says_one_address_and_its_names() -> None:
    found = of(lan=True)
    assert (found.host, found.scheme) == ("192.168.1.20", "https")
    assert found.names == ("192.168.1.20", "box.example.org", "box.local")
    assert set(found.names) <= found.hosts
    assert found.local_address(8800) == "https://192.168.1.20:8800"


def test_lan_takes_the_address_it_is_given() -> None:
    assert of(lan=True, host="10.1.2.3").names[0] == "10.1.2.3"
    found = of(lan=True, host="fd00::5")
    assert found.local_address(1) == "https://[fd00::5]:1" and "[fd00::5]" in found.hosts


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "127.0.0.1", "localhost"])
def test_lan_never_listens_everywhere_or_nowhere(host: str) -> None:
    with pytest.raises(BadInput, match="--lan listens on one address"):
        of(lan=True, host=host)


def test_a_name_that_is_no_host_name_is_left_out() -> None:
    found = endpoint_of(ServeOptions(lan=True), find=lambda: "192.168.1.20", host_name="my_box ")
    assert found.names == ("192.168.1.20",)


@pytest.mark.parametrize(
    "options",
    [
        {"lan": True, **FILES},
        {"lan": True, "insecure": True},
        {"insecure": True, **FILES},
        {"lan": True, "behind_proxy": "127.0.0.1", "address": "https://a"},
    ],
)
def test_ways_exclude_each_other(options: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="exclude each other"):
        of(**options)


@pytest.mark.parametrize("half", ["tls_cert", "tls_key"])
def test_certificate_and_key_belong_together(half: str) -> None:
    with pytest.raises(BadInput, match="belong together"):
        of(**{half: Path("x")})


def test_behind_a_proxy_invites_carry_its_address() -> None:
    found = of(behind_proxy="127.0.0.1, 10.0.0.0/8", address="https://crowd.example/")
    assert found.address == "https://crowd.example" and "crowd.example" in found.hosts
    assert found.local_address(8800) == "http://127.0.0.1:8800", "commands on this machine do not go through the proxy"
    with pytest.raises(BadInput, match="under which address the proxy is reached"):
        of(behind_proxy="127.0.0.1")
    with pytest.raises(BadInput, match="under which address the proxy is reached"):
        of(behind_proxy="127.0.0.1", address="http://crowd.example")
    with pytest.raises(BadInput, match="is not an address"):
        of(behind_proxy="proxy", address="https://crowd.example")


@pytest.mark.parametrize(
    "address", ["crowd.example", "ftp://crowd.example", "https://", "https://a/?x=1", "https://a#b"]
)
def test_an_address_is_an_address(address: str) -> None:
    with pytest.raises(BadInput, match="is not an address"):
        of(address=address)


def test_with_tls_this_machine_uses_the_name_of_the_certificate() -> None:
    assert of(address="https://crowd.example", **FILES).local_address(8800) == "https://crowd.example"
    assert of(host="0.0.0.0", **FILES).local_address(8800) == "https://127.0.0.1:8800"
    assert of(host="::", **FILES).local_address(8800) == "https://[::1]:8800"


def test_everywhere_is_no_name() -> None:
    assert "0.0.0.0" not in of(host="0.0.0.0", insecure=True).hosts


@pytest.mark.parametrize("answer", ["127.0.0.1", "0.0.0.0", None])
def test_a_machine_without_network_says_so(monkeypatch: pytest.MonkeyPatch, answer: str | None) -> None:
    class Unconnected(socket.socket):
        def connect(self, address: Any) -> None:
            if answer is None:
                raise OSError("unreachable")

        def getsockname(self) -> Any:
            return (answer, 1)

    monkeypatch.setattr("crowdml.server.setup.serve_options.socket.socket", Unconnected)
    with pytest.raises(BadInput, match="in no network") as caught:
        serve_options.lan_address()
    assert caught.value.hint == "say which address: --host ADDRESS"
