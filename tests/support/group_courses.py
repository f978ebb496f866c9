"""Random courses of a group: members that are lost or come back, servers that restart, messages in any order.

Everything is in one process. Queues are first-in-first-out in each direction, as connections are; which of them moves
next is chance. In the end the group's model must have the bits that a single process finds for the turns and batches
that the machine says were made.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from crowdml.core import Batch, record, trees
from crowdml.core.keys import SigningKey
from crowdml.core.ops import Tree
from crowdml.models import flatten
from crowdml.privacy.noise.samplers import OsWords
from crowdml.slicing import batch_gradients
from crowdml.slicing.live import slice_frames as frames
from crowdml.slicing.live.controls import (
    Hello,
    OfMember,
    OfServer,
    Prepare,
    read_of_member,
    read_of_server,
    write_control,
)
from crowdml.slicing.live.group_machine import Group, Out
from crowdml.slicing.live.group_records import DONE, GATHERING, SHARING, WAITING, Event, GroupStart
from crowdml.slicing.live.member_machine import Member
from crowdml.slicing.live.slice_frames import read_header
from crowdml.slicing.live.slice_terms import SharedNumbers, SliceTerms
from crowdml.slicing.training import Group as Whole
from crowdml.slicing.training import train_turn
from tests.support.sliced_nets import first_parameters, model_of, plan_of

TASK = "0" * 64
SIZE, PIECES, ROWS = 5, 2, 3
IDENTITIES = [SigningKey.make() for _ in range(SIZE + 1)]


def make_terms(**changes: object) -> SliceTerms:
    """Make the terms of a small group."""
    usual: dict[str, object] = {
        "plan": plan_of(model_of(), PIECES),
        "passes": 2,
        "batch": 2,
        "rate": 0.3,
        "decay": 0.9,
        "theta": 0.5,
        "cut_every": 2,
        "dummies": SIZE - 1 - PIECES,
    }
    return SliceTerms(task_hash=TASK, **usual | changes)  # type: ignore[arg-type]


TERMS = make_terms()
FIRST = first_parameters(TERMS.plan.arithmetic.net.model)


def rows_of(member: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a member's rows and labels: always the same."""
    generator = np.random.default_rng(member)
    rows = ROWS + member % 2
    return generator.normal(size=(rows, 5)).astype(np.float32), generator.integers(0, 3, rows)


def order_of(member: int) -> Callable[[int, int], np.ndarray]:
    """Return the order of a member's rows in each turn."""
    return lambda turn, rows: np.random.default_rng([member, turn]).permutation(rows)


@record
class Disturbance:
    """Something that happens before a step.

    Attributes:
        step: Before which step.
        kind: "kill", "come back", "cut off", "restart", "alter", "drop" or "lose server and member".
        member: Whom it concerns.
    """

    step: int
    kind: str
    member: int = 0


