"""What bodies of the control plane hold, both ways: requests are checked by it, and the description tells it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

State = Literal["draft", "open", "paused", "stopped"]
Name = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", max_length=63)]
Base64 = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+={0,2}$", max_length=128)]

Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class NewTaskBody(_Body):
    """A task to be made."""

    file: str = Field(max_length=1 << 20, description="the task file, TOML")
    changes: list[str] = Field([], max_length=1000, description='changes to the file, such as "algorithm.batch=10"')
    arrays: list[dict[str, Any]] | None = Field(None, description="what transforms learnt from public rows")
    public: dict[str, Any] | None = Field(
        None, description="labelled public rows that the server keeps: arrays rows and labels, after the transforms"
    )
    draft: bool = Field(False, description="whether it is not opened yet")


class StateBody(_Body):
    """A state to move to."""

    state: Literal["open", "paused", "stopped"] = Field(description="stopped is for good")


class LeakBody(_Body):
    """What a leak meter has read of the sums that members of a group are sent (`crowdml audit`)."""

    right: float = Field(ge=0, le=1, description="share of labels that were right")
    chance: float = Field(ge=0, le=1, description="share that is right for whoever always says the most frequent")
    own_rows: int = Field(ge=1, le=10**9, description="rows that the reader has of its own")


class InvitesBody(_Body):
    """Invites to be made."""

    count: int = Field(1, ge=1, le=10_000, description="how many devices")


class EnrolBody(_Body):
    """A device that wants to join."""

    invite: str = Field(min_length=8, max_length=128, description="the code of the invite")
    key: Base64 = Field(description="the device's Ed25519 key, base64url")
    task_hash: Hash = Field(description="hash of the signed task that its owner accepted")
    signature: Base64 = Field(description="over purpose, task, invite and hash")


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ShownAverage(_Answer):
    """How check-ins were weighed, where that is learnt or follows from them."""

    used: int = Field(description="versions whose weights were used; for the others all counted as usual")
    weights: list[float] = Field(description="weights in the last version, in the order of its check-ins")
    largest: float = Field(description="the largest of them")


class WindowError(_Answer):
    """The error over the recent check-ins, from private counts."""

    estimate: float = Field(description="errors over rows counted, with the noise of the counts: may be below 0")
    low: float = Field(description="lower end of its 95 % band: noise of the counts, and sampling")
    high: float = Field(description="upper end")
    check_ins: int = Field(description="check-ins in the window: the last fifth of all, and at least 20")
    rows: int = Field(description="rows counted in it")
    from_version: int = Field(description="version at its beginning")
    to_version: int = Field(description="version at its end")


class Summary(_Answer):
    """How a task stands."""

    task: str = Field(description="its name")
    objective: str = Field(description="what the crowd learns, in words")
    state: State
    reason: str | None = Field(description="why it stopped")
    version: int = Field(description="commits so far")
    check_ins: int = Field(description="check-ins counted so far")
    devices: int = Field(description="devices that may speak")
    estimated_error: float | None = Field(
        description="error of all check-ins since the beginning, from private counts, where there are any"
    )
    recent_error: WindowError | None = Field(description="error of the recent check-ins, with its noise band")
    rows: int = Field(description="rows that devices said they learnt from")
    averaging: ShownAverage | None = Field(None, description="where weights are learnt or follow from check-ins")
    validation_error: float | None = Field(
        None, description="error of a recent version on the operator's public rows, where there are any"
    )


class Tasks(_Answer):
    """All tasks."""

    tasks: list[Summary]


class Envelope(_Answer):
    """A task as the operator signed it."""

    text: str = Field(description="the text that was signed")
    signature: str = Field(description="Ed25519, base64url")
    key: str = Field(description="the operator's public key, base64url")


class Described(Summary):
    """Everything public about a task."""

    incarnation: int = Field(description="1 at first; one more after every restore of a backup")
    task_hash: str = Field(description="SHA-256 of the text of the signed task, hexadecimal")
    odds: str = Field(description="what owners are promised, in odds: how often the best guess is right")
    promise: str = Field(description="the same in ε")
    rests_on: str = Field(description="what has to be so for the promise to hold")
    signed_task: Envelope


class TargetShare(_Answer):
    """How large a share of all rows has one label, or lies in one bin of a number, from private counts."""

    name: str = Field(description="the label, or the bin such as `10 to 12`")
    share: float = Field(description="with the noise of the counts: may be below 0")
    low: float = Field(description="lower end of its 95 % band: noise of the counts, and sampling")
    high: float = Field(description="upper end")


class ParticipationDay(_Answer):
    """A day on which devices took part."""

    day: str = Field(description="the day, UTC, such as 2026-11-17")
    check_ins: int = Field(description="check-ins that have a receipt")
    devices: int = Field(description="different devices that they came from")


class StalenessBin(_Answer):
    """Check-ins that started from so many versions before the one they met."""

    model_config = ConfigDict(populate_by_name=True)
    least: int = Field(alias="from", description="least staleness")
    most: int | None = Field(alias="to", description="largest; none for the last")
    check_ins: int


class MeasuredError(_Answer):
    """An error on the operator's public rows."""

    version: int = Field(description="version whose model was measured")
    error: float = Field(description="from 0 to 1")
    time: float = Field(description="seconds since 1970")


class ValidationCurve(_Answer):
    """Errors on the operator's public rows."""

    rows: int = Field(description="how many rows")
    learnt_from: bool = Field(description="whether the server learns from these rows as well, which flatters the error")
    errors: list[MeasuredError]


