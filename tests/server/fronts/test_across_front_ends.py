"""Two front ends on one PostgreSQL: whatever one of them is told holds at the other, for every kind of task.

Once with a link between the two, and once by letters in the database alone.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psycopg
import pytest

from crowdml.core.keys import SigningKey
from crowdml.device import Device
from crowdml.server.fronts.other_fronts import GONE_S, TICK_S
from crowdml.server.fronts.post import CHECK_INS, OPEN
from crowdml.server.http.front_door import Access
from crowdml.server.pages.operator.sign_in import SIGN_IN_PACE
from tests.support.process import Process
from tests.support.served import WAIT_S, Member, honest

pytestmark = pytest.mark.postgres

ROUNDS = """
crowdml = 1
name = "rounds"
[data]
features = 3
labels = ["a", "b"]
transform = [{ kind = "norm", order = 2, at-most = 1.0 }]
[model]
kind = "softmax"
[algorithm]
kind = "fedsgd"
per-round = 2
max-rows = 4
[privacy]
mode = "none"
"""
MASKED = """
crowdml = 1
name = "masked"
[data]
features = 4
labels = ["a", "b"]
transform = [{ kind = "norm", order = 2, at-most = 1.0 }]
[model]
kind = "logistic"
[algorithm]
kind = "fedsgd"
per-round = 4
max-rows = 12
[privacy]
mode = "sound"
mechanism = "gaussian"
clip = 1.0
epsilon = 8.0
delta = 1e-5
max-uses = 24
[secure-aggregation]
enabled = true
drop-out = 0.3
[stop]
max-versions = 2
max-releases = 24
"""


PACE = Access().device_pace
COUNT = """
CREATE TABLE letters_seen (kind INTEGER NOT NULL);
CREATE FUNCTION see_letter() RETURNS TRIGGER LANGUAGE plpgsql AS
    'BEGIN INSERT INTO letters_seen VALUES (NEW.kind); RETURN NEW; END';