class Kept:
    """What members release of their rows, where there is noise on the first cut: drawn once, as devices keep it."""

    def __init__(self, terms: SliceTerms) -> None:
        self._cut, self.columns = terms.cut, dict[int, tuple[np.ndarray, np.ndarray]]()
        self.asked: list[int] = []

    def of(self, member: int) -> Callable[[Callable[[np.ndarray], np.ndarray]], tuple[np.ndarray, np.ndarray]]:
        """Return what a member asks before it sends anything."""

        def released(sums: Callable[[np.ndarray], np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
            assert self._cut is not None
            self.asked.append(member)
            if member not in self.columns:
                rows, labels = rows_of(member)
                columns = self._cut.columns(sums(rows).T, OsWords())
                self.columns[member] = columns, self._cut.answers(labels, OsWords())
            return self.columns[member]

        return released


class Course:
    """A group from beginning to end."""

    def __init__(self, seed: int, terms: SliceTerms = TERMS, size: int = SIZE) -> None:
        self.terms = replace(terms, dummies=size - len(terms.plan.owners))
        self.size, self._chance = size, random.Random(seed)
        self.incarnation, self.passes, self.steps = 1, 0, 0
        self.ended: tuple[int, int] | None = None
        self.kept = Kept(self.terms)
        self.events: list[Event] = []
        self.members = {number: self._member(number) for number in range(1, size + 1)}
        self.lost: dict[int, Member] = {}
        self.up: dict[int, deque[str | bytes]] = {number: deque() for number in self.members}
        self.down: dict[int, deque[str | bytes]] = {number: deque() for number in self.members}
        # A deposit goes behind everything else, as drivers send it, and whole before the next one.
        self.behind: dict[int, deque[str | bytes]] = {number: deque() for number in self.members}
        self.group = self._start()
        self._alter = 0
        for number in self.members:
            self._connect(number)

    def _member(self, number: int) -> Member:
        rows, labels = rows_of(number)
        entropy = random.Random(f"{number}/{self._chance.random()}").randbytes
        released = None if self.terms.cut is None else self.kept.of(number)
        return Member(self.terms, rows, labels, order_of(number), IDENTITIES[number], entropy, released)

    def _start(self) -> Group:
        first = SharedNumbers.every(flatten(FIRST).astype(np.float32))
        start = GroupStart(
            number=7,
            size=self.size,
            secret=b"secret",
            incarnation=self.incarnation,
            passes=self.passes,
            first=first,
            download=SharedNumbers.none(),
            ended=self.ended,
        )
        return Group(self.terms, start)

    def _connect(self, number: int) -> None:
        """A member's hello is at once at the server: queues are empty when a connection begins."""
        self.behind[number].clear()
        self.up[number].clear()
        self.down[number].clear()
        hello, *shown = self.members[number].hello()
        assert isinstance(hello, Hello)
        deposits = [each for each in shown if isinstance(each, bytes)]
        self._deliver(self.group.joined(number, hello.card.card(), deposits))

    def _deliver(self, out: Out) -> None:
        for number, message in out:
            if number in self.members:
                self.down[number].append(message if isinstance(message, bytes) else write_control(message))
        self.events += self.group.events
        self.group.events = []
        if self.group.stage == SHARING and self.group.numbers.upload is not None:
            self.passes += 1
            self.ended = self.group.cut.place if self.group.cut else None
            first = SharedNumbers.every(flatten(FIRST).astype(np.float32))
            self._deliver(self.group.shared(first, SharedNumbers.none()))

    def disturb(self, disturbance: Disturbance) -> None:
        """Let something happen."""
        number, kind = disturbance.member, disturbance.kind
        if kind in ("kill", "lose server and member") and number in self.members:
            self.lost[number] = self.members.pop(number)
            self.behind[number].clear()
            self.up[number].clear()
            self.down[number].clear()
            if kind == "kill":
                self._deliver(self.group.left(number, "killed"))
        elif kind == "come back" and number in self.lost:
            del self.lost[number]
            self.members[number] = self._member(number)
            self._connect(number)
        elif kind == "cut off" and number in self.members:
            self._deliver(self.group.left(number, "cut off"))
            self._connect(number)
        elif kind == "alter":
            self._alter += 1
        if kind in ("restart", "lose server and member"):
            self.incarnation += 1
            self.group = self._start()
            for each in self.members:
                self._connect(each)
            self._deliver(self.group.begin(patient=True))
            self._deliver(self.group.begin())

    def _send(self, number: int, answer: OfMember | bytes) -> None:
        if isinstance(answer, bytes) and read_header(answer).kind == frames.DEPOSIT:
            self.up[number].extend(self.behind[number])
            self.behind[number] = deque([answer])
        else:
            self.up[number].append(answer if isinstance(answer, bytes) else write_control(answer))

    def _at_server(self, number: int, message: str | bytes) -> None:
        if isinstance(message, str):
            self._deliver(self.group.handle(number, read_of_member(message)))
            return
        header = read_header(message)
        if header.kind not in frames.BETWEEN_MEMBERS:
            self._deliver(self.group.handle(number, message))
        elif header.fence == (self.group.turn, self.group.attempt) and header.receiver in self.members:
            if self._alter:
                self._alter -= 1
                message = message[:-1] + bytes([message[-1] ^ 1])
            self.down[header.receiver].append(message)

    def run(
        self, disturbances: list[Disturbance], limit: int = 100_000, until: Callable[[], bool] = lambda: False
    ) -> str:
        """Go on until nothing moves any more, or something holds; return the stage in which the group is then."""
        waiting = deque(sorted(disturbances, key=lambda each: each.step))
        while not until():
            while waiting and self.steps >= waiting[0].step:
                self.disturb(waiting.popleft())
            sides = (self.up, self.down, self.behind)
            moving = [(side, number) for side in sides for number, queue in side.items() if queue]
            if not moving:
                if waiting:
                    self.disturb(waiting.popleft())
                elif self.group.stage == WAITING and self.enough:
                    self._deliver(self.group.deal_anew())
                else:
                    return self.group.stage
                continue
            side, number = moving[self._chance.randrange(len(moving))]
            message = side[number].popleft()
            self.steps += 1
            assert self.steps < limit, "the course does not end"
            if side is not self.down:
                self._at_server(number, message)
                continue
            told: OfServer | bytes = read_of_server(message) if isinstance(message, str) else message
            if isinstance(told, Prepare):
                self.behind[number].clear()
            for answer in self.members[number].handle(told):
                self._send(number, answer)
        return self.group.stage

    @property
    def enough(self) -> bool:
        """Whether the group has members for all pieces."""
        return len(self.group.present) > len(self.terms.plan.owners) - 1

    def turns(self) -> list[tuple[int, int, int]]:
        """Return turn, dominator and batches of every turn that the group's model rests on."""
        made: list[tuple[int, int, int]] = []
        for event in self.events:
            if event.what == "pass again":
                # In these courses the shared weights stay the first ones.
                made = []
            if event.what == "restored":
                made = [each for each in made if each[0] < event.turn or each[0] // self.size < self.passes_at(event)]
            if event.what == "turn":
                made = [each for each in made if each[0] != event.turn]
                made.append((event.turn, event.members[0], event.batch))
        return made

    def passes_at(self, event: Event) -> int:
        """Return how many passes were stored when an event happened."""
        seen = 0
        for each in self.events:
            if each is event:
                return seen
            seen += each.what == "shared"
        raise AssertionError(event)

    def model(self) -> Tree:
        """Return the model of any member that was handed it."""
        found = [member.model for member in self.members.values() if member.model is not None]
        for other in found[1:]:
            assert all(
                one.tobytes() == two.tobytes()
                for one, two in zip(trees.leaves(found[0]), trees.leaves(other), strict=True)
            )
        assert found, "nobody has the group's model"
        return found[0]


_known: dict[tuple[tuple[int, int, int], ...], Tree] = {}


def released_reference(course: Course) -> Tree:
    """Train the turns of a course with noise on the first cut in a single process, as a simulation does."""
    terms, net = course.terms, course.terms.plan.arithmetic.net
    whole, matters = Whole(np.arange(course.size), FIRST), trees.map(np.zeros_like, FIRST)
    frozen = (*net.graph.before, net.graph.hidden[0].linear)
    for turn, dominator, batches in course.turns():
        columns, labels = course.kept.columns[dominator]

        def gradient(
            parameters: Tree, batch: Batch, _: int, numbers: np.ndarray, columns: np.ndarray = columns
        ) -> Tree:
            made = net.gradients(parameters, batch, lambda sums: columns[:, numbers]).gradient
            return tuple({} if at in frozen else layer for at, layer in enumerate(made))

        rows, rate = rows_of(dominator)[0], terms.rate * terms.decay ** (turn // course.size)
        order = order_of(dominator)(turn, len(labels))[: batches * terms.batch]
        train_turn(whole, (rows, labels), dominator, order, terms.batch, rate, gradient, matters)
    return whole.parameters


def reference(turns: list[tuple[int, int, int]], terms: SliceTerms = TERMS, size: int = SIZE) -> Tree:
    """Train the same turns in a single process."""
    key = tuple(turns)
    if key in _known and terms is TERMS:
        return _known[key]
    whole, matters = Whole(np.arange(size), FIRST), trees.map(np.zeros_like, FIRST)
    for turn, dominator, batches in turns:
        rows, labels = rows_of(dominator)
        order = order_of(dominator)(turn, len(labels))[: batches * terms.batch]
        rate = terms.rate * terms.decay ** (turn // size)
        train_turn(
            whole,
            (rows, labels),
            dominator,
            order,
            terms.batch,
            rate,
            lambda parameters, batch, _, __: (
                batch_gradients(
                    terms.plan.arithmetic.net, parameters, batch, micro_batches=terms.plan.arithmetic.micro_batches
                ).gradient
            ),
            matters,
        )
    if terms is TERMS:
        _known[key] = whole.parameters
    return whole.parameters


def same_bits(one: Tree, other: Tree) -> bool:
    """Tell whether two models have the same bits."""
    return all(a.tobytes() == b.tobytes() for a, b in zip(trees.leaves(one), trees.leaves(other), strict=True))


__all__ = [
    "DONE",
    "GATHERING",
    "WAITING",
    "Course",
    "Disturbance",
    "make_terms",
    "reference",
    "released_reference",
    "same_bits",
]
