"""Several front ends on one PostgreSQL, killed, stopped and updated while devices are busy.

Whatever was acknowledged is counted once, by whichever of them; and the model is what a replay gives.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import numpy as np
import psycopg
import pytest

from crowdml.server.setup.application import FAILED_EXIT
from crowdml.server.store.postgres import HOLDS_LOCK
from tests.support.crowd import Busy, charges, check, finish, receipts, wait_for
from tests.support.fronts import BusyEverywhere, FrontEnds, join
from tests.support.server import TASK

pytestmark = pytest.mark.postgres

DEVICES = 20
PER_ROUND = 4
SGD = TASK[TASK.index('kind = "crowd-sgd"') : TASK.index("[privacy]")]
GAUSSIAN = TASK[TASK.index('mode = "sound"') : TASK.index("[crowd]")]
VERSIONS = 16
ROUNDS = (
    (SGD, f'kind = "fedsgd"\nper-round = {PER_ROUND}\nmax-rows = 4\n'),
    (GAUSSIAN, f'mode = "none"\n[stop]\nmax-versions = {VERSIONS}\n'),
    ("[crowd]\npasses = 40\n", ""),
)
"""Changes of a task: it goes on in rounds, of all devices that there are, and ends after so many."""


SUMS = (
    ROUNDS[0],
    (
        GAUSSIAN,
        'mode = "sound"\nmechanism = "gaussian"\nclip = 1.0\nepsilon = 20.0\ndelta = 1e-6\n'
        'max-uses = 96\nunit = "device"\n'
        "[secure-aggregation]\nenabled = true\ndrop-out = 0.3\nattempts = 6\n"
        f"[stop]\nmax-releases = 96\nmax-versions = {VERSIONS}\n",
    ),
    ROUNDS[2],
)
"""The same in secure sums: so many attempts that kills do not spend them."""


class InRounds(BusyEverywhere):
    """A busy device that has four rows, and goes through all of them in every round."""

    def rows(self) -> Any:
        rows = self.chance.normal(size=(4, 3)).astype(np.float32)
        return rows, ["walking" if row[0] > 0 else "standing" for row in rows]


@pytest.fixture(scope="module")
def both(postgres: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrontEnds]:
    with FrontEnds(tmp_path_factory.mktemp("fronts"), postgres.database()) as made:
        yield made


@pytest.fixture
def fronts(both: FrontEnds) -> FrontEnds:
    """Two front ends that live, with a task of the test's own."""
    for server in both.servers:
        if server.process.poll() is not None:
            server.start()
    both.wait_until_ready(*both.servers)
    both.open()
    return both


def kill_twice(fronts: FrontEnds, crowd: list[Busy]) -> None:
    """Kill the aggregator after two versions, and whoever that is by then after six; the crowd does not wait for us."""

    def reach(version: int) -> None:
        end = time.monotonic() + 60.0
        shown: dict[str, Any] = {"version": -1, "state": "open"}
        while shown["version"] < version:
            assert time.monotonic() < end and shown["state"] == "open", (shown, [device.error for device in crowd])
            time.sleep(0.01)
            with suppress(HTTPError):  # 503, while it is not sure who aggregates
                shown = fronts.ask(f"/v1/tasks/{fronts.task}")

    for version in (2, 6):
        reach(version)
        victim = fronts.aggregator()
        victim.kill()
        reach(version + 2)
        victim.start()
        fronts.wait_until_ready(victim)


def test_kills_of_either_lose_nothing(fronts: FrontEnds, tmp_path: Path) -> None:
    crowd = join(fronts, tmp_path, DEVICES, faults=0.02)
    wait_for(crowd, 100)
    for which in ("aggregator", "follower", "aggregator"):
        victim = getattr(fronts, which)()
        victim.kill()
        wait_for(crowd, 60)
        victim.start()
        fronts.wait_until_ready(victim)
        wait_for(crowd, 60)
    finish(crowd)
    check(fronts, crowd, least=400)


def test_a_killed_aggregator_costs_a_round_no_contribution(fronts: FrontEnds, tmp_path: Path) -> None:
    """A round takes one contribution of each device; whoever aggregates next has those that were acknowledged."""
    fronts.open(*ROUNDS)
    crowd = join(fronts, tmp_path, PER_ROUND, faults=0.02, kind=InRounds)
    kill_twice(fronts, crowd)
    finish(crowd)
    found = {row["key"]: row for row in receipts(fronts.database, fronts.task)}
    acknowledged = {key: told for device in crowd for key, told in device.recorder.acknowledged.items()}
    assert set(acknowledged) <= set(found), "acknowledged and lost"
    rounds = Counter((row["slot"], row["started"]) for row in found.values())
    assert set(rounds.values()) == {1}, "one contribution of each device to a round"
    whole = Counter(row["started"] for row in found.values())
    assert fronts.ask(f"/v1/tasks/{fronts.task}")["version"] == VERSIONS
    assert all(whole[number] == PER_ROUND for number in range(VERSIONS))


