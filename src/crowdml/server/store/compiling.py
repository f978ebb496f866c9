"""Compiling: the statements of `statements`, written with SQLAlchemy for either kind of database."""

from __future__ import annotations

import dataclasses
from typing import Any

from sqlalchemy import Dialect, Integer, Text, bindparam, column, func, insert, select, update, values

from crowdml.server.store.dialects import array_of, insert_of
from crowdml.server.store.records import Point
from crowdml.server.store.schema import (
    counters,
    device_rows,
    devices,
    meta,
    points,
    public_sets,
    receipts,
    server_identity,
    sheets,
    states,
    tasks,
)
from crowdml.server.store.statements import Statements

_FOUND = ("slot", "key", "body", "number", "version", "started", "status")
_WHOLE_TASK = (
    select(
        tasks,
        sheets.c.file,
        sheets.c.sheet,
        sheets.c.signature,
        sheets.c.key,
        states.c.server_state,
        public_sets.c.content.label("public"),
    )
    .join(sheets, sheets.c.task == tasks.c.id)
    .join(states, states.c.task == tasks.c.id)
    .outerjoin(public_sets, public_sets.c.task == tasks.c.id)
    .order_by(tasks.c.id)
)


def compiled(dialect: Dialect) -> Statements:
    """Write all statements for one kind of database."""

    def text(statement: Any) -> str:
        return str(statement.compile(dialect=dialect)).replace("\n", "")

    postgres, put = dialect.name == "postgresql", insert_of(dialect.name)
    return Statements(
        advance=text(_advance()),
        turn=text(_advance("state", "reason")),
        state=text(update(states).values(server_state=bindparam("given")).where(states.c.task == bindparam("of"))),
        receipts=text(insert(receipts)),
        row=text(_put_row(put)),
        point=text(_put_point(put)),
        look_up=text(_look_up(_arrays() if postgres else _pair())),
        chain=text(_chain()) + (" LIMIT %s" if postgres else " LIMIT ?"),
        tasks=text(_WHOLE_TASK),
        devices=text(select(devices).where(devices.c.task == bindparam("of")).order_by(devices.c.slot)),
        rows=text(select(device_rows.c.slot, device_rows.c.row).where(device_rows.c.task == bindparam("of"))),
        curve=text(_curve()),
        identity=text(select(server_identity.c.signing_key, server_identity.c.operator_token_hash)),
        counters=text(select(counters)),
        counted=text(select(meta.c.value).where(meta.c.name == bindparam("named"))),
        later=text(_later()),
    )


def _curve() -> Any:
    wanted = [points.c[field.name] for field in dataclasses.fields(Point)]
    return select(*wanted).where(points.c.task == bindparam("of")).order_by(points.c.check_ins)


def _later() -> Any:
    """Receipts from a place in the log on."""
    wanted = (receipts.c.task, receipts.c.slot, receipts.c.number, receipts.c.started, receipts.c.id)
    return select(*wanted).where(receipts.c.id >= bindparam("place")).order_by(receipts.c.id)


def _advance(*more: str) -> Any:
    """The fence: it moves the task on only from where the writer believes it to be."""
    return (
        update(tasks)
        .values({name: bindparam(f"new_{name}") for name in (*more, "version", "check_ins", "received")})
        .where(tasks.c.id == bindparam("of"))
        .where(tasks.c.version == bindparam("expected_version"))
        .where(tasks.c.check_ins == bindparam("expected_check_ins"))
    )


def _put_row(put: Any) -> Any:
    """Store a device's row, unless the device has withdrawn meanwhile."""
    given = bindparam("given", type_=device_rows.c.row.type)
    own = (devices.c.task == bindparam("of")) & (devices.c.slot == bindparam("at"))
    made = put(device_rows).from_select(
        ["task", "slot", "row"], select(devices.c.task, devices.c.slot, given).where(own)
    )
    return made.on_conflict_do_update(index_elements=["task", "slot"], set_={"row": made.excluded.row})


def _put_point(put: Any) -> Any:
    made = put(points)
    new = {name: made.excluded[name] for name in ("version", "rows", "estimated_error", "time", "counted", "errors")}
    return made.on_conflict_do_update(index_elements=["task", "check_ins"], set_=new)


def _pair() -> Any:
    pair = (bindparam("at", type_=Integer), bindparam("named", type_=Text))
    return values(column("slot", Integer), column("key", Text), name="wanted").data([pair]).cte("wanted")


def _arrays() -> Any:
    slots = bindparam("slots", type_=array_of(Integer))
    names = bindparam("names", type_=array_of(Text))
    made = func.unnest(slots, names).table_valued(column("slot", Integer), column("key", Text), name="wanted")
    return made.render_derived()


def _look_up(wanted: Any) -> Any:
    match = (receipts.c.slot == wanted.c.slot) & (receipts.c.key == wanted.c.key)
    return _told(wanted.join(receipts, match & (receipts.c.task == bindparam("of"))), receipts)


def _chain() -> Any:
    """Walk the chain by its links, newest first, as far back as wanted; then turn the order round."""
    own = select(receipts).where(receipts.c.id == bindparam("last"), receipts.c.number > bindparam("above"))
    walk = own.cte("own", recursive=True)
    before = select(receipts).where(receipts.c.id == walk.c.previous, receipts.c.number > bindparam("after"))
    walk = walk.union_all(before)
    return _told(walk, walk).order_by(walk.c.number)


def _told(source: Any, log: Any) -> Any:
    """Select receipts with the name of their device, where there still is one."""
    owner = (devices.c.task == log.c.task) & (devices.c.slot == log.c.slot)
    return select(*(log.c[name] for name in _FOUND), devices.c.id).select_from(source.outerjoin(devices, owner))