CREATE TRIGGER see_letter BEFORE INSERT ON crowdml_inbox FOR EACH ROW EXECUTE FUNCTION see_letter()
"""
"""Keeps what kinds of letters were ever put into the inbox; the aggregator deletes them."""


class Two:
    """The aggregator and a follower."""

    def __init__(self, folder: Path, database: str, linked: bool) -> None:
        self.linked, self.database = linked, database
        self.aggregator = Process(folder / "one", None, "--db", database)
        assert self.aggregator.send("GET", "/v1/tasks").status_code == 200
        if not linked:
            with psycopg.connect(database, autocommit=True) as connection:
                # As behind a firewall: the follower does not find out where a link would be taken.
                assert connection.execute("DELETE FROM crowdml_aggregator").rowcount == 1
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(COUNT)
        (folder / "two").mkdir(mode=0o700)
        shutil.copy(folder / "one" / "operator.token", folder / "two")
        self.follower = Process(folder / "two", None, "--db", database)
        for server in self.both:
            assert server.send("GET", "/v1/tasks").status_code == 200
        assert "aggregates" in self.aggregator.log.read_text() and "follows" in self.follower.log.read_text()
        if linked:
            until(lambda: self.is_linked)

    @property
    def is_linked(self) -> bool:
        return "is linked" in self.follower.log.read_text()

    @property
    def both(self) -> tuple[Process, Process]:
        return self.aggregator, self.follower

    def at(self, member: Member, server: Process) -> Member:
        """Let a device ask that server from now on."""
        member.server = server
        return member

    def letters(self, kind: int) -> int:
        """Count letters of a kind that the follower has sent."""
        with psycopg.connect(self.database, autocommit=True) as connection:
            found = connection.execute("SELECT count(*) FROM letters_seen WHERE kind = %s", (kind,)).fetchone()
            return int(found[0])  # type: ignore[index]

    def known(self, member: Member) -> Member:
        """Wait until the follower answers a device by itself, and let that one ask it from now on."""

        def asked_nobody() -> bool:
            before = self.letters(OPEN)
            assert member.check_out().status_code == 200
            return self.letters(OPEN) == before

        self.at(member, self.follower)
        until(asked_nobody)
        return member


@pytest.fixture(scope="module", params=[True, False], ids=["linked", "by letters"])
def two(postgres: Any, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Two]:
    made = Two(tmp_path_factory.mktemp("two"), postgres.database(), request.param)
    try:
        yield made
        assert made.is_linked == request.param
    finally:
        for server in made.both[::-1]:
            assert server.end() == 0, server.log.read_text()


def until(wanted: Any) -> None:
    """Wait until something holds."""
    end = time.monotonic() + WAIT_S
    while not wanted():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("maker", ["aggregator", "follower"])
def test_a_follower_serves_a_task_by_itself_that_was_made_while_it_ran(two: Two, maker: str) -> None:
    server: Process = getattr(two, maker)
    task = server.fresh()
    first, later = (two.known(server.device(task)) for _ in range(2))
    passed_on, batches = two.letters(OPEN), two.letters(CHECK_INS)
    for number in range(6):
        member = (first, later)[number % 2]
        out = member.check_out()
        assert (out.status_code, out.headers["crowdml-version"]) == (200, str(number))
        assert member.check_in(honest(member.live, number), f"by-itself-{number:04d}").status_code == 200
    # Nothing was passed on as it came; check-ins went by the link, or, where there is none, one batch in each letter.
    assert two.letters(OPEN) == passed_on
    assert two.letters(CHECK_INS) - batches == (0 if two.linked else 6)


def test_a_check_in_by_either_is_one_course(two: Two) -> None:
    task = two.follower.fresh()
    member = two.known(two.follower.device(task))
    seen = -1
    for number in range(8):
        two.at(member, two.both[number % 2])
        out = member.check_out()
        assert out.status_code == 200 and int(out.headers["crowdml-version"]) == number > seen
        seen = number
        body = honest(member.live, number)
        done = two.at(member, two.both[number // 2 % 2]).check_in(body, f"key-{number:06d}")
        assert (done.status_code, done.json()["version"], done.json()["number"]) == (200, number + 1, number + 1)
    # The same bytes again, by either of them, get the receipt they have.
    for server in two.both:
        again = two.at(member, server).check_in(body, "key-000007").json()
        assert again.pop("again") and again == done.json()
    assert [server.show(task)["check_ins"] for server in two.both] == [8, 8]


def test_the_same_key_by_both_is_counted_once(two: Two) -> None:
    task = two.aggregator.fresh()
    member = two.known(two.aggregator.device(task))
    body = honest(member.live, 0)
    first = two.at(member, two.follower).check_in(body, "one-key-1")
    second = two.at(member, two.aggregator).check_in(body, "one-key-1")
    third = two.at(member, two.follower).check_in(body, "one-key-1")
    assert "again" not in first.json() and second.json()["again"] and third.json()["again"]
    assert {first.json()["number"], second.json()["number"], third.json()["number"]} == {1}
    assert two.at(member, two.follower).check_in(honest(member.live, 0, seed=5), "one-key-1").status_code == 422
    assert [receipt["number"] for receipt in member.receipts()] == [1]


def test_the_same_key_by_both_in_the_same_moment_is_counted_once(two: Two) -> None:
    member = two.known(two.aggregator.device(two.aggregator.fresh()))
    with contextlib.ExitStack() as stack:
        clients = [
            stack.enter_context(httpx.Client(base_url=server.address, timeout=WAIT_S))
            for server in (*two.both, *two.both)
        ]
        pool = stack.enter_context(ThreadPoolExecutor(len(clients)))
        for number in range(10):
            headers, body = member.headers(f"one-key-{number:04d}"), honest(member.live, number)
            path = f"/v1/tasks/{member.task}/check-ins"
            sent = [pool.submit(client.post, path, content=body, headers=headers) for client in clients]
            told = [each.result(WAIT_S).json() for each in sent]
            assert sorted("again" in each for each in told) == [False, True, True, True], told
            assert {(each["number"], each["version"]) for each in told} == {(number + 1, number + 1)}


def test_what_no_honest_device_sends_is_refused_by_a_follower_too(two: Two) -> None:
    member = two.known(two.aggregator.device(two.aggregator.fresh()))
    body = honest(member.live, 0)
    assert member.check_in(body[:-1]).status_code in (400, 422)
    assert member.check_in(body + b"x").status_code == 413
    assert member.check_in(b"x" * len(body)).status_code == 422
    assert member.check_in(body, content_type="text/plain").status_code == 415
    assert member.check_in(honest(member.live, 9)).json()["error"]["code"] == "future-version"
    assert member.check_in(body, content_encoding="gzip").status_code == 415
    assert two.follower.send("GET", f"/v1/tasks/{member.task}/check-out").status_code == 401
    assert member.check_out(host="else.example").status_code == 400


def test_who_is_revoked_at_one_is_refused_at_the_other(two: Two) -> None:
    task = two.aggregator.fresh()
    member = two.known(two.follower.device(task))
    assert two.follower.as_operator("DELETE", f"/v1/tasks/{task}/devices/{member.id}").status_code == 204
    # What is folded in is refused at once, whoever took it; what is given out as soon as the follower has heard.
    assert member.check_in(honest(member.live, 0)).status_code == 401
    until(lambda: member.check_out().status_code == 401)
    assert two.at(member, two.aggregator).check_out().status_code == 401


def test_a_follower_that_was_stopped_hears_who_was_revoked_meanwhile(two: Two) -> None:
    task = two.aggregator.fresh()
    member = two.known(two.aggregator.device(task))
    two.follower.process.send_signal(signal.SIGSTOP)
    try:
        time.sleep(GONE_S + 3 * TICK_S)  # the aggregator believes to be alone by now
        assert two.aggregator.as_operator("DELETE", f"/v1/tasks/{task}/devices/{member.id}").status_code == 204
    finally:
        two.follower.process.send_signal(signal.SIGCONT)
    until(lambda: member.check_out().status_code == 401)


def test_a_new_token_kills_the_old_one_everywhere(two: Two) -> None:
    task = two.aggregator.fresh()
    (link,), key = two.follower.invites(1, task), SigningKey.make()
    old = two.known(Member(two.follower, link, key, two.follower.enrol(link, key).json()))
    new = Member(two.follower, link, key, two.aggregator.enrol(link, key).json())
    assert new.check_out().status_code == 200
    until(lambda: old.check_out().status_code == 401)


def test_a_device_that_withdrew_is_gone_everywhere(two: Two) -> None:
    member = two.known(two.aggregator.device(two.aggregator.fresh()))
    assert two.follower.send("DELETE", "/v1/devices/me", headers=member.bearer).status_code == 204
    until(lambda: member.check_out().status_code == 401)
    assert member.check_in(honest(member.live, 0)).status_code == 401


def test_a_task_is_paused_and_stopped_everywhere_at_once(two: Two) -> None:
    task = two.follower.fresh()
    member = two.known(two.follower.device(task))
    assert two.aggregator.move("paused", task).status_code == 200
    assert member.check_out().status_code == 204 and member.check_in(honest(member.live, 0)).status_code == 503
    assert two.follower.move("open", task).status_code == 200
    assert member.check_out().status_code == 200 and two.at(member, two.aggregator).check_out().status_code == 200
    assert two.aggregator.move("stopped", task).status_code == 200
    assert two.at(member, two.follower).check_out().status_code == 410


def test_an_invite_is_used_once_by_whoever_comes_first(two: Two) -> None:
    (link,) = two.aggregator.invites(1, two.aggregator.fresh())
    found: list[int] = []

    def use(server: Process) -> None:
        with httpx.Client(base_url=server.address, timeout=WAIT_S) as client:
            content = server.enrolment(link, SigningKey.make())
            found.append(client.post(f"/v1/tasks/{link.task}/devices", json=content).status_code)

    threads = [threading.Thread(target=use, args=(two.both[number % 2],)) for number in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert sorted(found) == [201] + [409] * 9


def test_a_browser_that_signed_in_at_one_is_known_at_the_other_and_signed_out_at_both(two: Two) -> None:
    origin = {"origin": two.follower.address}
    came = two.follower.send("POST", "/operator/sign-in", data={"token": two.follower.token}, headers=origin)
    assert came.status_code == 303, came.text
    (value,) = two.follower.session.cookies.values()

    def page(server: Process) -> int:
        port = server.address.rpartition(":")[2]
        # A browser comes by one name; here each front end is asked by its own, and the cookie's name has the port.
        headers = {"cookie": f"crowdml-session-{port}={value}", "accept": "text/html"}
        return httpx.get(f"{server.address}/operator/server", headers=headers).status_code

    assert [page(server) for server in two.both] == [200, 200]
    token = two.follower.as_operator("POST", "/v1/operator/token").json()["token"]
    assert [page(server) == 200 for server in two.both] == [False, False], "a new token ends all sessions"
    for server in two.both:
        server.session.cookies.clear()
        assert server.as_operator("GET", "/v1/operator/log").status_code == 401
        server.token = token
        assert server.as_operator("GET", "/v1/operator/log").status_code == 200


def test_a_new_token_sends_a_long_task_by_a_follower(two: Two) -> None:
    """A follower knows the operator's token of when it began; whoever has another is no stranger for that."""
    token = two.aggregator.as_operator("POST", "/v1/operator/token").json()["token"]
    for server in two.both:
        server.token = token
    task = two.follower.fresh(file=two.follower.file + "# " + "x" * 200_000)
    assert two.aggregator.show(task)["task"] == task


