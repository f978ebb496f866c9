"""Signing in and out: who gets a session, how long it lasts, and that nobody can bring one along."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from crowdml.server.http.session_cookies import SessionCookies
from crowdml.server.setup.application import Access
from crowdml.server.store import Identity, Store, open_store
from crowdml.server.store.session_tables import MOST_SESSIONS
from crowdml.server.tasks.device_tokens import token_hash
from crowdml.server.tasks.operator.operator_sessions import IDLE_S, LIFE_S, Sessions, is_form_of
from crowdml.server.tasks.operator.operator_token import TOKEN_FILE, OperatorToken, require_identity
from crowdml.server.tasks.operator.refusal_counts import RefusalCounts
from tests.support.application import FAST
from tests.support.portal import HTML, Browser, signed_in

HERE = "127.0.0.1"


class Clocks:
    """Two clocks that a test sets."""

    def __init__(self) -> None:
        self.monotonic, self.calendar = 0.0, 1e9

    def sessions(self, store: Store) -> Sessions:
        return Sessions(store, lambda: self.monotonic, lambda: self.calendar)

    def go(self, seconds: float) -> None:
        self.monotonic += seconds
        self.calendar += seconds


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with open_store(f"sqlite:///{tmp_path}/crowd.sqlite") as opened:
        opened.set_identity(Identity(signing_key=b"key", operator_token_hash=b"old"))
        yield opened


def test_a_session_ends_when_it_is_not_used_and_after_half_a_day(store: Store) -> None:
    clocks = Clocks()
    sessions = clocks.sessions(store)
    token = sessions.begin()
    for _ in range(int(LIFE_S / IDLE_S) - 1):
        clocks.go(IDLE_S - 1)
        assert sessions.find(token)
    clocks.go(IDLE_S)
    assert sessions.find(token) is None
    lazy = sessions.begin()
    clocks.go(IDLE_S)
    assert sessions.find(lazy) is None


def test_of_very_many_sessions_the_oldest_ends_at_once(store: Store) -> None:
    clocks = Clocks()
    sessions = clocks.sessions(store)
    tokens = []
    for _ in range(MOST_SESSIONS + 1):
        clocks.go(1)
        tokens.append(sessions.begin())
    assert sessions.find(tokens[0]) is None and all(map(sessions.find, tokens[1:]))
    assert len(sessions) == len(store.sessions()) == MOST_SESSIONS


def test_a_session_outlives_a_restart_but_not_its_time(store: Store) -> None:
    clocks = Clocks()
    token = clocks.sessions(store).begin()
    clocks.go(60)
    assert clocks.sessions(store).find(token)
    clocks.go(LIFE_S)
    assert clocks.sessions(store).find(token) is None


@pytest.mark.parametrize("jump", [-86_400.0, -10 * 365 * 86_400.0, 10 * 365 * 86_400.0])
def test_no_session_is_won_back_by_setting_the_calendar(store: Store, jump: float) -> None:
    clocks = Clocks()
    sessions = clocks.sessions(store)
    token = sessions.begin()
    clocks.calendar += jump
    assert sessions.find(token), "a running server goes by a clock that nobody sets"
    assert clocks.sessions(store).find(token) is None


def test_forms_of_two_sessions_have_nothing_in_common(store: Store) -> None:
    sessions = Clocks().sessions(store)
    one, other = (sessions.find(sessions.begin()) for _ in range(2))
    assert one and other and one.form_secret != other.form_secret
    assert is_form_of(one, one.form_secret) and not is_form_of(one, other.form_secret)
    assert not is_form_of(one, "") and not is_form_of(one, "ä\udc80")


@pytest.mark.parametrize("value", ["", "x", "x" * 65, "é" * 20, "\0" * 20])
def test_what_is_no_session_is_none(store: Store, value: str) -> None:
    assert Clocks().sessions(store).find(value) is None


def test_a_cookie_is_for_this_host_and_for_no_script() -> None:
    secure, plain = SessionCookies(secure=True), SessionCookies(secure=False)
    assert secure.write(b"crowd.example", "x") == (
        "__Host-crowdml-session=x; Path=/; HttpOnly; SameSite=Strict; Secure"
    )
    assert plain.write(b"127.0.0.1:8800", "x") == "crowdml-session-8800=x; Path=/; HttpOnly; SameSite=Strict"
    assert "Max-Age=0" in secure.erase(b"crowd.example")


def test_two_cookies_of_the_same_name_are_none() -> None:
    cookies = SessionCookies(secure=False)
    host = (b"host", b"127.0.0.1")
    assert cookies.read([host, (b"cookie", b"a=b; crowdml-session=mine; c=d")]) == "mine"
    assert cookies.read([host, (b"cookie", b"crowdml-session=tossed; crowdml-session=mine")]) == ""
    assert cookies.read([host, (b"cookie", b"crowdml-session=a"), (b"cookie", b"crowdml-session=b")]) == ""
    assert cookies.read([host, (b"cookie", b"crowdml-session-8800=of another server")]) == ""
    assert cookies.read([host, (b"cookie", b"crowdml-session=\xff\xfe")]) == "ÿþ"


def test_the_operator_signs_in_and_out(app: Any) -> None:
    browser = Browser(app)
    assert "Sign in" in browser.get("/operator").text
    answer = browser.sign_in()
    assert (answer.status_code, answer.headers["location"]) == (303, "/operator")
    assert "HttpOnly" in answer.headers["set-cookie"] and "SameSite=Strict" in answer.headers["set-cookie"]
    assert "Your tasks" in browser.get("/operator").text
    before = browser.cookie
    assert browser.post("/operator/sign-out").status_code == 303
    browser.cookie = before
    assert "Your tasks" not in browser.get("/operator").text


@pytest.mark.parametrize("token", ["", "wrong", "x" * 5000, "ä", "' OR 1=1 --"])
def test_a_wrong_token_signs_nobody_in_and_is_not_shown_again(shared: Any, token: str) -> None:
    answer = Browser(shared).sign_in(token)
    assert answer.status_code == 403 and "set-cookie" not in answer.headers
    assert "This is not the operator&#39;s token." in answer.text and "This is not" in answer.text
    assert f'value="{token}"' not in answer.text or not token


def test_who_tries_again_and_again_is_slowed_down_and_counted(make_app: Any) -> None:
    app = make_app()
    browser = Browser(app)
    answers = [browser.sign_in("wrong").status_code for _ in range(14)]
    assert answers[:10] == [403] * 10 and set(answers[10:]) == {429}
    (entry,) = app.as_operator("GET", "/v1/operator/log").json()["events"]
    assert (entry["actor"], entry["action"], entry["count"]) == ("stranger", "refused sign-in", 10)


def test_a_session_that_somebody_brought_along_is_not_taken_over(app: Any) -> None:
    attacker = signed_in(app)
    victim = Browser(app)
    victim.cookie = attacker.cookie
    assert victim.sign_in().status_code == 303 and victim.cookie != attacker.cookie
    assert "Your tasks" not in attacker.get("/operator").text, "the session from before has ended"
    made_up = Browser(app)
    made_up.cookie = "crowdml-session=" + "A" * 43
    made_up.sign_in()
    assert "A" * 43 not in made_up.cookie


def test_sessions_survive_a_restart(make_app: Any) -> None:
    app = make_app()
    browser = signed_in(app)
    app.close()
    browser.app = make_app()
    assert "Your tasks" in browser.get("/operator").text


def test_a_new_token_ends_the_old_one_and_all_sessions(app: Any) -> None:
    one, other = signed_in(app), signed_in(app)
    old, answer = app.token, one.post("/operator/server/token", {"token": app.token})
    app.token = (app.home / TOKEN_FILE).read_text().strip()
    assert answer.status_code == 200 and app.token in answer.text and app.token != old
    assert (app.home / TOKEN_FILE).stat().st_mode & 0o777 == 0o600
    for browser in (one, other):
        assert "Sign in" in browser.get("/operator").text and browser.get("/operator/log").status_code == 303
    stale = app.send("POST", "/v1/operator/token", headers={"authorization": f"Bearer {old}"})
    assert stale.status_code == 401 and Browser(app).sign_in(old).status_code == 403
    assert app.as_operator("GET", "/v1/operator/log").json()["events"][0]["action"] in (
        "refused sign-in",
        "refused token",
    )
    assert signed_in(app).get("/operator/log").status_code == 200


def test_a_new_token_asks_for_the_old_one(app: Any) -> None:
    browser = signed_in(app)
    for path in ("/operator/server/token", "/operator/server/backup"):
        answer = browser.post(path, {"token": "wrong"})
        assert answer.status_code == 403 and "This is not the operator" in answer.text
    assert app.as_operator("GET", "/v1/operator/log").status_code == 200


def test_of_many_that_change_the_token_at_once_one_does(app: Any) -> None:
    bearer = {"authorization": f"Bearer {app.token}"}
    waiting = [app.begin("POST", "/v1/operator/token", headers=bearer) for _ in range(20)]
    answers = [each.result(20) for each in waiting]
    made = [answer.json()["token"] for answer in answers if answer.status_code == 201]
    assert len(made) == 1 and {answer.status_code for answer in answers} <= {201, 401}
    assert (app.home / TOKEN_FILE).read_text().strip() == made[0]


def test_whoever_signs_in_while_the_token_changes_has_no_session_afterwards(store: Store, tmp_path: Path) -> None:
    require_identity(store, tmp_path)
    operator, sessions = OperatorToken(store, tmp_path / TOKEN_FILE), Sessions(store)
    token = operator.rotate(lambda: True, sessions.forget_all)
    begun: list[str | None] = []
    threads = [
        threading.Thread(target=lambda: begun.append(operator.begin(token.encode(), sessions.begin))) for _ in range(8)
    ]
    threads.insert(4, threading.Thread(target=lambda: operator.rotate(lambda: True, sessions.forget_all)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(value is None or sessions.find(value) is None for value in begun) and store.sessions() == []


@pytest.mark.parametrize("ended", ["before it is stored", "after it is stored"])
def test_wherever_a_server_ends_while_the_token_changes_the_operator_has_one(
    store: Store, tmp_path: Path, ended: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / TOKEN_FILE
    file.write_text("old\n")
    store.rotate(token_hash(b"old"))
    operator = OperatorToken(store, file)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    place = "crowdml.server.tasks.operator.operator_token.os.replace"
    monkeypatch.setattr(store, "rotate", killed) if ended == "before it is stored" else monkeypatch.setattr(
        place, killed
    )
    with pytest.raises(KeyboardInterrupt):
        operator.rotate(lambda: True, lambda: None)
    monkeypatch.undo()
    require_identity(store, tmp_path)
    assert OperatorToken(store, file).matches(file.read_text().strip().encode())
    assert not (tmp_path / f"{TOKEN_FILE}.new").exists()


def test_over_tls_the_cookie_is_secure_and_browsers_stay_with_tls(make_app: Any) -> None:
    secure = Access(scheme="https", secure_s=86_400, device_pace=FAST, stranger_pace=FAST, reader_pace=FAST)
    app = make_app(access=secure)
    app.address = f"https://{HERE}"
    answer = Browser(app).sign_in()
    assert (
        answer.headers["set-cookie"].startswith("__Host-crowdml-session=") and "Secure" in answer.headers["set-cookie"]
    )
    assert answer.headers["strict-transport-security"] == "max-age=86400"
    plain = HTML | {"origin": f"http://{HERE}"}
    refused = app.send("POST", "/operator/sign-in", headers=plain, data={"token": app.token})
    assert refused.status_code == 403 and "set-cookie" not in refused.headers


def test_a_token_that_cannot_be_written_is_not_changed(app: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("crowdml.server.tasks.operator.operator_token.write_whole", full)
    browser = signed_in(app)
    answer = browser.post("/operator/server/token", {"token": app.token})
    assert answer.status_code == 503 and "the old one stays" in answer.text
    assert browser.get("/operator/log").status_code == 200


def test_refusals_are_written_from_time_to_time(make_app: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crowdml.server.tasks.operator.refusal_counts.EVERY_S", 0.0)
    app = make_app()
    for _ in range(3):
        wrong = app.send("GET", "/v1/operator/log", headers={"authorization": "Bearer wrong"})
        assert wrong.status_code == 401 and Browser(app).sign_in("wrong").status_code == 403
    counts = {event["action"]: event["count"] for event in app.as_operator("GET", "/v1/operator/log").json()["events"]}
    assert counts == {"refused token": 3, "refused sign-in": 3} and not app.failures


def test_what_another_has_begun_to_write_is_waited_for(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    counts, begun, go_on, note = RefusalCounts(store), threading.Event(), threading.Event(), store.note

    def slow(*given: Any, **more: Any) -> None:
        begun.set()
        assert go_on.wait(30)
        note(*given, **more)

    monkeypatch.setattr(store, "note", slow)
    counts.add("stranger", "refused token")
    first, second = threading.Thread(target=counts.write), threading.Thread(target=counts.write)
    first.start()
    assert begun.wait(30)
    second.start()
    second.join(0.1)
    assert second.is_alive(), "who reads the log after this would miss what the first has taken"
    go_on.set()
    first.join()
    second.join()
    assert [event.action for event in store.events()] == ["refused token"]
