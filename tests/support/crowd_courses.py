"""Random courses of several groups that share weights, of any net, number format and setting.

`python -m tests.support.crowd_courses 10000` runs many. Everything is in one process. Each course draws its setting and
what happens: members that are lost, come back or hang, servers that restart, altered frames, another pace of cuts. A
reference in the plain arithmetic of `slicing` follows what the machines say they have done: what a group uploads after
a pass, and the model that its members have in the end, must have its bits.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter, deque
from dataclasses import replace

import numpy as np

from crowdml.algorithms.server_parts.upload_window import Upload, UploadWindow
from crowdml.core import CheckIn, record, trees
from crowdml.core.keys import SigningKey
from crowdml.core.ops import Tree
from crowdml.models import flatten
from crowdml.slicing import batch_gradients
from crowdml.slicing.live import slice_frames as frames
from crowdml.slicing.live.controls import Hello, read_of_member, read_of_server, write_control
from crowdml.slicing.live.group_machine import Group, Out
from crowdml.slicing.live.group_records import DONE, RUNNING, SHARING, WAITING, Event, GroupStart
from crowdml.slicing.live.member_machine import Member
from crowdml.slicing.live.slice_frames import read_header
from crowdml.slicing.live.slice_terms import SharedNumbers, SliceTerms
from crowdml.slicing.sharing import Floats, choose, owners_of_parameters
from crowdml.slicing.training import Group as Whole
from crowdml.slicing.training import train_turn
from tests.support.sliced_nets import MLP, NORMALISED, first_parameters, model_of, plan_of

TASK = "0" * 64
PICTURES = (
    'kind = "layers"\nshape = [6, 6, 1]\nlayers = [{ kind = "convolution", size = 4, kernel = 3 }, { kind = "relu" }, '
    '{ kind = "pooling", size = 2 }, { kind = "flatten" }, { kind = "dense", size = 6 }, { kind = "tanh" }, '
    '{ kind = "dense", size = 3 }]'
)
MIXED = (
    'kind = "layers"\nshape = [6, 6, 1]\nlayers = [{ kind = "batch-norm" }, { kind = "convolution", size = 2, '
    'kernel = 3 }, { kind = "relu" }, { kind = "convolution", size = 4, kernel = 2 }, { kind = "batch-norm" }, '
    '{ kind = "relu" }, { kind = "flatten" }, { kind = "dense", size = 6 }, { kind = "batch-norm" }, '
    '{ kind = "tanh" }, { kind = "dense", size = 3 }]'
)
NETS = {MLP: 5, NORMALISED: 5, PICTURES: 36, MIXED: 36}
IDENTITIES = [SigningKey.make() for _ in range(16)]
KINDS = ("kill", "kill", "kill", "cut off", "half open", "restart", "lose server and member", "alter", "hang", "pace")
_plans: dict[tuple[object, ...], tuple[SliceTerms, Tree]] = {}


@record
class Setting:
    """What a course is about.

    Attributes:
        net: The `[model]` section.
        pieces: Followers of a group.
        dummies: Members that stand by.
        numbers: How sums and slopes are written.
        micro_batches: Parts of a batch.
        groups: Groups that share weights.
        theta: Share of its weights that an owner uploads.
        tau: A group takes over what more than this share of the window contains.
        omega: Size of the window.
        window: What it holds.
        shuffle: How pieces are dealt.
        cut_every: Batches between two cuts.
        passes: Passes of a group.
    """

    net: str
    pieces: int
    dummies: int
    numbers: str
    micro_batches: int
    groups: int
    theta: float
    tau: float
    omega: int
    window: str
    shuffle: str
    cut_every: int
    passes: int

    @staticmethod
    def drawn(chance: random.Random) -> Setting:
        """Draw one."""
        return Setting(
            net=chance.choice(list(NETS)),
            pieces=chance.choice((1, 2, 2, 3)),
            dummies=chance.choice((0, 1, 2)),
            numbers=chance.choice(("float32", "float32", "bfloat16", "int8")),
            micro_batches=chance.choice((1, 1, 2)),
            groups=chance.choice((1, 2, 2, 3)),
            theta=chance.choice((0.0, 0.3, 0.5, 1.0)),
            tau=chance.choice((0.0, 0.3, 0.5, 1.0)),
            omega=chance.choice((1, 2, 3)),
            window=chance.choice(("uploads", "weights")),
            shuffle=chance.choice(("all", "least")),
            cut_every=chance.choice((1, 2, 3, 50)),
            passes=chance.choice((1, 2, 3)),
        )

    def made(self) -> tuple[SliceTerms, Tree]:
        """Return the terms and the first parameters."""
        key = self.net, self.pieces, self.numbers, self.micro_batches
        if key not in _plans:
            model = model_of(self.net, NETS[self.net])
            plan = plan_of(
                model,
                self.pieces,
                balance=4.0,
                micro_batches=self.micro_batches,
                numbers=self.numbers,  # type: ignore[arg-type]
            )
            terms = SliceTerms(task_hash=TASK, plan=plan, batch=2, rate=0.3, decay=0.9, passes=1)
            _plans[key] = terms, first_parameters(model)
        terms, first = _plans[key]
        changes = {name: getattr(self, name) for name in ("dummies", "theta", "tau", "shuffle", "cut_every", "passes")}
        return replace(terms, **changes), first


@record
class Disturbance:
    """Something that happens before a step.

    Attributes:
        step: Before which step.
        kind: What.
        group: In which group.
        member: To whom.
    """

    step: int
    kind: str
    group: int
    member: int


class Reference:
    """What one group has learnt, in the plain arithmetic of one process.

    Attributes:
        base: The net where the pass began.
        turns: Dominator and batches of every turn that counts since.
    """

    def __init__(self, course: CrowdCourse, group: int) -> None:
        self._course, self._group = course, group
        self.base = course.first_values
        self.turns: dict[int, tuple[int, int]] = {}
        self.after_pass = self.base
        self._before = self._anew = self.base
        self._lost: dict[int, tuple[int, int]] = {}

    def note(self, event: Event, passes: int, first: Floats) -> None:
        """Follow what the machine says."""
        if event.what == "pass again":
            self.turns, self.base = {}, first
        elif event.what == "restored":
            same_pass = event.turn // self._course.size >= passes
            self.base = self._before if same_pass else self._anew
            self.turns = {turn: of for turn, of in self._lost.items() if turn < event.turn and same_pass}
        elif event.what == "turn":
            self.turns[event.turn] = event.members[0], event.batch

    def restarted(self, first: SharedNumbers, download: SharedNumbers) -> None:
        """The server knows no turn any more, unless it restores a cut of this pass, or the end of the last."""
        self.turns, self._lost, self._before = {}, dict(self.turns), self.base
        self.base, self._anew = first.values, np.array(self.after_pass)
        self._anew[download.numbers] = download.values

    def trained(self) -> tuple[Tree, Floats]:
        """Train what counts of this pass; return the net, and Σ|gradient|."""
        course = self._course
        terms = course.terms
        plan = terms.plan.arithmetic
        whole = Whole(np.arange(course.size), trees.cut(self.base, course.first))
        matters = trees.map(np.zeros_like, course.first)
        for turn, (dominator, batches) in sorted(self.turns.items()):
            rows, labels = course.rows(self._group, dominator)
            order = course.order(self._group, dominator)(turn, len(labels))[: batches * terms.batch]
            train_turn(
                whole,
                (rows, labels),
                dominator,
                order,
                terms.batch,
                terms.rate * terms.decay ** (turn // course.size),
                lambda parameters, batch, _, __: (
                    batch_gradients(plan.net, parameters, batch, micro_batches=plan.micro_batches).gradient
                ),
                matters,
            )
        return whole.parameters, flatten(matters).astype(np.float32)

    def upload(self) -> tuple[SharedNumbers, Floats]:
        """Return what the group uploads, and its numbers after the pass."""
        course = self._course
        parameters, matters = self.trained()
        flat = flatten(parameters).astype(np.float32)
        owners = owners_of_parameters(course.terms.plan.arithmetic.net, course.first)
        numbers = np.sort(choose(matters, owners, course.terms.theta))
        return SharedNumbers(numbers=numbers, values=flat[numbers]), flat


class CrowdCourse:
    """Several groups from beginning to end."""

    def __init__(self, seed: int, setting: Setting) -> None:
        self.setting, self._chance = setting, random.Random(seed)
        self.terms, self.first = setting.made()
        self.size = self.terms.size
        self.first_values = flatten(self.first).astype(np.float32)
        self.window = UploadWindow(
            first=lambda coins: self.first_values,
            size=len(self.first_values),
            omega=setting.omega,
            window=setting.window,  # type: ignore[arg-type]
        )
        self.state = self.window.init(None)  # type: ignore[arg-type]
        self.incarnation, self.steps = 1, 0
        self.passes: dict[int, int] = {}
        self.ended: dict[int, tuple[int, int] | None] = {}
        self.events: list[tuple[int, Event]] = []
        self.machines: dict[int, Group] = {}
        self.references = {group: Reference(self, group) for group in range(1, setting.groups + 1)}
        self.groups = list(self.references)
        everybody = [(group, number) for group in self.groups for number in range(1, self.size + 1)]
        self.members = {who: self._member(*who) for who in everybody}
        self.lost: set[tuple[int, int]] = set()
        self.hanging: set[tuple[int, int]] = set()
        self.ended_members: set[tuple[int, int]] = set()
        self.up: dict[tuple[int, int], deque[str | bytes]] = {who: deque() for who in everybody}
        self.down: dict[tuple[int, int], deque[str | bytes]] = {who: deque() for who in everybody}
        self.models: dict[int, list[Tree]] = {group: [] for group in self.groups}
        self._alter = 0
        for group in self.groups:
            self.passes[group], self.ended[group] = 0, None
            self.machines[group] = self._start(group)
        for who in everybody:
            self._connect(who)

    def rows(self, group: int, member: int) -> tuple[np.ndarray, np.ndarray]:
        """Return a member's rows and labels: always the same."""
        generator = np.random.default_rng([group, member])
        count = 1 + (group + member) % 5
        return (
            generator.normal(size=(count, NETS[self.setting.net])).astype(np.float32),
            generator.integers(0, 3, count),
        )

    def order(self, group: int, member: int):  # type: ignore[no-untyped-def]
        """Return the order of a member's rows in each turn."""
        return lambda turn, rows: np.random.default_rng([group, member, turn]).permutation(rows)

    def _member(self, group: int, number: int) -> Member:
        rows, labels = self.rows(group, number)
        entropy = random.Random(f"{group}/{number}/{self._chance.random()}").randbytes
        return Member(self.terms, rows, labels, self.order(group, number), IDENTITIES[number], entropy)

    def _shared(self) -> tuple[SharedNumbers, SharedNumbers]:
        numbers, values = self.state.taken_over(self.terms.tau)
        download = SharedNumbers(numbers=numbers, values=values) if len(self.groups) > 1 else SharedNumbers.none()
        return SharedNumbers.every(np.array(self.state.parameters)), download

    def _start(self, group: int) -> Group:
        first, download = self._shared()
        start = GroupStart(
            number=group,
            size=self.size,
            secret=b"secret",
            incarnation=self.incarnation,
            passes=self.passes[group],
            first=first,
            download=download,
            ended=self.ended[group],
        )
        return Group(self.terms, start)

    def _connect(self, who: tuple[int, int]) -> None:
        self.up[who].clear()
        self.down[who].clear()
        hello, *shown = self.members[who].hello()
        assert isinstance(hello, Hello)
        deposits = [each for each in shown if isinstance(each, bytes)]
        self._deliver(who[0], self.machines[who[0]].joined(who[1], hello.card.card(), deposits))

    def _deliver(self, group: int, out: Out) -> None:
        machine = self.machines[group]
        for number, message in out:
            if (group, number) in self.members:
                self.down[group, number].append(message if isinstance(message, bytes) else write_control(message))
        for event in machine.events:
            self.events.append((group, event))
            self.references[group].note(event, self.passes[group], machine.numbers.first.values)
        machine.events = []
        if machine.stage == SHARING and machine.numbers.upload is not None:
            self._store(group)

    def _store(self, group: int) -> None:
        """Compare what a group uploads, fold it in, and give it what it takes over."""
        machine, reference, upload = self.machines[group], self.references[group], self.machines[group].numbers.upload
        assert upload is not None
        if machine.cut is None:
            assert not len(upload.numbers)
            flat = None
        else:
            expected, flat = reference.upload()
            assert np.array_equal(upload.numbers, expected.numbers), "other numbers are uploaded"
            assert upload.values.tobytes() == expected.values.tobytes(), "other values are uploaded"
        if len(upload.numbers):
            values, held = np.zeros_like(self.first_values), np.zeros(len(self.first_values), np.int32)
            values[upload.numbers], held[upload.numbers] = upload.values, 1
            check_in = CheckIn(update=Upload(values=values, held=held), weight=np.int32(1))
            self.state, _ = self.window.absorb(self.state, self.window.row(), check_in, np.int32(0))
            self.state, _ = self.window.commit(self.state)
        self.passes[group] += 1
        self.ended[group] = machine.cut.place if machine.cut else None
        first, download = self._shared()
        reference.turns = {}
        if flat is None:
            reference.base = first.values
        else:
            reference.base = np.array(flat)
            reference.base[download.numbers] = download.values
            reference.after_pass = flat
        self._deliver(group, machine.shared(first, download))

    def disturb(self, what: Disturbance) -> None:
        """Let something happen."""
        who, kind = (what.group, what.member), what.kind
        machine = self.machines[what.group]
        if kind in ("kill", "lose server and member") and who in self.members:
            del self.members[who]
            self.lost.add(who)
            self.hanging.discard(who)
            self.up[who].clear()
            self.down[who].clear()
            if kind == "kill":
                self._deliver(what.group, machine.left(what.member, "killed"))
        elif kind == "come back" and who in self.lost:
            self.lost.remove(who)
            self.members[who] = self._member(*who)
            self._connect(who)
        elif kind == "cut off" and who in self.members:
            self._deliver(what.group, machine.left(what.member, "cut off"))
            self._connect(who)
        elif kind == "half open" and who in self.members:
            self._connect(who)
        elif kind == "alter":
            self._alter += 1
        elif kind == "hang" and who in self.members:
            self.hanging.add(who)
        elif kind == "pace":
            machine.next_every = self._chance.choice((1, 2, 5))
        if kind in ("restart", "lose server and member"):
            self._restart()

    def _restart(self) -> None:
        self.incarnation += 1
        for group in self.groups:
            self.references[group].restarted(*self._shared())
            self.machines[group] = self._start(group)
        for who in self.members:
            self._connect(who)
        for group in self.groups:
            self._deliver(group, self.machines[group].begin(patient=True))
            self._deliver(group, self.machines[group].begin())

    def _time_passes(self) -> bool:
        """Nothing moves: let timers run out; tell whether anything came of it."""
        for who, member in list(self.members.items()):
            machine = self.machines[who[0]]
            now = machine.turn, machine.attempt
            asks = who not in self.hanging and machine.stage == RUNNING and not machine.asking and member._now == now
            said = member.late() if asks and member.role == -1 and who[1] in machine.cards else []
            if said:
                self.up[who].extend(each if isinstance(each, bytes) else write_control(each) for each in said)
                return True
        for group, machine in self.machines.items():
            if machine.stage == RUNNING and machine.asking:
                self._deliver(group, machine.answers_due())
                return True
        for who in list(self.hanging):
            if who in self.members and who[1] not in self.machines[who[0]].cards:
                # It was stopped while it hung: it connects again.
                self.hanging.remove(who)
                self._connect(who)
                return True
        if self.hanging:
            self.hanging.clear()
            return True
        for group, machine in self.machines.items():
            if machine.stage == WAITING and len(machine.present) >= len(self.terms.plan.owners):
                self._deliver(group, machine.deal_anew())
                return True
        return False

    def run(self, disturbances: list[Disturbance], limit: int = 200_000) -> None:
        """Go on until nothing moves any more."""
        waiting = deque(sorted(disturbances, key=lambda each: each.step))
        while True:
            while waiting and self.steps >= waiting[0].step:
                self.disturb(waiting.popleft())
            moving = [(0, who) for who in self.members if self.up[who] and who not in self.hanging]
            moving += [(1, who) for who in self.members if self.down[who] and who not in self.hanging]
            if not moving:
                if self._time_passes():
                    continue
                if not waiting:
                    return
                self.disturb(waiting.popleft())
                continue
            side, who = moving[self._chance.randrange(len(moving))]
            self.steps += 1
            assert self.steps < limit, "the course does not end"
            if side == 0:
                self._at_server(who, self.up[who].popleft())
                continue
            message = self.down[who].popleft()
            told = read_of_server(message) if isinstance(message, str) else message
            member = self.members[who]
            self.up[who].extend(
                each if isinstance(each, bytes) else write_control(each) for each in member.handle(told)
            )
            if member.reason and member.again:
                member.reason = ""
                self._connect(who)
            elif member.reason:
                # Its process ends.
                self.ended_members.add(who)
                del self.members[who]
                if member.model is not None:
                    self.models[who[0]].append(member.model)
                self._deliver(who[0], self.machines[who[0]].left(who[1], "ended"))

    def _at_server(self, who: tuple[int, int], message: str | bytes) -> None:
        group, number = who
        machine = self.machines[group]
        if isinstance(message, str):
            self._deliver(group, machine.handle(number, read_of_member(message)))
            return
        header = read_header(message)
        if header.kind not in frames.BETWEEN_MEMBERS:
            self._deliver(group, machine.handle(number, message))
        elif header.fence == (machine.turn, machine.attempt) and (group, header.receiver) in self.members:
            if self._alter:
                self._alter -= 1
                message = message[:-1] + bytes([message[-1] ^ 1])
            self.down[group, header.receiver].append(message)


