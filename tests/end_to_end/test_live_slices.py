"""Groups of real processes: whoever is killed, the others end with the bits that the rules say."""

from __future__ import annotations

import random
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crowdml.core import trees
from crowdml.core.ops import Tree
from crowdml.slicing.live.deposits import CHUNK_BYTES
from crowdml.task.live_task import sliced_terms
from tests.support.fronts import FrontEnds
from tests.support.live_slices import TASK, SlicedCrowd, chance_rows, trained
from tests.support.server import Server

pytestmark = pytest.mark.live
ROWS = 120
MEMBERS = 6
TURN_1 = (1, 20)
"""A batch well within the second turn, some batches after a cut."""
TEXT = (
    TASK.replace("batch = 5", "batch = 2")
    .replace("cut-every = 4", "cut-every = 15")
    .replace("max-releases = 2", "max-releases = 1")
)


def rows(device: int) -> tuple[np.ndarray, np.ndarray]:
    found = [chance_rows(device + 10 * part) for part in range(4)]
    return np.concatenate([one for one, _ in found])[:ROWS], np.concatenate([two for _, two in found])[:ROWS]


@pytest.fixture
def crowd(tmp_path: Path) -> Iterator[SlicedCrowd]:
    with SlicedCrowd(tmp_path, MEMBERS, TEXT, rows) as made:
        yield made


class Course:
    """A crowd's course: what it began with, and all turns that its server has told of."""

    def __init__(self, crowd: SlicedCrowd, holds: tuple[int, int] | None = None) -> None:
        self.crowd, self.first = crowd, crowd.first()
        crowd.holds = holds
        self.turns: dict[int, tuple[int, int]] = {}
        crowd.join()

    def look(self) -> dict[str, object]:
        """Look at the only group, and note its turns."""
        shown = self.crowd.groups()
        if not shown:
            return {"turn": -1, "stage": "", "batch": 0, "events": []}
        names = [member["member"] for member in shown[0]["members"]]
        for event in shown[0]["events"]:
            if event["what"] == "turn":
                self.turns[event["turn"]] = names.index(event["members"][0]) + 1, event["batch"]
        return shown[0]

    @contextmanager
    def held(self) -> Iterator[None]:
        """Do something while the group's dominator is about to let a batch in, and then let it."""
        assert self.crowd.holds is not None
        turn, batch = self.crowd.holds

        def there() -> bool:
            shown = self.look()
            return (shown["turn"], shown["stage"], shown["batch"]) == (turn, "running", batch - 1)

        self.crowd.wait_until(there, f"batch {batch} of turn {turn} does not come")
        yield
        self.crowd.open_gate()

    def end(self, devices: list[int]) -> Tree:
        """Wait for the end, compare all models with each other, and return one."""
        self.crowd.wait_for_end(devices)
        self.look()
        models = [self.crowd.model(device) for device in devices]
        assert all(same(models[0], other) for other in models[1:]), self.crowd.told()
        return models[0]

    def reference(self) -> Tree:
        """Train the turns that were told in a single process."""
        seats, made = self.crowd.seats(), []
        for turn, (number, batches) in sorted(self.turns.items()):
            device = seats[1, number]
            order = self.crowd.order(device, turn)[: 2 * batches]
            made.append((turn, self.crowd.rows[device][0][order], self.crowd.rows[device][1][order]))
        return trained(self.crowd.task, self.first, made, MEMBERS)

    def what(self, kind: str) -> list[dict[str, object]]:
        """List events of a kind."""
        events = self.look()["events"]
        assert isinstance(events, list)
        return [event for event in events if event["what"] == kind]


def same(one: Tree, other: Tree) -> bool:
    return all(a.tobytes() == b.tobytes() for a, b in zip(trees.leaves(one), trees.leaves(other), strict=True))


def others(*killed: int) -> list[int]:
    return [device for device in range(MEMBERS) if device not in killed]


