"""Sending what was charged, and what a device believes of the answers.

Always the stored bytes are sent, until a receipt or a refusal settles them. A receipt, a version or a signed task that
cannot be true is not believed, nor one that shows that something was set back: a version below one that was seen, a
number that a receipt has had (`restores` has the ways on from there).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from crowdml.core import record
from crowdml.core.errors import MalformedMessage, TermsViolated
from crowdml.core.ops import Tree
from crowdml.device.calls import Calls
from crowdml.device.device_home import Member
from crowdml.device.ledger_store import Ledger, Unsettled
from crowdml.device.rows.batches import Gathered
from crowdml.device.server_connection import GO_ON, Answer
from crowdml.device.task_memory import Memory
from crowdml.privacy.ledger.spending import SpendingState
from crowdml.task.live_task import LiveTask
from crowdml.wire import Layout
from crowdml.wire.messages import check_in_key

RESYNC = "once you know why: crowdml device resync"
"""What an owner can do about a server that shows less than before."""
MOST_VERSIONS = 10**12
"""No task has more versions: at one every millisecond they take thirty years."""
Status = Literal["applied", "queued", "refused"]


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
    status: Status
    code: str
    number: int
    version: int
    releases: int
    epsilon: float


class Sender:
    """What a device has with its server: charges check-ins, sends them and settles them.

    Args:
        calls: To the server.
        member: Who this device is.
        ledger: Where the bytes are.
        memory: Which state follows.
        live: The task.
        make_key: Makes the idempotency key of a check-in that started from a version.
    """

    def __init__(
        self,
        calls: Calls,
        member: Member,
        ledger: Ledger,
        memory: Memory,
        live: LiveTask,
        make_key: Callable[[int], str] = check_in_key,
    ) -> None:
        self.calls, self.member, self.ledger, self.memory, self.live = calls, member, ledger, memory, live
        self._make_key, self._begin = make_key, live.algorithm.last.begin
        self._states = Layout({"device": self._begin()})

    @property
    def spending(self) -> SpendingState:
        """What the ledger has of this task."""
        return self.ledger.chain.tasks[self.member.account]

    def state(self) -> Tree:
        """Return the algorithm's state of this device."""
        stored = self.memory.state()
        return self._begin() if stored is None else self._states.decode(stored)["device"]

    def charge(self, version: int, body: bytes, state: Tree, gathered: Gathered, uses: int = 1) -> Unsettled:
        """Store which state follows, then the charge with the final bytes; only what this returns may be sent.

        Args:
            version: Version that the release started from.
            body: Its final bytes.
            state: The state that follows if it is used.
            gathered: What it was made of.
            uses: How many releases it counts for.
        """
        key, account = self._make_key(version), self.member.account
        self.memory.expect(key, version, self._states.encode({"device": state}))
        samples, numbering = gathered.samples, gathered.numbering
        if self.spending.terms.unit == "sample" and self.live.algorithm.remembers_rows:
            # Whatever was used before is behind this release too, by what the device remembers of it.
            samples = np.union1d(samples, np.flatnonzero(self.spending.uses.counts()))
        self.ledger.charge(account, key, body, samples=samples, version=version, uses=uses, numbering=numbering)
        return Unsettled(key=key, task=account, body=body)

    def unsettled(self) -> list[Unsettled]:
        """List what must be sent again, oldest first."""
        return [unsettled for unsettled in self.ledger.unsettled() if unsettled.task == self.member.account]

    def send(self, unsettled: Unsettled) -> Outcome:
        """Send one check-in until it is settled.

        Raises:
            TaskChanged: The receipt is for another signed task.
            TermsViolated: One of the two sides was set back.
            TaskClosed: The task has ended; the check-in is spent.
            BudgetExhausted: The server takes no more of this device; the check-in is spent.
            MalformedMessage: The server cannot read it, and the check-in is spent; or its receipt cannot be true, and
                the check-in is not settled.
        """
        return self.settle(unsettled, self.calls.check_in(unsettled.key, unsettled.body))

    def settle(self, unsettled: Unsettled, answer: Answer) -> Outcome:
        """Settle a check-in by the server's answer; raises as `send` does."""
        if answer.status == 200:
            return self._used(unsettled.key, answer)
        self.memory.refused(unsettled.key)
        self.ledger.settle(unsettled.key)
        if answer.code not in GO_ON:
            raise answer.error()
        told = answer.json().get("error", {}).get("version")
        return self._outcome(unsettled.key, "refused", told if type(told) is int else -1, code=answer.code)

    def _used(self, key: str, answer: Answer) -> Outcome:
        status, number, version = answer.text("status"), answer.number("number"), answer.number("version")
        named, task_hash = (answer.text("task"), answer.text("key")), answer.text("task_hash")
        if named != (self.member.task, key) or status not in ("applied", "queued"):
            raise MalformedMessage("the server's receipt is not for the check-in that was sent")
        if task_hash != self.member.task_hash:
            raise TaskChanged(task_hash)
        require_plausible(self.live, version, self.memory.started(key))
        require_whole(self.spending, number)
        if number <= self.memory.number and answer.json().get("again") is not True:
            raise TermsViolated(
                f"the server counts this as check-in {number}, but has counted {self.memory.number} before: it was set "
                f"back\n  {RESYNC}"
            )
        self.memory.used(key, number, version if status == "applied" else -1)
        self.ledger.settle(key)
        return self._outcome(key, "applied" if status == "applied" else "queued", version, number=number)

    def _outcome(self, key: str, status: Status, version: int, *, code: str = "", number: int = 0) -> Outcome:
        releases, epsilon = self.spending.releases, self.ledger.spent(self.member.account).epsilon
        return Outcome(
            key=key, status=status, code=code, number=number, version=version, releases=releases, epsilon=epsilon
        )


class TaskChanged(TermsViolated):
    """A receipt names another signed task than the one accepted: another task, or the same one after a restore.

    Attributes:
        task_hash: Hash of that signed task.
    """

    def __init__(self, task_hash: str) -> None:
        """Keep the hash: whoever catches this can ask for it."""
        super().__init__("the receipt names another signed task than the one the owner accepted")
        self.task_hash = task_hash


def require_plausible(live: LiveTask, version: int, started: int = -1) -> None:
    """Refuse a version that the task cannot have, before it is remembered: a device never believes a lower one again.

    Args:
        live: The task.
        version: The version that the server names.
        started: Where a receipt names it: the version from which its check-in had started; -1 where nobody knows.
    """
    most = live.task.stop.max_versions or MOST_VERSIONS
    if version > most:
        raise MalformedMessage(f"the server names version {version}, but this task has at most {most}")
    # The version before it was no further from the start than the task's rule about old check-ins allows.
    passed = max(version - 1 - started, 0)
    if started >= 0 and (version < started or not live.algorithm.schedule.accepts(passed)):
        raise MalformedMessage(
            f"the receipt names version {version} for a check-in that started from {started}, which the task's rules "
            "exclude"
        )


def require_whole(spending: SpendingState, received: int) -> None:
    """Refuse to go on with a ledger that knows of fewer releases than the server has received, used or refused."""
    if received > spending.releases:
        raise TermsViolated(
            f"the server has {received} check-ins of this device, its ledger only {spending.releases} charges: the "
            "ledger was set back, and what was spent is no longer known. Restore the newer ledger, or withdraw"
        )
