"""The course of sliced groups in time: how long batches take, who is lost when, what is replayed, how many bytes cross.

Nothing here changes a number of the net but one: a dominator that is lost takes the rest of its turn with it, back to
the last cut. A lost follower costs time alone. Its piece goes to a dummy, the group goes back to the cut and lets the
same batches in again; without a dummy it waits at the cut until a device is back, an hour at most.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from crowdml.core import record
from crowdml.core.ops import Tree
from crowdml.slicing import DOMINATOR, SlicedNet
from crowdml.slicing.costs import Cuts, cuts
from crowdml.slicing.number_formats import NUMBERS
from crowdml.slicing.piece_state import HEADER, length, piece_layout, tied_numbers
from crowdml.slicing.sliced_net import micro_batch_sizes
from crowdml.slicing.stages import Indices
from crowdml.slicing.training import Turn
from crowdml.task import Task

FRAME = 36 + 16
"""Bytes of a message beside its numbers: header and seal."""
STARTING_LEGS = 3
"""Legs from a loss, or a turn's end, to the first batch: the server prepares all, hears that all are ready, says go."""
REPLAY_SECONDS = 10.0
"""What a replay may take where the task does not say how often to cut."""
PATIENCE = 3600.0
"""Seconds that a group with too few devices waits at a cut."""


@record
class Traffic:
    """What crosses, and how long it takes.

    Attributes:
        batch_seconds: How long a batch takes.
        floor_seconds: How long its hops take by themselves.
        cut_every: Batches between two cuts.
        row_bytes: Bytes of sums and slopes for a row, with scales.
        batch_bytes: What crosses for each batch beside them: headers, seals, gradients of shared filters.
        pieces: Bytes of every owner's piece, the dominator's first.
        moved: Pieces that change hands from turn to turn.
        hand_over_seconds: How long a group stands still when pieces change hands.
    """

    batch_seconds: float
    floor_seconds: float
    cut_every: int
    row_bytes: int
    batch_bytes: int
    pieces: tuple[int, ...]
    moved: int
    hand_over_seconds: float


def traffic(task: Task, net: SlicedNet, like: Tree) -> Traffic | None:
    """Work out what a group's batches cost; None where every device is alone."""
    settings, relay = task.algorithm, task.crowd.relay
    if not settings.pieces:
        return None
    found, numbers = cuts(net.graph, net.pieces), NUMBERS[settings.numbers]
    owners = (DOMINATOR, *range(settings.pieces))
    micros = len(micro_batch_sizes(net.model, settings.batch, settings.micro_batches, settings.normalisation))
    tied = sum(4 * len(both) + FRAME for owner in owners for both in tied_numbers(net, like, owner).values())
    layouts = [piece_layout(net, like, owner) for owner in owners]
    pieces = tuple(
        HEADER.size + 4 * (length(layout) + length(leaf for leaf in layout if leaf.name == "w")) for layout in layouts
    )
    row_bytes = 2 * found.crossing * numbers.size + found.scales(settings.numbers)
    sending = _sending(found, settings.batch * numbers.size / relay.bandwidth, micros) if relay.bandwidth else 0.0
    batch_seconds = found.floor(relay.leg) + sending + relay.arithmetic
    largest = max(pieces) / relay.bandwidth if relay.bandwidth else 0.0
    return Traffic(
        batch_seconds=batch_seconds,
        floor_seconds=found.floor(relay.leg),
        cut_every=settings.cut_every or (max(1, int(REPLAY_SECONDS / batch_seconds)) if batch_seconds else 1),
        row_bytes=row_bytes,
        batch_bytes=found.messages * micros * FRAME + tied,
        pieces=pieces,
        moved=len(pieces) if settings.shuffle == "all" else 2,
        hand_over_seconds=STARTING_LEGS * relay.leg + 2 * largest,
    )


def _sending(found: Cuts, number_seconds: float, micros: int) -> float:
    """Seconds that links need for a batch: whole messages hop by hop; micro-batches follow each other through them."""
    links = []
    for between in found.stages:
        up, down = number_seconds * between.sum(axis=1).max(), number_seconds * between.sum(axis=0).max()
        # Backward the same numbers go the other way.
        links += [(up, down), (down, up)]
    one = sum(up + down for up, down in links) / micros
    return float(one + (micros - 1) * max(max(link) for link in links) / micros)