def test_nothing_happens(crowd: SlicedCrowd) -> None:
    course = Course(crowd)
    assert same(course.end(others()), course.reference()), crowd.told()
    assert {batches for _, batches in course.turns.values()} == {ROWS // 2} and len(course.turns) == MEMBERS


@pytest.mark.parametrize("roles", [("follower 1",), ("follower 1", "follower 3"), ("dummy 1",)])
def test_followers_and_dummies_are_killed(crowd: SlicedCrowd, roles: tuple[str, ...]) -> None:
    course = Course(crowd, TURN_1)
    with course.held():
        killed = [crowd.roles()[role] for role in roles]
        for device in killed:
            crowd.send(device, signal.SIGKILL)
    assert same(course.end(others(*killed)), course.reference()), crowd.told()
    # Nothing of the turn under way is lost; those who are gone have no turns any more.
    assert course.turns[1][1] == ROWS // 2
    assert len(course.what("lost")) == len(killed)


def test_a_member_is_killed_at_any_moment(crowd: SlicedCrowd) -> None:
    """Wherever the course is then, with frames under way: the bits are those of the turns that were told."""
    course = Course(crowd)
    crowd.wait_until(lambda: bool(crowd.seats()), "no group comes together")
    time.sleep(random.SystemRandom().uniform(0, 1))
    killed = random.SystemRandom().choice(others())
    crowd.send(killed, signal.SIGKILL)
    assert same(course.end(others(killed)), course.reference()), crowd.told()


def test_the_dominator_is_killed(crowd: SlicedCrowd) -> None:
    course = Course(crowd, TURN_1)
    with course.held():
        killed = crowd.roles()["dominator"]
        crowd.send(killed, signal.SIGKILL)
    assert same(course.end(others(killed)), course.reference()), crowd.told()
    # The turn ended at its last cut.
    assert course.turns[1][1] == 15


def test_the_server_is_killed(crowd: SlicedCrowd) -> None:
    course = Course(crowd, TURN_1)
    with course.held():
        crowd.server.kill()
        crowd.server.start()
    assert same(course.end(others()), course.reference()), crowd.told()
    assert {batches for _, batches in course.turns.values()} == {ROWS // 2} and len(course.turns) == MEMBERS
    assert course.what("restored"), crowd.told()


@pytest.mark.postgres
@pytest.mark.parametrize("killed", [False, True], ids=["both stay", "the one with the groups is killed"])
def test_a_group_comes_by_a_front_end_that_only_passes_on(postgres: Any, tmp_path: Path, killed: bool) -> None:
    """Every frame goes by a front end that has no groups; when the other one dies, it takes them up where they were."""
    database = postgres.database()
    with SlicedCrowd(tmp_path, MEMBERS, TEXT, rows, "--db", database) as crowd:
        home = tmp_path / "passes-on"
        home.mkdir()
        shutil.copy(crowd.server.folder / "operator.token", home)
        aggregator, crowd.server = crowd.server, Server(home, "--db", database)
        try:
            FrontEnds.wait_until_ready(crowd.server)
            FrontEnds.wait_for_role(crowd.server, "follows")
            course = Course(crowd, TURN_1)
            with course.held():
                if killed:
                    aggregator.kill()
                    FrontEnds.wait_for_role(crowd.server, "aggregates")
            assert same(course.end(others()), course.reference()), crowd.told()
            assert {batches for _, batches in course.turns.values()} == {ROWS // 2} and len(course.turns) == MEMBERS
            assert bool(course.what("restored")) == killed, crowd.told()
            told = (home / "server.log").read_text()
            assert ("aggregates" in told) == killed, told
        finally:
            aggregator.kill()


def test_a_follower_hangs(crowd: SlicedCrowd) -> None:
    course = Course(crowd, TURN_1)
    with course.held():
        hung = crowd.roles()["follower 2"]
        crowd.send(hung, signal.SIGSTOP)
    assert same(course.end(others(hung)), course.reference()), crowd.told()
    assert course.turns[1][1] == ROWS // 2


def test_a_device_comes_back(crowd: SlicedCrowd) -> None:
    course = Course(crowd, (0, 20))
    with course.held():
        back = crowd.roles()["follower 1"]
        crowd.send(back, signal.SIGKILL)
        crowd.processes[back].join()
        crowd.start(back)
        crowd.wait_until(lambda: all(each["there"] for each in crowd.groups()[0]["members"]), "it does not come back")
    assert same(course.end(others()), course.reference()), crowd.told()
    assert {batches for _, batches in course.turns.values()} == {ROWS // 2}


def test_the_task_is_paused_and_goes_on(crowd: SlicedCrowd) -> None:
    course = Course(crowd, TURN_1)
    with course.held():
        crowd.server.ask(crowd.path, {"state": "paused"}, "PATCH")
        crowd.wait_until(lambda: crowd.groups()[0]["stage"] == "paused", "the group does not rest")
        crowd.server.ask(crowd.path, {"state": "open"}, "PATCH")
    assert same(course.end(others()), course.reference()), crowd.told()
    assert {batches for _, batches in course.turns.values()} == {ROWS // 2} and len(course.turns) == MEMBERS
    assert course.what("restored") and not course.what("lost"), crowd.told()


def test_the_task_is_stopped(crowd: SlicedCrowd) -> None:
    """Everybody ends by itself, hears why, and has the group's model at the last cut."""
    course = Course(crowd, TURN_1)
    with course.held():
        crowd.server.ask(crowd.path, {"state": "stopped"}, "PATCH")
    crowd.wait_for_end()
    assert crowd.groups()[0]["stage"] == "stopped"
    for device in others():
        assert "ended: the operator stopped it" in crowd.lines(device).read_text(), crowd.told()
    models = [crowd.model(device) for device in others()]
    assert all(same(models[0], other) for other in models[1:]), crowd.told()


def test_large_pieces_go_in_chunks_and_a_killed_follower_costs_no_bit(tmp_path: Path) -> None:
    text = TEXT.replace("layers = [12, 8]", "layers = [150, 120]").replace("cut-every = 15", "cut-every = 5")
    with SlicedCrowd(tmp_path, MEMBERS, text, rows) as crowd:
        terms = sliced_terms(crowd.task)
        assert max(terms.plan.piece_bytes(owner) for owner in terms.plan.owners) > CHUNK_BYTES
        course = Course(crowd, TURN_1)
        with course.held():
            killed = crowd.roles()["follower 1"]
            crowd.send(killed, signal.SIGKILL)
        assert same(course.end(others(killed)), course.reference()), crowd.told()
        assert course.turns[1][1] == ROWS // 2 and len(course.what("lost")) == 1