def test_tries_to_sign_in_are_counted_over_both(two: Two) -> None:
    def tries(server: Process, count: int) -> list[int]:
        origin = {"origin": server.address, "accept": "text/html"}
        form = {"token": "not-the-token"}
        return [server.send("POST", "/operator/sign-in", data=form, headers=origin).status_code for _ in range(count)]

    told = [tries(two.both[number % 2], 1)[0] for number in range(2 * SIGN_IN_PACE.burst)]
    # Some time passes meanwhile, in which a few more are allowed.
    assert told[-1] == 429 and told.count(429) >= SIGN_IN_PACE.burst // 2, told


def test_a_stream_ends_whose_follower_was_stopped_for_so_long_that_it_was_forgotten(two: Two) -> None:
    """Nothing would ever come by it, and whoever reads it would wait for ever."""
    task = two.aggregator.fresh()
    with two.follower.session.stream("GET", f"/v1/tasks/{task}/events") as stream:
        lines = stream.iter_lines()
        assert any(line.startswith("data:") for line in lines)
        two.follower.process.send_signal(signal.SIGSTOP)
        try:
            time.sleep(GONE_S + 3 * TICK_S)
        finally:
            two.follower.process.send_signal(signal.SIGCONT)
        with pytest.raises(httpx.RemoteProtocolError):
            list(lines)
    assert two.follower.show(task)["task"] == task