class GroupCourse:
    """One group's clock, its devices' losses, and what was counted."""

    def __init__(self, traffic: Traffic, task: Task, devices: Indices, generator: np.random.Generator) -> None:
        """Begin at zero with all devices there."""
        self.traffic, self.relay, self.generator = traffic, task.crowd.relay, generator
        self.batch_rows, self.clock, self.waited = task.algorithm.batch, 0.0, 0.0
        self.counts: Counter[str] = Counter()
        self.back = dict.fromkeys(devices.tolist(), 0.0)
        self.next_loss = {device: self._draw(0.0) for device in self.back}

    def turn(self, turn: Turn, rows: int) -> int:
        """Let a turn take place. Returns how many of the dominator's batches count."""
        batches = math.ceil(rows / self.batch_rows)
        self._go_on()
        if self.back[turn.dominator] > self.clock:
            self.counts["turns_lost"] += 1
            return 0
        followers, dummies = list(turn.followers), list(turn.dummies)
        self._start(self.traffic.moved)
        done = held = 0
        while done < batches:
            lost = self._lost_before(self.clock + self.traffic.batch_seconds, (turn.dominator, *followers))
            if lost is None:
                done += 1
                self.clock += self.traffic.batch_seconds
                self.counts["batches"] += 1
                if done % self.traffic.cut_every == 0 or done == batches:
                    held = done
                    self.counts["deposit_bytes"] += sum(self.traffic.pieces)
                continue
            self.counts["losses"] += 1
            if lost == turn.dominator or not self._replace(lost, followers, dummies):
                self.counts["turns_cut_short"] += 1
                self.counts["batches_lost"] += batches - held
                self.counts["batches"] -= done - held
                break
            self.counts["batches"] -= done - held
            self.counts["replayed"] += done - held
            done = held
        self.counts["rows"] += min(held * self.batch_rows, rows)
        return held

    def bytes(self) -> dict[str, int]:
        """Count what the server has relayed and kept."""
        through = self.counts["batches"] + self.counts["replayed"]
        rows = self.counts["rows"] + self.counts["replayed"] * self.batch_rows
        return {
            "sums": rows * self.traffic.row_bytes,
            "beside": through * self.traffic.batch_bytes,
            "deposits": self.counts["deposit_bytes"],
            "hand_overs": self.counts["hand_over_bytes"],
        }

    def state(self) -> dict[str, Any]:
        """Return what changes in the course of time, as plain values; the generator is everybody's."""
        devices = {"back": list(self.back.values()), "next_loss": list(self.next_loss.values())}
        return {"clock": self.clock, "waited": self.waited, "counts": dict(self.counts), **devices}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to such a state, of a group with as many devices."""
        self.clock, self.waited, self.counts = state["clock"], state["waited"], Counter(state["counts"])
        self.back = dict(zip(self.back, state["back"], strict=True))
        self.next_loss = dict(zip(self.next_loss, state["next_loss"], strict=True))

    def _draw(self, since: float) -> float:
        if not self.relay.loss_every:
            return math.inf
        return since + float(self.generator.exponential(self.relay.loss_every))

    def _go_on(self) -> None:
        """Let devices that nobody watched be lost and come back until now."""
        for device in self.back:
            while self.next_loss[device] <= self.clock:
                self._lose(device)

    def _lose(self, device: int) -> None:
        self.back[device] = self.next_loss[device] + self.relay.away
        self.next_loss[device] = self._draw(self.back[device])

    def _lost_before(self, time: float, owners: Sequence[int]) -> int | None:
        """Let the first owner be lost that is lost before a time; the clock goes on to when the others know."""
        first = min(owners, key=self.next_loss.__getitem__)
        if self.next_loss[first] >= time:
            return None
        self.clock = max(self.clock, self.next_loss[first]) + self.relay.noticed
        self._lose(first)
        return first

    def _replace(self, lost: int, followers: list[int], dummies: list[int]) -> bool:
        """Give the piece of a lost follower to a dummy, or to the first device that is back."""
        self._go_on()
        dummies.append(lost)
        first = min(dummies, key=self.back.__getitem__)
        if self.back[first] - self.clock > PATIENCE:
            self.clock += PATIENCE
            self.waited += PATIENCE
            return False
        if self.back[first] > self.clock:
            self.waited += self.back[first] - self.clock
            self.clock = self.back[first]
        dummies.remove(first)
        followers[followers.index(lost)] = first
        self._start(1)
        return True

    def _start(self, moved: int) -> None:
        """Hand pieces over, and go."""
        self.clock += self.traffic.hand_over_seconds
        self.counts["hand_over_bytes"] += round(moved * sum(self.traffic.pieces) / len(self.traffic.pieces))


def relay_report(courses: Sequence[GroupCourse], planned: Traffic) -> Mapping[str, Any]:
    """Say what all groups of all trials took, beside the plan."""
    counts = sum((course.counts for course in courses), Counter[str]())
    seconds = sum(course.clock for course in courses)
    crossed = sum((Counter(course.bytes()) for course in courses), Counter[str]())
    names = ("batches", "replayed", "losses", "batches_lost", "turns_cut_short", "turns_lost")
    floor = planned.floor_seconds
    return {
        "group_seconds": round(seconds, 3),
        "waited_seconds": round(sum(course.waited for course in courses), 3),
        "batches_per_second": round(counts["batches"] / seconds, 4) if seconds else None,
        "floor_batches_per_second": round(1 / floor, 4) if floor else None,
        "batch_seconds": round(planned.batch_seconds, 6),
        "cut_every": planned.cut_every,
        "bytes_per_row": planned.row_bytes,
        "bytes": {name: crossed[name] for name in ("sums", "beside", "deposits", "hand_overs")},
    } | {name: counts[name] for name in names}
