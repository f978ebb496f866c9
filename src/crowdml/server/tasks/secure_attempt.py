"""One attempt at the sum of one version: its machine, what members have handed over, and how it ended."""

from __future__ import annotations

import asyncio

from crowdml.core import record
from crowdml.core.errors import NotAuthorised
from crowdml.secure_aggregation import SumServer
from crowdml.secure_aggregation.stages import CONSENT, HELLO, MASKED, ORDER, REVEAL, SHARES, STAGES
from crowdml.secure_aggregation.sum_messages import write_items
from crowdml.server.refusals import NO_STORE, Answer, Refusal
from crowdml.server.tasks.folding import Upload

_OCTETS = ((b"content-type", b"application/octet-stream"), NO_STORE)


@record
class Message:
    """What the headers of a message say.

    Attributes:
        key: Idempotency key of a masked vector.
        started: Version that a member began its work with; None: the present one.
    """

    key: str = ""
    started: int | None = None


class Attempt:
    """One attempt at the sum of one version.

    Args:
        machine: The server's machine of the sum.

    Attributes:
        started: Version that each member began its work with, by slot.
        uploads: What receipts need to know of masked vectors, by slot.
        answers: Receipts, by slot, once the sum is folded in.
        failure: Why it was given up; None where it was not.
        closed: Which stages are over.
        timer: Ends the present stage.
    """

    def __init__(self, machine: SumServer) -> None:
        self.machine = machine
        self.started: dict[int, int] = {}
        self.uploads: dict[int, Upload] = {}
        self.answers: dict[int, Answer] = {}
        self.failure: Refusal | None = None
        self.closed = {stage: asyncio.Event() for stage in STAGES}
        self.timer: asyncio.TimerHandle | None = None

    @property
    def name(self) -> str:
        """How devices name this attempt."""
        return f"{self.machine.version}-{self.machine.attempt}"

    @property
    def over(self) -> bool:
        """Whether it was folded in or given up."""
        return self.closed[REVEAL].is_set()

    def answer(self, slot: int, stage: str) -> Answer:
        """Return what follows a closed stage for one member, or say why it was given up."""
        if self.failure is not None:
            raise self.failure
        if stage == REVEAL and slot in self.answers:
            return self.answers[slot]
        try:
            return Answer(status=200, body=self._following(slot, stage), headers=_OCTETS)
        except NotAuthorised as error:
            raise Refusal(422, "not-a-member", str(error)) from None

    def _following(self, slot: int, stage: str) -> bytes:
        machine = self.machine
        if stage == HELLO:
            return machine.shown
        if stage in ORDER:
            return write_items(machine.links(ORDER.index(stage)))
        if stage == SHARES:
            return machine.mail(slot).to_bytes()
        if stage == MASKED:
            return machine.shown_survivors(slot).to_bytes()
        if stage == CONSENT:
            return machine.consents(slot).to_bytes()
        raise NotAuthorised("this device's vector is not in the sum")
