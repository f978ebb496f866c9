"""Sending what was charged: always the stored bytes, until a receipt or a refusal settles them."""

from __future__ import annotations

from typing import Literal

from crowdml.algorithms.live import LiveTask
from crowdml.core import record
from crowdml.core.errors import TermsViolated
from crowdml.device.answers import Answer
from crowdml.device.calls import Calls, receipt_of
from crowdml.device.home import Member
from crowdml.device.ledger_store import Ledger, Unsettled
from crowdml.device.memory import Memory
from crowdml.device.trust import SheetChanged, require_plausible, require_whole

RESYNC = "once you know why: crowdml device resync"
"""What an owner can do about a server that shows less than before."""
GO_ON = ("stale", "future-version", "already-in-round", "not-invited", "late", "sum-aborted", "sum-over")
"""Refusals after which the next release may well be used."""


@record
class Outcome:
    """What became of one check-in.

    Attributes:
        key: Its idempotency key.
        status: Folded in, stored for folding in, or refused: then it is spent all the same.
        code: Why it was refused.
        number: Of this device's check-ins, as the server counts them; 0 if refused.
        version: Version after it; where it was refused, the one the server names, or -1.
        releases: Charged so far, this one included.
        epsilon: ε spent so far by the unit that is worst off.
    """

    key: str
    status: Literal["applied", "queued", "refused"]
    code: str
    number: int
    version: int
    releases: int
    epsilon: float


class Sender:
    """Sends check-ins and settles them.

    Args:
        calls: To the server.
        member: Who this device is.
        ledger: Where the bytes are.
        memory: Which state follows.
        live: The task.
    """

    def __init__(self, calls: Calls, member: Member, ledger: Ledger, memory: Memory, live: LiveTask) -> None:
        """Send nothing yet."""
        self._calls, self._member, self._ledger, self._memory, self._live = calls, member, ledger, memory, live

    def unsettled(self) -> list[Unsettled]:
        """List what must be sent again, oldest first."""
        return [own for own in self._ledger.unsettled() if own.task == self._member.account]

    def send(self, own: Unsettled) -> Outcome:
        """Send one check-in until it is settled.

        Raises:
            SheetChanged: The receipt is for another sheet.
            TermsViolated: One of the two sides was set back.
            TaskClosed: The task has ended; the check-in is spent.
            BudgetExhausted: The server takes no more of this device; the check-in is spent.
            MalformedMessage: The server cannot read it, and the check-in is spent; or its receipt cannot be true, and
                the check-in is not settled.
        """
        return self.settle(own, self._calls.check_in(own.key, own.body))

    def settle(self, own: Unsettled, answer: Answer) -> Outcome:
        """Settle a check-in by the server's answer; raises as `send` does."""
        if answer.status == 200:
            return self._used(own, answer)
        self._memory.refused(own.key)
        self._ledger.settle(own.key)
        if answer.status != 409 or answer.code not in GO_ON:
            raise answer.error()
        told = answer.json().get("error", {}).get("version")
        return self._outcome(own, "refused", code=answer.code, version=told if type(told) is int else -1)

    def _used(self, own: Unsettled, answer: Answer) -> Outcome:
        receipt = receipt_of(answer, self._member.task, own.key)
        if receipt.sheet != self._member.sheet:
            raise SheetChanged(receipt.sheet)
        require_plausible(self._live, receipt.version, self._memory.started(own.key))
        require_whole(self._ledger, self._member, receipt.number)
        if receipt.number <= self._memory.number and answer.json().get("again") is not True:
            raise TermsViolated(
                f"the server counts this as check-in {receipt.number}, but has counted {self._memory.number} before: "
                f"it was set back\n  {RESYNC}"
            )
        self._memory.used(own.key, receipt.number, receipt.version if receipt.status == "applied" else -1)
        self._ledger.settle(own.key)
        return self._outcome(own, receipt.status, number=receipt.number, version=receipt.version)

    def _outcome(
        self,
        own: Unsettled,
        status: Literal["applied", "queued", "refused"],
        *,
        code: str = "",
        number: int = 0,
        version: int,
    ) -> Outcome:
        account = self._member.account
        return Outcome(
            key=own.key,
            status=status,
            code=code,
            number=number,
            version=version,
            releases=self._ledger.chain.tasks[account].releases,
            epsilon=self._ledger.spent(account).epsilon,
        )
