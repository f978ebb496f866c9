"""What members and server say to each other in clear: a table of messages, read strictly.

| message | from → to | says |
|---|---|---|
| hello | member → server | its card, and how many deposits follow that it shows again |
| welcome | server → member | its group and its number there |
| prepare | server → all | turn, attempt, cards, assignment, cut: go back to the cut, and get ready |
| ready | owners → server | ready; a dominator says how many batches it has |
| go | server → all | every owner is ready: begin |
| cut | server → all | the cut holds: older snapshots but one may go |
| share | server → owners | a pass is over: upload what matters most |
| complain | member → server | a frame that cannot be; about whom |
| ask, stalled | server → owners → server | whom do you wait for? |
| keep | server → members | so many deposits follow: the group's model |
| stop | server → member | it is over, and why |
"""

from __future__ import annotations

import json
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from crowdml.core.errors import MalformedMessage
from crowdml.slicing.live.member_cards import Card

LARGEST_CONTROL = 1 << 20
"""Bytes of a control message at most; those of members are far shorter."""
LARGEST_OF_MEMBER = 4 << 10
_Hex = Annotated[str, Field(pattern=r"^[0-9a-f]*$", max_length=128)]
_Count = Annotated[int, Field(ge=0, lt=1 << 32)]
_Member = Annotated[int, Field(ge=0, lt=1 << 16)]


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class CardText(_Message):
    """A card, in hexadecimal digits."""

    fresh: _Hex
    identity: _Hex = ""
    signature: _Hex = ""

    @staticmethod
    def of(card: Card) -> CardText:
        """Write a card."""
        return CardText(fresh=card.fresh.hex(), identity=card.identity.hex(), signature=card.signature.hex())

    def card(self) -> Card:
        """Read a card."""
        try:
            return Card(
                fresh=bytes.fromhex(self.fresh),
                identity=bytes.fromhex(self.identity),
                signature=bytes.fromhex(self.signature),
            )
        except ValueError:
            raise MalformedMessage("a card with half a byte") from None


class Cut(_Message):
    """A consistent cut: all pieces after one batch.

    Attributes:
        turn: Turn of the group.
        attempt: Attempt whose deposits it is made of.
        batch: Batches of the turn that are in it.
        last: Whether the turn ends with it.
    """

    turn: _Count
    attempt: _Count
    batch: _Count
    last: bool

    @property
    def place(self) -> tuple[int, int]:
        """Where it stands in the course."""
        return self.turn, self.batch


class Hello(_Message):
    """A member introduces itself."""

    kind: Literal["hello"] = "hello"
    card: CardText
    deposits: Annotated[int, Field(ge=0, le=8)] = 0


class Welcome(_Message):
    """A member learns its group and its number there."""

    kind: Literal["welcome"] = "welcome"
    group: _Count
    number: _Member


class Prepare(_Message):
    """Everybody goes back to the cut; the attempt's number fences all that is under way."""

    kind: Literal["prepare"] = "prepare"
    group: _Count
    turn: _Count
    attempt: _Count
    passes: _Count
    cards: dict[str, CardText]
    assignment: tuple[_Member, ...]
    cut: Cut | None
    download: bool

    def context(self) -> bytes:
        """Write everything that members must agree on before they can talk."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True).encode()


class Ready(_Message):
    """An owner is ready; a dominator says how many batches its turn has."""

    kind: Literal["ready"] = "ready"
    turn: _Count
    attempt: _Count
    batches: _Count = 0


class Go(_Message):
    """Every owner is ready; `at_once` asks for a deposit before the first batch."""

    kind: Literal["go"] = "go"
    turn: _Count
    attempt: _Count
    batches: _Count
    every: Annotated[int, Field(ge=1, lt=1 << 32)]
    at_once: bool = False


class CutHolds(_Message):
    """All deposits of a cut have come."""

    kind: Literal["cut"] = "cut"
    cut: Cut


class Share(_Message):
    """A pass is over."""

    kind: Literal["share"] = "share"
    turn: _Count
    attempt: _Count


class Complain(_Message):
    """A frame that cannot be: its sender did it, or the relay."""

    kind: Literal["complain"] = "complain"
    turn: _Count
    attempt: _Count
    about: _Member
    why: Annotated[str, Field(max_length=300)]


class Ask(_Message):
    """Whom do you wait for?"""

    kind: Literal["ask"] = "ask"
    turn: _Count
    attempt: _Count


class Stalled(_Message):
    """Whom a member waits for."""

    kind: Literal["stalled"] = "stalled"
    turn: _Count
    attempt: _Count
    waits_for: Annotated[tuple[_Member, ...], Field(max_length=10_001)]


class Keep(_Message):
    """So many deposits follow: together they are the group's model."""

    kind: Literal["keep"] = "keep"
    cut: Cut
    deposits: _Count


class Stop(_Message):
    """It is over for this member."""

    kind: Literal["stop"] = "stop"
    reason: Annotated[str, Field(max_length=300)]
    again: bool = False


OfMember = Hello | Ready | Complain | Stalled
OfServer = Welcome | Prepare | Go | CutHolds | Share | Ask | Keep | Stop
Control = OfMember | OfServer
_Some = TypeVar("_Some")
_OF_MEMBER: TypeAdapter[OfMember] = TypeAdapter(Annotated[OfMember, Field(discriminator="kind")])
_OF_SERVER: TypeAdapter[OfServer] = TypeAdapter(Annotated[OfServer, Field(discriminator="kind")])


def write_control(message: Control) -> str:
    """Write a message as JSON."""
    return message.model_dump_json()


def read_of_member(text: str) -> OfMember:
    """Read what a member says."""
    return _read(_OF_MEMBER, text, LARGEST_OF_MEMBER)


def read_of_server(text: str) -> OfServer:
    """Read what a server says."""
    return _read(_OF_SERVER, text, LARGEST_CONTROL)


def _read(adapter: TypeAdapter[_Some], text: str, largest: int) -> _Some:
    if len(text) > largest:
        raise MalformedMessage(f"a control message of {len(text)} characters; {largest} are allowed")
    try:
        return adapter.validate_json(text)
    except (ValidationError, RecursionError) as error:
        why = error.errors()[0]["msg"] if isinstance(error, ValidationError) else "too deep"
        raise MalformedMessage(f"a control message that is none: {why}") from None