def test_a_front_end_that_ends_leaves_no_stream_behind(two: Two, tmp_path: Path) -> None:
    """Its reader does not leave: the aggregator would go on to write events for somebody who never takes them."""
    task = two.aggregator.fresh()
    member = two.at(two.aggregator.device(task), two.aggregator)
    shutil.copy(two.aggregator.home / "operator.token", tmp_path)
    third = Process(tmp_path, None, "--db", two.database)
    with third.session.stream("GET", f"/v1/tasks/{task}/events") as stream:
        assert any(line.startswith("data:") for line in stream.iter_lines())
        third.process.send_signal(signal.SIGTERM)
        assert third.process.wait(WAIT_S) == 0
    for number in range(3):
        assert member.check_in(honest(member.live, number), f"left-{number:04d}").status_code == 200
        time.sleep(2 * TICK_S)
    with psycopg.connect(two.database, autocommit=True) as connection:
        assert connection.execute("SELECT count(*) FROM crowdml_outbox").fetchone() == (0,)


@pytest.mark.parametrize("features", [3, 5000], ids=["looked at by the aggregator", "large, looked at by the follower"])
def test_what_is_refused_through_a_follower_is_counted(two: Two, features: int) -> None:
    task = two.aggregator.fresh(f"data.features={features}")
    member = two.known(two.aggregator.device(task))
    body = honest(member.live, 0)
    assert member.check_in(b"x" * len(body)).status_code == 422

    def counted() -> bool:
        log = two.aggregator.as_operator("GET", "/v1/operator/log").json()["events"]
        found = [each["count"] for each in log if each["action"] == "refused check-in" and each["task"] == task]
        (device,) = two.aggregator.as_operator("GET", f"/v1/tasks/{task}/devices").json()["devices"]
        return found == [1] and device["refused"] == 1

    until(counted)


