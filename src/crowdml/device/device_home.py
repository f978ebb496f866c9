"""A device's home: the folder in which it keeps who it is, what it accepted, and what it has spent.

    ledger.sqlite              what was promised and spent, over all tasks
    owner.json                 the owner's limit over all tasks
    tasks/NAME/member.json     server, token, key of this device, the operator's key, hash of the signed task
    tasks/NAME/HASH.json       the task as the operator signed it
    tasks/NAME/memory.sqlite   what the algorithm remembers, numbers of samples

Only the owner can read it. A file is written anew, flushed, and then takes its name: after a crash it is the old one or
the new one, whole.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import ROUND_CEILING, Context
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field, ValidationError

from crowdml.core import NUMPY, BadInput, Settings
from crowdml.core.errors import MalformedMessage
from crowdml.core.files import require_private, write_whole
from crowdml.core.keys import SigningKey
from crowdml.core.portable import PLAIN_FLAGS, lock_alone, sync_folder
from crowdml.device.ledger_store import Ledger
from crowdml.privacy.accounting import sum_up
from crowdml.privacy.ledger.entries import AcceptedTerms
from crowdml.privacy.ledger.ledger_chain import Cap
from crowdml.privacy.ledger.spending import counted
from crowdml.privacy.promise import Promise
from crowdml.task.live_task import LiveTask, open_task
from crowdml.task.task_errors import BadKey
from crowdml.wire import SignedTask, TaskDocument

Kind = TypeVar("Kind", bound=Settings)


class Member(Settings):
    """A device as member of one task's crowd."""

    account: str = Field(description="name of the task in the ledger")
    server: str = Field(description="address of the server")
    task: str = Field(description="name of the task there")
    operator: str = Field(description="fingerprint of the operator's key")
    task_hash: str = Field(description="hash of the signed task that the owner accepted")
    incarnation: int = Field(description="of that signed task")
    epsilon: float | None = Field(None, description="the owner's own ε, where it is not the task's")
    secret: str = Field(description="the device's signing key, base64")
    state: Literal["joining", "joined", "withdrawn"] = Field(description="how far it is")
    code: str = Field("", description="the invite, until the server has answered")
    device: str = Field("", description="what the server calls this device")
    token: str = Field("", description="the token")
    slot: int = Field(0, description="the server's place for this device")
    ca: Path | None = Field(None, strict=False, description="certificates to trust instead of the usual ones")
    plain_http: bool = Field(False, description="whether http is used beyond this machine")
    accept_restores: bool = Field(
        False, description="whether the owner accepted in advance what the operator's restore notice says"
    )

    @property
    def key(self) -> SigningKey:
        """The device's signing key."""
        return SigningKey(base64.b64decode(self.secret))


class Owner(Settings):
    """What the owner decided for all tasks."""

    epsilon: float | None = Field(None, gt=0, description="ε of all tasks together at most")
    delta: float | None = Field(None, gt=0, description="δ of all tasks together at most")

    @property
    def cap(self) -> Cap:
        """As the ledger takes it."""
        return Cap(epsilon=self.epsilon or math.inf, delta=1.0 if self.delta is None else self.delta)


def default_home(name: str = "default") -> Path:
    """Return where the device of that name lives, unless told otherwise."""
    if not name or Path(name).name != name or name.startswith("."):
        raise BadInput(f"{name!r} is not a name for a device", hint="letters, digits and hyphens")
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "crowdml" / "devices" / name


SUGGESTED_EPSILON, SUGGESTED_DELTA = 10.0, 1e-4
"""A cap for owners who have none: e^10 is a factor of 22,000, beyond which a promise means little to anybody."""