class Statistics(_Answer):
    """What may be shown of a task: it follows from what was released and charged already, and from receipts."""

    task: str
    version: int = Field(description="version that this is about")
    check_ins: int
    devices: int = Field(description="devices that may speak")
    rows: int = Field(description="rows that devices said they looked at; 0 where they do not say")
    recent_error: WindowError | None = Field(description="error of the recent check-ins, with its noise band")
    targets: list[TargetShare] = Field(description="share of each label or bin; empty where devices count none")
    participation: list[ParticipationDay] = Field(description="the last 60 days on which devices took part")
    staleness: list[StalenessBin] = Field(description="check-ins by staleness")
    validation: ValidationCurve | None = Field(description="where the operator gave public rows")


class Invites(_Answer):
    """Links, each good for one device."""

    invites: list[str]


class Invite(_Answer):
    """An invite, as far as strangers are told."""

    used: bool = Field(description="whether a device has joined by it: it lets in no other")


class Listed(_Answer):
    """A device in the operator's list."""

    device: str = Field(description="name given by the server")
    slot: int
    check_ins: int
    refused: int = Field(description="check-ins since the server started that no honest device sends")


class Devices(_Answer):
    """Enrolled devices."""

    devices: list[Listed]


class Enrolled(_Answer):
    """A device that has joined."""

    device: str
    token: str = Field(description="shown this once")
    slot: int
    task_hash: str


class Me(_Answer):
    """What the server keeps of a device."""

    device: str
    task: str
    slot: int
    check_ins: int = Field(description="check-ins that have a receipt")
    refused: int = Field(description="releases that were refused for good: read and not used, so they are spent too")
    task_hash: str
    state: State


class KeptReceipt(_Answer):
    """Proof that a check-in is stored."""

    key: str
    number: int
    status: str
    version: int
    body: str = Field(description="SHA-256 of its bytes, hexadecimal")


class Receipts(_Answer):
    """A page of receipts."""

    receipts: list[KeptReceipt]
    next: int | None = Field(description="`after` of the next page, if there is one")


class CurvePoint(_Answer):
    """A point of the learning curve."""

    version: int
    check_ins: int
    rows: int
    estimated_error: float | None = Field(description="of all check-ins since the beginning")
    recent_error: WindowError | None = Field(description="of the check-ins before this point, with its noise band")
    time: float = Field(description="seconds since 1970")


class Curve(_Answer):
    """The learning curve so far."""

    curve: list[CurvePoint]


class GroupMember(_Answer):
    """A member of a group, by a name that says nothing of its device."""

    member: str
    there: bool = Field(description="whether it is connected")
    role: str = Field(description="dominator, follower and number of its piece, or dummy")
    observers: int = Field(description="members that were sent sums of its rows since the server started")


class GroupEvent(_Answer):
    """Something that happened to a group."""

    time: float = Field(description="seconds since 1970")
    what: str
    turn: int
    batch: int = Field(description="batches of the turn before it")
    members: list[str]
    why: str


class GroupFigures(_Answer):
    """How a group of devices stands that hold pieces of one net."""

    group: int
    stage: str = Field(description="gathering, preparing, running, sharing, waiting or done")
    passed: int = Field(alias="pass", description="passes whose uploads are stored")
    passes: int = Field(description="passes in all")
    turn: int
    batch: int = Field(description="the batch of this turn that began last")
    attempt: int
    members: list[GroupMember]
    batches: int = Field(description="since the server started, replays as well")
    batches_per_s: float | None = Field(description="over the last minute")
    floor_batches_per_s: float | None = Field(description="what the latency of the members allows at most")
    frames: int = Field(description="that passed between members since the server started")
    bytes: int = Field(description="of these frames, headers and seals as well")
    bytes_per_row: float | None = Field(description="through the relay, without hand-overs")
    planned_bytes_per_row: float = Field(description="as worked out from the task, without headers and seals")
    lost: int = Field(description="members lost since the server started")
    turns_lost: int
    replays: int = Field(description="attempts that went back to a cut")
    passes_again: int = Field(description="passes that began again with the shared weights")
    exact_since: float = Field(description="since when every batch counts as if nothing had happened")
    events: list[GroupEvent] = Field(description="the last hundred")


class Leak(_Answer):
    """What a leak meter has read, and when that was noted."""

    right: float = Field(description="share of labels that were right")
    chance: float = Field(description="share that is right for whoever always says the most frequent")
    own_rows: int = Field(description="rows that the reader has of its own")
    time: float = Field(description="seconds since 1970")


class Groups(_Answer):
    """All groups of a task that have begun since the server started."""

    waiting: int = Field(description="devices that wait for a group")
    size: int = Field(description="members of a group")
    groups: list[GroupFigures]
    leak: Leak | None = Field(description="what the operator has measured; null where nobody has")


class Health(_Answer):
    """Whether the server works."""

    status: Literal["ok", "failed"]


class NewToken(_Answer):
    """A token of the operator's."""

    token: str = Field(description="shown this once")


class LoggedEvent(_Answer):
    """Something that somebody did."""

    id: int = Field(description="later ones have larger numbers")
    time: float = Field(description="seconds since 1970; of counted ones, when the first happened")
    actor: str = Field(description="operator (by token), portal (the operator, signed in), device, server, or stranger")
    action: str
    task: str | None = Field(description="the task it was done to; null: to the server")
    slot: int | None = Field(description="slot of the device it is about; null also after that has withdrawn")
    count: int = Field(description="how often, or how many")
    detail: str


class EventLog(_Answer):
    """A page of the event log, latest first."""

    events: list[LoggedEvent]
    next: int | None = Field(description="`before` of the next page, if there is one")
