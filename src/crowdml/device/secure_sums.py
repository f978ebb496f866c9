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

from crowdml.core import CrowdError, DeviceState, GridCoins, record
from crowdml.core.errors import MalformedMessage, NotAuthorised, StaleCheckIn, TermsViolated
from crowdml.device.calls import CheckOut
from crowdml.device.ledger_store import Unsettled
from crowdml.device.rows.batches import Gathered
from crowdml.device.sending import Outcome, Sender
from crowdml.device.server_connection import Answer
from crowdml.secure_aggregation import BroadcastHash, Peers, SumAborted, SumDevice, WrongMail
from crowdml.secure_aggregation.commitments import LAYERS
from crowdml.secure_aggregation.roster import Roster
from crowdml.secure_aggregation.stages import BLAME, CONSENT, HELLO, MASKED, ORDER, REVEAL, SHARES
from crowdml.secure_aggregation.sum_messages import (
    Consents,
    Mail,
    Survivors,
    read_links,
    write_flags,
    write_items,
)

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
        sender: Charges releases and settles them; its task has a masked form.
        coins: Makes the coins of a release.
        silent: For tests and trials: `silent(version, stage)` says whether this device falls silent there.
    """

    def __init__(
        self,
        sender: Sender,
        coins: Callable[[], GridCoins],
        silent: Callable[[int, str], bool] = lambda version, stage: False,
    ) -> None:
        self._sender, self._coins, self._silent = sender, coins, silent
        self._live, self._member, self._connection = sender.live, sender.member, sender.calls.connection
        self._peers = Peers(self._member.key, self._live.task.name)
        self._opened: tuple[int, int] = (-1, 0)
        self._waits = 0
        self._cheated: TermsViolated | None = None

    def contribute(self, checked_out: CheckOut, gathered: Gathered) -> Outcome | None:
        """Take part in the sum of a version; None where nothing was sent: check out again, and try again.

        Args:
            checked_out: The broadcast to work on.
            gathered: The rows.
        """
        started, broadcast, coins = checked_out.version, checked_out.content, self._coins()
        if self._is_spent(started):
            return None
        phase, state = self._live.algorithm.at(started), self._sender.state()
        release, work = phase.device.step(broadcast, state.work, gathered.batch, coins)
        tries, last = 0, ""
        while True:
            present = self._look()
            tries, last = (tries + 1 if present.name == last else 1), present.name
            if not self._may_join(present, started):
                return None
            if self._opened >= (present.version, OPENINGS):
                self._connection.pause(None, tries, "too many orders were thrown away; waiting for a new version")
                return None
            if present.stage != HELLO:
                self._connection.pause(None, tries, "a sum is going on without this device")
                continue
            try:
                machine, mail = self._meet(present, checked_out)
                worked = DeviceState(work=work, noise=state.noise)
                check_in, following = phase.finish(broadcast, release, worked, coins)
                vector, noise = self._live.form(started).vector(release, check_in)
                body = self._masked(present, machine, mail, vector, noise)
            except (StaleCheckIn, SumAborted) as error:
                # Perhaps the round has another version by now, or the server does not know whom it has invited.
                self._connection.pause(None, tries, str(error))
                if self._live.algorithm.schedule.waits:
                    continue
                return None
            unsettled = self._sender.charge(started, body, following, gathered, phase.uses)
            outcome = self._sender.settle(unsettled, self._see_through(present, machine, unsettled))
            if self._cheated is not None:
                raise self._cheated
            return outcome

    def _may_join(self, present: Present, started: int) -> bool:
        """Tell whether work that began with a version is of use to the present sum."""
        if not self._live.algorithm.schedule.waits:
            return present.version == started
        return present.version >= started and self._live.algorithm.schedule.accepts(present.version - started)

    def resend(self, unsettled: Unsettled) -> Outcome:
        """Settle a masked vector that was charged before this device was stopped: used, or spent for nothing."""
        return self._sender.settle(unsettled, self._post(MASKED, "0-0", unsettled.body, key=unsettled.key))

    def _look(self) -> Present:
        answer = self._connection.ask("GET", self._path()).require(200)
        return Present(
            name=answer.text("sum"),
            version=answer.number("version"),
            attempt=answer.number("attempt"),
            stage=answer.text("stage"),
        )

    def _is_spent(self, started: int) -> bool:
        """Tell whether a version has had all attempts that the terms allow; wait a little if so."""
        if self._sender.memory.tries(started) < self._live.form(started).masking.attempts:
            self._waits = 0
            return False
        self._waits += 1
        self._connection.pause(None, self._waits, f"all attempts at the sum of version {started} are spent")
        return True

    def _meet(self, present: Present, checked_out: CheckOut) -> tuple[SumDevice, Mail]:
        """Go through the stages before anything that depends on rows leaves."""
        started = checked_out.version
        machine = SumDevice(
            replace(self._live.form(started).terms, task_hash=self._member.task_hash),
            present.version,
            present.attempt,
            self._member.slot,
            self._member.key,
            self._peers,
            BroadcastHash.of(started, checked_out.body, self._member.task_hash),
        )
        try:
            shown = self._send(present, HELLO, machine.hello().to_bytes(), started=started).require(200)
            link: bytes | None = machine.meet(Roster.of(shown.body))
            for stage in ORDER:
                if link is None:
                    break
                self._count_opening(present.version)
                answer = self._send(present, stage, link).require(200)
                link = machine.settle(read_links(answer.body, machine.members))
            sent = self._send(present, SHARES, machine.share().to_bytes()).require(200)
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
            self._post(BLAME, present.name, write_flags(np.array(error.accused)))
            raise

    def _see_through(self, present: Present, machine: SumDevice, unsettled: Unsettled) -> Answer:
        """Hand the masked vector over and help to unmask the sum; return the receipt, or why there is none."""
        try:
            answer = self._send(present, MASKED, unsettled.body, key=unsettled.key)
            if answer.status != 200 or _is_receipt(answer):
                return answer
            tags = machine.consent(Survivors.of(answer.body, machine.members, machine.near))
            told = self._send(present, CONSENT, tags).require(200)
            shares = machine.reveal(Consents.of(told.body, machine.members))
            return self._send(present, REVEAL, write_items(shares)).require(200)
        except CrowdError as error:
            # The vector may be in the sum all the same: the server knows, once the sum is over.
            self._cheated = error if isinstance(error, TermsViolated) else None
            return self._ask_later(present, unsettled, error)

    def _ask_later(self, present: Present, unsettled: Unsettled, error: CrowdError) -> Answer:
        """Wait until the sum is over, then ask by the bytes that were sent whether they were used."""
        tries = 0
        while True:
            tries += 1
            over = self._look().name != present.name
            answer = self._post(MASKED, "0-0", unsettled.body, key=unsettled.key)
            if answer.status == 200 or over:
                return answer
            self._connection.pause(None, tries, str(error))

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
        terms = self._live.forms[-1].terms
        # No answer is longer than a roster with all its broadcasts, or the mail of everybody.
        limit = (1 << 16) + terms.invited * 512 + terms.delays * 64
        answer = self._connection.ask(method, self._path(stage), headers=headers, content=body, limit=limit)
        return answer.require(200, 202, 204, *REFUSED)

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
