"""Statements that run for every batch or before a server serves, as text.

For PostgreSQL they are compiled when the store opens. For SQLite they stand here as SQLAlchemy writes them, so that a
server does not have to load it before it serves; a test compares the two. After a change in `compiling` run that test:
it prints what must stand here.
"""

from __future__ import annotations

from crowdml.core import record


@record
class Statements:
    """The statements of one kind of database.

    Attributes:
        advance: The fence: moves a task on, only from where the writer believes it to be.
        turn: The same, with a new state of the task and its reason.
        state: Puts the algorithm's state.
        receipts: Adds one receipt to the log.
        row: Puts a device's row, unless the device has withdrawn meanwhile.
        point: Puts a point of the curve.
        look_up: Finds receipts by slot and key.
        chain: Follows a device's receipts back from the last one.
        tasks: All tasks, whole.
        devices: The devices of a task.
        rows: The rows of a task's devices.
        curve: The learning curve of a task.
        identity: Who the server is.
        counters: The counters as they were last written.
        counted: A value of the table `meta`.
        later: Receipts from a place in the log on.
    """

    advance: str
    turn: str
    state: str
    receipts: str
    row: str
    point: str
    look_up: str
    chain: str
    tasks: str
    devices: str
    rows: str
    curve: str
    identity: str
    counters: str
    counted: str
    later: str


SQLITE = Statements(
    advance=(
        "UPDATE tasks SET version=?, check_ins=?, received=? WHERE tasks.id = ? AND tasks.version = ? AND "
        "tasks.check_ins = ?"
    ),
    turn=(
        "UPDATE tasks SET state=?, reason=?, version=?, check_ins=?, received=? WHERE tasks.id = ? AND "
        "tasks.version = ? AND tasks.check_ins = ?"
    ),
    state="UPDATE states SET server_state=? WHERE states.task = ?",
    receipts=(
        'INSERT INTO receipts (id, task, slot, "key", body, number, version, started, status, previous) '
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    ),
    row=(
        'INSERT INTO device_rows (task, slot, "row") SELECT devices.task, devices.slot, ? AS anon_1 FROM '
        'devices WHERE devices.task = ? AND devices.slot = ? ON CONFLICT (task, slot) DO UPDATE SET "row" = '
        'excluded."row"'
    ),
    point=(
        "INSERT INTO points (task, check_ins, version, rows, estimated_error, time, counted, errors) VALUES "
        "(?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (task, check_ins) DO UPDATE SET version = excluded.version, "
        "rows = excluded.rows, estimated_error = excluded.estimated_error, time = excluded.time, counted = "
        "excluded.counted, errors = excluded.errors"
    ),
    look_up=(
        'WITH wanted(slot, "key") AS (VALUES (?, ?)) SELECT receipts.slot, receipts."key", receipts.body, '
        "receipts.number, receipts.version, receipts.started, receipts.status, devices.id FROM wanted JOIN "
        'receipts ON receipts.slot = wanted.slot AND receipts."key" = wanted."key" AND receipts.task = ? '
        "LEFT OUTER JOIN devices ON devices.task = receipts.task AND devices.slot = receipts.slot"
    ),
    chain=(
        'WITH RECURSIVE own(id, task, slot, "key", body, number, version, started, status, previous) AS '
        '(SELECT receipts.id AS id, receipts.task AS task, receipts.slot AS slot, receipts."key" AS "key", '
        "receipts.body AS body, receipts.number AS number, receipts.version AS version, receipts.started AS "
        "started, receipts.status AS status, receipts.previous AS previous FROM receipts WHERE receipts.id = "
        "? AND receipts.number > ? UNION ALL SELECT receipts.id AS id, receipts.task AS task, receipts.slot "
        'AS slot, receipts."key" AS "key", receipts.body AS body, receipts.number AS number, '
        "receipts.version AS version, receipts.started AS started, receipts.status AS status, "
        "receipts.previous AS previous FROM receipts, own WHERE receipts.id = own.previous AND "
        'receipts.number > ?) SELECT own.slot, own."key", own.body, own.number, own.version, own.started, '
        "own.status, devices.id FROM own LEFT OUTER JOIN devices ON devices.task = own.task AND devices.slot "
        "= own.slot ORDER BY own.number LIMIT ?"
    ),
    tasks=(
        "SELECT tasks.id, tasks.name, tasks.state, tasks.reason, tasks.incarnation, tasks.version, "
        "tasks.check_ins, tasks.received, tasks.slots, sheets.file, sheets.sheet, sheets.signature, "
        'sheets."key", states.server_state, public_sets.content AS public FROM tasks JOIN sheets ON '
        "sheets.task = tasks.id JOIN states ON states.task = tasks.id LEFT OUTER JOIN public_sets ON "
        "public_sets.task = tasks.id ORDER BY tasks.id"
    ),
    devices=(
        "SELECT devices.task, devices.slot, devices.id, devices.token_hash, devices.public_key, "
        "devices.joined, devices.revoked FROM devices WHERE devices.task = ? ORDER BY devices.slot"
    ),
    rows='SELECT device_rows.slot, device_rows."row" FROM device_rows WHERE device_rows.task = ?',
    curve=(
        "SELECT points.version, points.check_ins, points.rows, points.estimated_error, points.time, "
        "points.counted, points.errors FROM points WHERE points.task = ? ORDER BY points.check_ins"
    ),
    identity="SELECT server_identity.signing_key, server_identity.operator_token_hash FROM server_identity",
    counters=(
        "SELECT counters.task, counters.slot, counters.check_ins, counters.last_version, counters.last FROM counters"
    ),
    counted="SELECT meta.value FROM meta WHERE meta.name = ?",
    later=(
        "SELECT receipts.task, receipts.slot, receipts.number, receipts.started, receipts.id FROM receipts "
        "WHERE receipts.id >= ? ORDER BY receipts.id"
    ),
)
