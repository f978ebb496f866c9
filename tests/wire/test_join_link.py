"""Joining: links that people copy, and requests that devices sign."""

from __future__ import annotations

import pytest

from crowdml.core import BadInput
from crowdml.core.errors import NotAuthorised
from crowdml.core.keys import SigningKey
from crowdml.wire.join_link import InviteLink, make_code, make_token, sign_enrolment, verify_enrolment

LINK = InviteLink(server="https://crowd.example:8800", task="digits", code="c" * 32, key="k" * 32, task_hash="5" * 64)
URL = LINK.to_url()


@pytest.mark.parametrize(
    "server", ["http://127.0.0.1:1", "https://crowd.example", "https://[::1]:8800", "https://a.b/path/to"]
)
def test_a_link_comes_back_as_it_was(server: str) -> None:
    link = InviteLink(**{**vars(LINK), "server": server})
    assert InviteLink.parse(link.to_url()) == link
    assert InviteLink.parse(link.to_url().replace("/digits#", "/digits/#")) == link


def test_the_secret_is_in_the_part_that_no_server_sees() -> None:
    before, _, after = URL.partition("#")
    assert LINK.code not in before and LINK.code in after and before == "https://crowd.example:8800/join/digits"


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("", "is not an invite"),
        ("digits", "is not an invite"),
        ("https://crowd.example/", "is not an invite"),
        ("https://crowd.example/tasks/digits#code=a&key=b&hash=c", "is not an invite"),
        ("https:///join/digits#code=a&key=b&hash=c", "is not an invite"),
        ("ftp://crowd.example/join/digits#code=a&key=b&hash=c", "is not an invite"),
        ("file:///join/digits#code=a&key=b&hash=c", "is not an invite"),
        ("javascript:alert(1)//join/digits#code=a&key=b&hash=c", "is not an invite"),
        (URL.partition("#")[0], "it lacks code, key, hash"),
        (URL.partition("&")[0], "it lacks key, hash"),
        (URL.replace("key=", "keys="), "it lacks key"),
        (URL.replace(f"code={LINK.code}", "code="), "it lacks code"),
        (URL.replace("/digits", "/DIGITS"), "is no name of a task"),
        (URL.replace("/digits", "/-"), "is no name of a task"),
        (URL.replace("/digits", "/%2e%2e"), "is no name of a task"),
        (URL.replace("/digits", "/" + "a" * 64), "is no name of a task"),
        ("https://[crowd.example/join/digits#code=a&key=b&hash=c", "is not an invite"),
        ("https://crowd.example:99999/join/digits#code=a&key=b&hash=c", "is not an invite"),
        ("https://crowd.example:x/join/digits#code=a&key=b&hash=c", "is not an invite"),
        ("https://:8800/join/digits#code=a&key=b&hash=c", "is not an invite"),
    ],
)
def test_a_link_that_is_none_is_refused_in_words(url: str, what: str) -> None:
    with pytest.raises(BadInput, match=what) as caught:
        InviteLink.parse(url)
    assert caught.value.hint


def test_a_refusal_does_not_repeat_the_secret() -> None:
    with pytest.raises(BadInput) as caught:
        InviteLink.parse(URL.replace("/join/", "/jion/"))
    assert LINK.code not in str(caught.value)


def test_a_request_to_join_is_signed_for_one_task_invite_and_hash() -> None:
    key = SigningKey.make()
    signature = sign_enrolment(key, "digits", "code", "hash")
    verify_enrolment(key.public, signature, "digits", "code", "hash")
    for other in (("walk", "code", "hash"), ("digits", "another", "hash"), ("digits", "code", "other")):
        with pytest.raises(NotAuthorised):
            verify_enrolment(key.public, signature, *other)
    with pytest.raises(NotAuthorised):
        verify_enrolment(SigningKey.make().public, signature, "digits", "code", "hash")


def test_parts_of_what_is_signed_do_not_run_into_each_other() -> None:
    key = SigningKey.make()
    signature = sign_enrolment(key, "a", "b-c", "d")
    with pytest.raises(NotAuthorised):
        verify_enrolment(key.public, signature, "a-b", "c", "d")


def test_codes_and_tokens_are_long_and_never_the_same() -> None:
    codes, tokens = {make_code() for _ in range(100)}, {make_token() for _ in range(100)}
    assert len(codes) == len(tokens) == 100
    assert all(len(code) == 32 and code.isalnum() and code.islower() for code in codes)
    assert all(len(token) >= 43 and token.isascii() for token in tokens)