def test_a_device_that_asks_both_has_the_pace_of_one(two: Two) -> None:
    task = two.aggregator.fresh()
    member = two.known(two.aggregator.device(task))
    told: list[int] = []

    def ask(server: Process) -> None:
        with httpx.Client(base_url=server.address, timeout=WAIT_S) as client:
            for _ in range(2 * PACE.burst):
                told.append(client.get(f"/v1/tasks/{task}/check-out", headers=member.bearer).status_code)

    began = time.monotonic()
    threads = [threading.Thread(target=ask, args=(server,)) for server in two.both]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * WAIT_S)
    most = PACE.burst + PACE.per_second * (time.monotonic() - began)
    assert set(told) <= {200, 429} and told.count(200) <= most + 2, (told.count(200), most)


def test_events_come_through_a_follower(two: Two) -> None:
    task = two.aggregator.fresh()
    member = two.aggregator.device(task)
    with two.follower.session.stream("GET", f"/v1/tasks/{task}/events") as stream:
        lines = stream.iter_lines()
        assert '"version":0' in next(line for line in lines if line.startswith("data:")).replace(" ", "")
        assert member.check_in(honest(member.live, 0)).status_code == 200
        assert '"version":1' in next(line for line in lines if line.startswith("data:")).replace(" ", "")


def test_a_round_is_one_round(two: Two) -> None:
    task = two.follower.fresh(file=ROUNDS)
    members = [two.at(two.aggregator.device(task), server) for server in two.both]
    for version in range(3):
        for member in members:
            assert int(member.check_out().headers["crowdml-version"]) == version
        answers = [member.check_in(honest(member.live, version), f"round-{version:04d}") for member in members]
        assert [answer.status_code for answer in answers] == [200, 200]
        assert members[0].check_in(honest(members[0].live, version), "once-more").status_code == 409
    assert [server.show(task)["version"] for server in two.both] == [3, 3]


def test_a_secure_sum_has_members_at_both(two: Two, tmp_path: Path) -> None:
    task = two.aggregator.fresh(file=MASKED)
    links = [server.invites(1, task)[0].to_url() for server in (*two.both, *two.both)]
    failures: list[BaseException] = []

    def take_part(number: int, link: str) -> None:
        rows = np.random.default_rng(number).normal(size=(12, 4)).astype(np.float32)
        np.savez(tmp_path / f"{number}.npz", rows=rows, labels=(rows[:, 0] > 0).astype(int))
        try:
            Device.join(link, tmp_path / str(number), accept=lambda offer: True)
            with Device(tmp_path / str(number)) as device:
                device.run(tmp_path / f"{number}.npz")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=take_part, args=each, daemon=True) for each in enumerate(links)]
    for thread in threads:
        thread.start()
    until_end = time.monotonic() + 3 * WAIT_S
    while not failures and two.follower.show(task)["version"] < 1:
        assert time.monotonic() < until_end, "no sum came about"
        time.sleep(0.05)
    assert not failures
    assert two.follower.show(task)["check_ins"] >= 3
    two.aggregator.move("stopped", task)
    for thread in threads:
        thread.join(WAIT_S)


def test_a_socket_is_passed_on_to_the_aggregator(two: Two) -> None:
    member = two.at(two.aggregator.device(two.aggregator.fresh()), two.follower)
    # Nobody has groups here: the answer is the aggregator's own.
    plain = two.follower.send("GET", f"/v1/tasks/{member.task}/relay", headers=member.bearer)
    assert plain.status_code == 404 and plain.json()["error"]["code"] == "no-groups"


def test_a_long_body_of_a_stranger_is_not_passed_on(two: Two) -> None:
    long = two.follower.send("POST", "/v1/tasks/none/devices", content=b"x" * 100_000)
    assert long.status_code == 413
    task = two.aggregator.fresh(file=two.aggregator.file + "# " + "x" * 200_000)
    assert two.follower.show(task)["task"] == task