def suggested_cap(terms: AcceptedTerms, counted_before: Promise = Promise(epsilon=0.0)) -> Cap | None:  # noqa: B008  frozen
    """Suggest a cap to an owner who has none, such that these terms fit beside what counts already.

    None where a task promises nothing. Figures are rounded up to three digits, so that what is printed is enough.

    >>> from crowdml.privacy import Event, Filter
    >>> limit = Filter(kind="rdp", epsilon=6.0, delta=1e-6)
    >>> suggested_cap(AcceptedTerms(unit="device", filter=limit, uses=1, event=Event(rho=0.1)))
    Cap(epsilon=10.0, delta=0.0001)
    """
    needed, before = counted(terms.filter), counted_before
    epsilon, delta = sum_up(before.epsilon, needed.epsilon), sum_up(before.delta, needed.delta)
    if math.isinf(epsilon):
        return None
    up = Context(prec=3, rounding=ROUND_CEILING)
    epsilon, delta = (float(up.create_decimal(repr(value))) for value in (epsilon, delta))
    return Cap(epsilon=max(SUGGESTED_EPSILON, epsilon), delta=max(SUGGESTED_DELTA, delta))


def build(document: TaskDocument, epsilon: float | None = None, model: Any = None) -> LiveTask:
    """Build a task as it was signed, with the owner's own ε where one was chosen.

    What is sent has the same shape whatever ε is, and nothing in it says which was chosen: only the noise differs.

    Args:
        document: What was signed.
        epsilon: The owner's own ε; None: the task's.
        model: The model that the device brings, where the task learns one of its operator's own.
    """
    try:
        live = open_task(document, model=model)
    except BadKey as error:
        raise MalformedMessage(f"what was signed defines no task: {error.where}: {error.what}") from None
    if epsilon is None:
        return live
    try:
        plan = live.plan.for_owner(epsilon)
    except BadInput as error:
        raise BadInput(error.what, where="--epsilon", hint=error.hint) from None
    terms = live.task.privacy
    assert terms.epsilon is not None  # noqa: S101  where owners can choose, there is an ε
    chosen = {"epsilon": epsilon, "statistics_epsilon": terms.statistics_epsilon * epsilon / terms.epsilon}
    return dataclasses.replace(
        live,
        # For the owner to read; the plan and the algorithm are what runs.
        task=live.task.model_copy(update={"privacy": terms.model_copy(update=chosen)}),
        algorithm=live.task.build(NUMPY, owner_epsilon=epsilon),
        plan=plan,
    )


def terms_of(live: LiveTask) -> AcceptedTerms:
    """Return the terms that the ledger accepts for a task."""
    if live.plan.terms.promised:
        return AcceptedTerms.of(live.plan)
    if live.sliced is not None and live.sliced.cut is not None:
        return AcceptedTerms.of_nothing_once()
    return AcceptedTerms.of_nothing(live.task.stop.max_releases)