def drawn_disturbances(chance: random.Random, setting: Setting) -> list[Disturbance]:
    """Draw what happens; most members come back."""
    size, made = setting.pieces + 1 + setting.dummies, []
    steps = 150 * setting.groups * setting.passes * setting.pieces
    for _ in range(chance.choice((0, 1, 2, 3, 5, 8))):
        kind, group, member = chance.choice(KINDS), 1 + chance.randrange(setting.groups), 1 + chance.randrange(size)
        step = chance.randrange(steps)
        made.append(Disturbance(step=step, kind=kind, group=group, member=member))
        if kind in ("kill", "lose server and member") and chance.random() < 0.8:
            back = step + chance.randrange(1 + steps // 2)
            made.append(Disturbance(step=back, kind="come back", group=group, member=member))
    return made


def check_course(seed: int) -> set[str]:
    """Run a course; return what happened in it."""
    chance = random.Random(seed)
    setting = Setting.drawn(chance)
    disturbances = drawn_disturbances(chance, setting)
    course = CrowdCourse(seed, setting)
    try:
        course.run(disturbances)
        for group, machine in course.machines.items():
            there = [number for of, number in course.members if of == group]
            if not there and not machine.cards:
                continue
            if machine.stage == WAITING:
                assert len(machine.present) < len(course.terms.plan.owners), "a group waits though members are there"
                continue
            assert machine.stage == DONE, f"group {group} stalls in {machine.stage}"
            expected = trees.leaves(trees.cut(course.references[group].base, course.first))
            for model in course.models[group]:
                for one, other in zip(trees.leaves(model), expected, strict=True):
                    assert one.tobytes() == other.tobytes(), f"group {group} has another model"
    except Exception as error:
        told = "\n".join(f"{group}: {event}" for group, event in course.events[-40:])
        raise AssertionError(f"course {seed}: {error!r}\n{setting}\n{disturbances}\n{told}") from error
    return {event.what for _, event in course.events}


def main(count: int, seed: int) -> None:
    """Run many courses, and say what they met."""
    seen, began, failed = Counter[str](), time.process_time(), list[str]()
    for number in range(count):
        try:
            seen.update(check_course(seed * 1_000_000 + number))
        except AssertionError as error:
            failed.append(str(error))
            print(f"FAILED {error}\n", flush=True)
    took = time.process_time() - began
    print(f"{count} courses in {took:.0f} CPU s, {len(failed)} of them not with the bits of one process")
    for what, times in seen.most_common():
        print(f"  {what}: in {times}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000, int(sys.argv[2]) if len(sys.argv) > 2 else 1)