def test_a_killed_aggregator_costs_a_secure_sum_an_attempt_and_nothing_else(fronts: FrontEnds, tmp_path: Path) -> None:
    """It lived in its memory alone: devices begin another with whoever aggregates next, and each is charged for all."""
    fronts.open(*SUMS)
    crowd = join(fronts, tmp_path, PER_ROUND, kind=InRounds)
    kill_twice(fronts, crowd)
    finish(crowd)
    found = receipts(fronts.database, fronts.task)
    assert fronts.ask(f"/v1/tasks/{fronts.task}")["version"] == VERSIONS
    rounds = Counter((row["slot"], row["started"]) for row in found)
    assert set(rounds.values()) == {1}, "one contribution of each device to a sum"
    whole = Counter(row["version"] for row in found)
    assert all(whole[number + 1] >= PER_ROUND - 1 for number in range(VERSIONS)), "no more are missing than may be"
    assert {row["key"] for row in found} <= {key for device in crowd for key in charges(device.place)}


def test_an_aggregator_that_was_stopped_cannot_go_on_where_it_was(fronts: FrontEnds, tmp_path: Path) -> None:
    crowd = join(fronts, tmp_path, DEVICES)
    wait_for(crowd, 100)
    stopped, other = fronts.aggregator(), fronts.follower()
    stopped.process.send_signal(signal.SIGSTOP)
    fronts.wait_for_role(other, "aggregates")
    stopped.process.send_signal(signal.SIGCONT)
    assert stopped.process.wait(60) == FAILED_EXIT
    wait_for(crowd, 60)
    stopped.start()
    wait_for(crowd, 60)
    finish(crowd)
    check(fronts, crowd, least=200)


def test_an_aggregator_whose_lock_is_taken_away_shows_nothing_old(fronts: FrontEnds, tmp_path: Path) -> None:
    """As by an administrator who ends its connection: it lives, and the other may store before it notices."""
    crowd = join(fronts, tmp_path, DEVICES)
    wait_for(crowd, 100)
    losing, other = fronts.aggregator(), fronts.follower()
    with psycopg.connect(fronts.database, autocommit=True) as connection:
        ends = f"SELECT pg_terminate_backend(pid) FROM pg_locks WHERE {HOLDS_LOCK}"  # noqa: S608  a constant
        assert connection.execute(ends).fetchone()
    assert losing.process.wait(60) == FAILED_EXIT
    fronts.wait_for_role(other, "aggregates")
    # A device refuses a version that is older than one it has seen, and would end here.
    wait_for(crowd, 100)
    losing.start()
    finish(crowd)
    check(fronts, crowd, least=200)


def test_a_follower_that_was_stopped_shows_nothing_old(fronts: FrontEnds, tmp_path: Path) -> None:
    crowd = join(fronts, tmp_path, 4)
    wait_for(crowd, 20)
    stopped = fronts.follower()
    stopped.process.send_signal(signal.SIGSTOP)
    time.sleep(1.0)
    stopped.process.send_signal(signal.SIGCONT)
    # A device refuses a version that is older than one it has seen, and would end here.
    wait_for(crowd, 100)
    finish(crowd)
    check(fronts, crowd, least=100)


def test_a_rolling_update_loses_nobody(fronts: FrontEnds, tmp_path: Path) -> None:
    crowd = join(fronts, tmp_path, DEVICES)
    wait_for(crowd, 100)
    for server in fronts.servers:
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0
        server.start()
        fronts.wait_until_ready(server)
        wait_for(crowd, 60)
    finish(crowd)
    check(fronts, crowd, least=200)


def test_an_aggregator_that_cannot_store_gives_up_its_lock_when_it_is_ended(fronts: FrontEnds, tmp_path: Path) -> None:
    """As in an update while somebody holds a table: its successor must not wait for that."""
    crowd = join(fronts, tmp_path, 4)
    wait_for(crowd, 20)
    ending, other = fronts.aggregator(), fronts.follower()
    with psycopg.connect(fronts.database) as holder:
        holder.execute("LOCK TABLE receipts IN ACCESS EXCLUSIVE MODE")
        # Somebody waits for the table: a batch is being stored, or looked up.
        waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'receipts'::regclass"
        while not holder.execute(waits).fetchone()[0]:  # type: ignore[index]
            time.sleep(0.05)
        ending.process.send_signal(signal.SIGTERM)
        assert ending.process.wait(60) == FAILED_EXIT
    fronts.wait_for_role(other, "aggregates")
    wait_for(crowd, 20)
    ending.start()
    finish(crowd)
    check(fronts, crowd, least=40)