class Home:
    """A device's folder.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     home = Home(Path(folder) / "device", make=True)
    ...     oct(home.path.stat().st_mode & 0o777), home.members()
    ('0o700', [])
    """

    def __init__(self, path: Path | str, *, make: bool = False) -> None:
        """Open the folder; `make` makes it if it is not there."""
        self.path = Path(path).expanduser()
        if make:
            try:
                self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
                require_private(self.path, "--home")
                (self.path / "tasks").mkdir(mode=0o700, exist_ok=True)
            except OSError as error:
                raise BadInput(f"{self.path} cannot be made: {error.strerror}", where="--home") from None
        if not (self.path / "tasks").is_dir():
            raise BadInput(f"there is no device in {self.path}", hint="join a task first: crowdml device join URL")
        require_private(self.path, "--home")

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep every other process away: a device is one."""
        with open(_private(self.path / "lock"), "rb") as handle:
            try:
                lock_alone(handle.fileno())
            except OSError:
                raise BadInput(f"another process is running the device in {self.path}", hint="wait for it") from None
            yield

    def ledger(self) -> Ledger:
        """Open the ledger, and verify it."""
        return Ledger(_private(self.path / "ledger.sqlite"), self.owner().cap)

    def owner(self) -> Owner:
        """Read what the owner decided for all tasks."""
        path = self.path / "owner.json"
        return _load(Owner, path) if path.exists() else Owner(epsilon=None, delta=None)

    def limit(self, epsilon: float | None, delta: float | None) -> None:
        """Keep the owner's limits over all tasks; None: as before."""
        before = self.owner()
        try:
            owner = Owner(
                epsilon=before.epsilon if epsilon is None else epsilon, delta=before.delta if delta is None else delta
            )
        except ValidationError as error:
            raise BadInput(f"this cap is not possible: {error.errors()[0]['msg'].lower()}", where="cap") from None
        if owner != before:
            _write(self.path / "owner.json", owner.model_dump_json(indent=2).encode())

    def members(self) -> list[Member]:
        """List the tasks of this device."""
        return [_load(Member, path) for path in sorted((self.path / "tasks").glob("*/member.json"))]

    def member(self, task: str | None = None) -> Member:
        """Find the task of that name, or the only one; one that was withdrawn from comes last."""
        found = [member for member in self.members() if task in (None, member.task, member.account)]
        found = [member for member in found if member.state != "withdrawn"] or found
        if len(found) == 1:
            return found[0]
        if not found:
            what = f"this device has not joined {task}" if task else "this device has not joined any task"
            raise BadInput(what, hint="crowdml device join URL")
        names = ", ".join(member.account for member in found)
        raise BadInput("this device has joined several tasks", where="--task", hint=f"say which: {names}")

    def store(self, member: Member, signed: SignedTask | None = None) -> None:
        """Keep a member; what was signed first, so that what it names is always there."""
        folder = self.folder(member)
        folder.mkdir(mode=0o700, exist_ok=True)
        if signed is not None:
            _write(folder / f"{signed.hash}.json", json.dumps(signed.to_json()).encode())
        _write(folder / "member.json", member.model_dump_json(indent=2, by_alias=True).encode())
        sync_folder(folder.parent)

    def accept_restores(self, member: Member, accepted: bool) -> Member:
        """Keep whether the owner accepts in advance that the operator restores a task."""
        changed = member.model_copy(update={"accept_restores": accepted})
        if changed != member:
            self.store(changed)
        return changed

    def signed_task(self, member: Member) -> SignedTask:
        """Read the signed task that the owner accepted; its hash and its signature are checked again."""
        path = self.folder(member) / f"{member.task_hash}.json"
        try:
            signed = SignedTask.from_json(json.loads(path.read_bytes()))
        except (OSError, ValueError) as error:
            raise BadInput(f"{path} cannot be read: {error}") from None
        if signed.hash != member.task_hash:
            raise BadInput(f"{path} is not the signed task that was accepted")
        return signed

    def document(self, member: Member) -> TaskDocument:
        """Return what the signed task says."""
        return self.signed_task(member).open(expected_key=member.operator)

    def live(self, member: Member) -> LiveTask:
        """Return the task as the owner accepted it."""
        return build(self.document(member), member.epsilon)

    def folder(self, member: Member) -> Path:
        """Where what belongs to one task is kept."""
        return self.path / "tasks" / member.account

    def memory_path(self, member: Member) -> Path:
        """Return the file of what the device remembers, readable by the owner alone."""
        return _private(self.folder(member) / "memory.sqlite")


def _load(kind: type[Kind], path: Path) -> Kind:
    try:
        return kind.model_validate_json(path.read_bytes())
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from None
    except ValidationError as error:
        if "sheet" in {str(place) for problem in error.errors() for place in problem["loc"]}:
            raise BadInput(
                f"{path} was written by crowdml with protocol 1, which is not spoken here any more",
                hint="use the crowdml that wrote it; or move the folder away and join anew, knowing that what was "
                "spent so far is then not counted",
            ) from None
        raise BadInput(f"{path} is damaged: {error.errors()[0]['msg']}") from None


def _private(path: Path) -> Path:
    """Make a file that only the owner can read, if it is not there. SQLite gives its other files the same rights."""
    if not path.exists():
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | PLAIN_FLAGS, 0o600))
        sync_folder(path.parent)
    return path


def _write(path: Path, content: bytes) -> None:
    """Write a file entirely or not at all, readable by the owner alone; its name survives a power cut."""
    write_whole(path, content, secret=True)
    sync_folder(path.parent)
