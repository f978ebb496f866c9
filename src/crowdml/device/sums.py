"""A device in secure aggregation: the driver of its machine. It charges its ledger before the masked vector leaves.

    look which sum is going on ─► hello ─► order ─► shares ─► charge, masked ─► consent ─► reveal ─► receipt

Until the masked vector is sent nothing has left that depends on rows, and nothing is charged: a sum that is given up
before that costs nothing. One that is given up afterwards is spent, and the next has fresh noise and a charge of its
own; after as many of them as the terms name, the device waits for the next version.

Where a task has a barrier, hello means that the work is done. The device offers it to one sum after the other, as long
as the version it began with is not too old, and only then begins anew.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from crowdml.core import CrowdError, GridCoins, record
from crowdml.core.errors import MalformedMessage, NotAuthorised, StaleCheckIn, TermsViolated
from crowdml.device.answers import Answer
from crowdml.device.batches import Gathered
from crowdml.device.calls import Calls, CheckOut
from crowdml.device.home import Member
from crowdml.device.ledger_store import Ledger, Unsettled
from crowdml.device.memory import Memory
from crowdml.device.sending import Outcome, Sender
from crowdml.protocol.sums import Broadcast, Peers, SumAborted, SumDevice, WrongMail
from crowdml.protocol.sums.messages import (
    ORDER,
    Consents,
    Mail,
    Survivors,
    read_links,
    write_flags,
    write_items,
)
from crowdml.protocol.sums.order import LAYERS
from crowdml.protocol.sums.roster import Roster

OPENINGS = 8 * LAYERS
"""Parts in an order that a device opens at most for one version: each is a try at an order that suits a server."""
REFUSED = (400, 409, 413, 415, 422)
_BYTES = {"Content-Type": "application/octet-stream"}


@record
class Present:
    """The sum that is going on.

    Attributes:
        name: As the server calls it.
        version: Version that it is for.
        attempt: Number of the attempt.
        stage: How far it is.
    """

    name: str
    version: int
    attempt: int
    stage: str


class SumTaker:
    """Takes part in masked sums.

    Args:
        live: The task, as `LiveTask` with a masked form.
        member: Who this device is.
        calls: To the server.
        ledger: Where releases are charged.
        memory: What follows if a release is used.
        coins: Makes the coins of a release.
        make_key: Makes the idempotency key of a release.
        silent: For tests and trials: `silent(version, stage)` says whether this device falls silent there.
    """

    def __init__(
        self,
        live: Any,
        member: Member,
        calls: Calls,
        ledger: Ledger,
        memory: Memory,
        coins: Callable[[], GridCoins],
        make_key: Callable[[int], str],
        silent: Callable[[int, str], bool] = lambda version, stage: False,
    ) -> None:
        """Know nobody yet."""
        self._live, self._member, self._calls = live, member, calls
        self._ledger, self._memory, self._coins, self._make_key = ledger, memory, coins, make_key
        self._silent = silent
        self._peers = Peers(member.key, live.task.name)
        self._opened: tuple[int, int] = (-1, 0)
        self._waits = 0
        self._cheated: TermsViolated | None = None

    def contribute(
        self, checked_out: CheckOut, gathered: Gathered, state: Any, encode: Callable[[Any], bytes]
    ) -> Outcome | None:
        """Take part in the sum of a version; None where nothing was sent: check out again, and try again.

        Args:
            checked_out: The broadcast to work on.
            gathered: The rows.
            state: The algorithm's state of this device.
            encode: Writes the state that follows.
        """
        started, coins = checked_out.version, self._coins()
        if self._is_spent(started):
            return None
        algorithm = self._live.algorithm.at(started)
        release, following = algorithm.device_step(checked_out.content, state, gathered.batch, coins)
        tries, last = 0, ""
        while True:
            present = self._look()
            tries, last = (tries + 1 if present.name == last else 1), present.name
            if not self._may_join(present, started):
                return None
            if self._opened >= (present.version, OPENINGS):
                self._calls.connection.pause(None, tries, "too many orders were thrown away; waiting for a new version")
                return None
            if present.stage != "hello":
                self._calls.connection.pause(None, tries, "a sum is going on without this device")
                continue
            try:
                machine, mail = self._meet(present, checked_out)
                vector, noise = self._live.form(started).vector(release, algorithm.sanitise(release, coins))
                body = self._masked(present, machine, mail, vector, noise)
            except (StaleCheckIn, SumAborted) as error:
                # Perhaps the round has another version by now, or the server does not know whom it has invited.
                self._calls.connection.pause(None, tries, str(error))
                if algorithm.barrier:
                    continue
                return None
            key = self._make_key(started)
            self._memory.expect(key, started, encode(following))
            account, uses = self._member.account, self._live.uses(started)
            self._ledger.charge(
                account, key, body, samples=gathered.samples, version=started, uses=uses, numbering=gathered.numbering
            )
            own = Unsettled(key=key, task=account, body=body)
            outcome = self._settle(own, self._see_through(present, machine, own))
            if self._cheated is not None:
                raise self._cheated
            return outcome

    def _may_join(self, present: Present, started: int) -> bool:
        """Tell whether work that began with a version is of use to the present sum."""
        if self._live.algorithm.barrier is None:
            return present.version == started
        return present.version >= started and self._live.algorithm.accepts(present.version - started)

    def resend(self, own: Unsettled) -> Outcome:
        """Settle a masked vector that was charged before this device was stopped: used, or spent for nothing."""
        return self._settle(own, self._post("masked", "0-0", own.body, key=own.key))

    def _look(self) -> Present:
        answer = self._calls.connection.ask("GET", self._path()).require(200)
        return Present(
            name=answer.text("sum"),
            version=answer.number("version"),
            attempt=answer.number("attempt"),
            stage=answer.text("stage"),
        )

    def _is_spent(self, started: int) -> bool:
        """Tell whether a version has had all attempts that the terms allow; wait a little if so."""
        if self._memory.tries(started) < self._live.form(started).masking.attempts:
            self._waits = 0
            return False
        self._waits += 1
        self._calls.connection.pause(None, self._waits, f"all attempts at the sum of version {started} are spent")
        return True

    def _meet(self, present: Present, checked_out: CheckOut) -> tuple[SumDevice, Mail]:
        """Go through the stages before anything that depends on rows leaves."""
        started = checked_out.version
        machine = SumDevice(
            replace(self._live.form(started).terms, sheet=self._member.sheet),
            present.version,
            present.attempt,
            self._member.slot,
            self._member.key,
            self._peers,
            Broadcast.of(started, checked_out.body, self._member.sheet),
        )
        try:
            shown = self._send(present, "hello", machine.hello().to_bytes(), started=started).require(200)
            link: bytes | None = machine.meet(Roster.of(shown.body))
            for stage in ORDER:
                if link is None:
                    break
                self._count_opening(present.version)
                answer = self._send(present, stage, link).require(200)
                link = machine.settle(read_links(answer.body, machine.members))
            sent = self._send(present, "shares", machine.share().to_bytes()).require(200)
        except NotAuthorised as error:
            raise SumAborted(str(error)) from None
        return machine, Mail.of(sent.body, machine.members, machine.near)

    def _count_opening(self, version: int) -> None:
        self._opened = version, 1 + (self._opened[1] if self._opened[0] == version else 0)

    def _masked(self, present: Present, machine: SumDevice, mail: Mail, vector: Any, noise: Any) -> bytes:
        """Mask a vector; neighbours that cheat are named to the server, and end this attempt for this device."""
        try:
            return machine.mask(mail, vector, noise)
        except WrongMail as error:
            self._post("blame", present.name, write_flags(np.array(error.accused)))
            raise

    def _see_through(self, present: Present, machine: SumDevice, own: Unsettled) -> Answer:
        """Hand the masked vector over and help to unmask the sum; return the receipt, or why there is none."""
        try:
            answer = self._send(present, "masked", own.body, key=own.key)
            if answer.status != 200 or _is_receipt(answer):
                return answer
            tags = machine.consent(Survivors.of(answer.body, machine.members, machine.near))
            told = self._send(present, "consent", tags).require(200)
            shares = machine.reveal(Consents.of(told.body, machine.members))
            return self._send(present, "reveal", write_items(shares)).require(200)
        except CrowdError as error:
            # The vector may be in the sum all the same: the server knows, once the sum is over.
            self._cheated = error if isinstance(error, TermsViolated) else None
            return self._ask_later(present, own, error)

    def _ask_later(self, present: Present, own: Unsettled, error: CrowdError) -> Answer:
        """Wait until the sum is over, then ask by the bytes that were sent whether they were used."""
        tries = 0
        while True:
            tries += 1
            over = self._look().name != present.name
            answer = self._post("masked", "0-0", own.body, key=own.key)
            if answer.status == 200 or over:
                return answer
            self._calls.connection.pause(None, tries, str(error))

    def _settle(self, own: Unsettled, answer: Answer) -> Outcome:
        sender = Sender(self._calls, self._member, self._ledger, self._memory, self._live)
        return sender.settle(own, answer)

    def _send(self, present: Present, stage: str, body: bytes, key: str = "", started: int | None = None) -> Answer:
        """Hand a message over and wait until its stage is closed."""
        if self._silent(present.version, stage):
            raise SumAborted(f"silent from {stage} on")
        answer = self._post(stage, present.name, body, key=key, started=started)
        while answer.status == 202:
            headers = {"Crowdml-Sum": present.name} | ({"Idempotency-Key": key} if key else {})
            answer = self._ask("GET", stage, headers, None)
        return answer

    def _post(self, stage: str, name: str, body: bytes, key: str = "", started: int | None = None) -> Answer:
        headers = _BYTES | {"Crowdml-Sum": name} | ({"Idempotency-Key": key} if key else {})
        headers |= {} if started is None else {"Crowdml-Started": str(started)}
        return self._ask("POST", stage, headers, body)

    def _ask(self, method: str, stage: str, headers: dict[str, str], body: bytes | None) -> Answer:
        connection = self._calls.connection
        answer = connection.ask(method, self._path(stage), headers=headers, content=body, limit=self._largest)
        return answer.require(200, 202, 204, *REFUSED)

    @property
    def _largest(self) -> int:
        """No answer is longer than a roster with all its broadcasts, or the mail of everybody."""
        terms = self._live.masked.terms
        return int((1 << 16) + terms.invited * 512 + terms.delays * 64)

    def _path(self, stage: str = "") -> str:
        return f"/v1/tasks/{self._member.task}/sums" + (f"/{stage}" if stage else "")


def _is_receipt(answer: Answer) -> bool:
    """Tell a receipt from a list of survivors: a sum may be over before its stage was asked for."""
    if answer.headers.get("content-type", "") != "application/json":
        return False
    try:
        return "status" in json.loads(answer.body)
    except ValueError:
        raise MalformedMessage("the server's receipt is not JSON") from None
