"""One attempt at the masked sum of one version: its machine, what members have handed over, and how it ended."""

from __future__ import annotations

import asyncio

from crowdml.protocol.sums import SumServer
from crowdml.server.answers import Answer, Refusal
from crowdml.server.sum_folding import Upload

STAGES = ("hello", "shares", "masked", "consent", "reveal")


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
        """Nobody has spoken."""
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
        return self.closed["reveal"].is_set()
