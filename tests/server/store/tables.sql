-- The tables of all migrations in SQLite. Migrations are not changed after their release, so neither is what they made.
CREATE TABLE tasks (
    id INTEGER NOT NULL,
    name TEXT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT,
    incarnation INTEGER NOT NULL,
    version BIGINT NOT NULL,
    check_ins BIGINT NOT NULL,
    received BIGINT NOT NULL,
    slots INTEGER NOT NULL,
    CONSTRAINT pk_tasks PRIMARY KEY (id),
    CONSTRAINT uq_tasks_name UNIQUE (name)
);
CREATE TABLE signed_tasks (
    task INTEGER NOT NULL,
    file TEXT NOT NULL,
    signed_text BLOB NOT NULL,
    signature BLOB NOT NULL,
    "key" BLOB NOT NULL,
    CONSTRAINT pk_signed_tasks PRIMARY KEY (task),
    CONSTRAINT fk_signed_tasks_task FOREIGN KEY(task) REFERENCES tasks (id)
);
CREATE TABLE public_sets (
    task INTEGER NOT NULL,
    content BLOB NOT NULL,
    CONSTRAINT pk_public_sets PRIMARY KEY (task),
    CONSTRAINT fk_public_sets_task FOREIGN KEY(task) REFERENCES tasks (id)
);
CREATE TABLE states (
    task INTEGER NOT NULL,
    server_state BLOB NOT NULL,
    CONSTRAINT pk_states PRIMARY KEY (task),
    CONSTRAINT fk_states_task FOREIGN KEY(task) REFERENCES tasks (id)
);
CREATE TABLE points (
    task INTEGER NOT NULL,
    check_ins BIGINT NOT NULL,
    version BIGINT NOT NULL,
    rows BIGINT NOT NULL,
    estimated_error DOUBLE,
    time DOUBLE NOT NULL,
    counted BIGINT,
    errors BIGINT,
    CONSTRAINT pk_points PRIMARY KEY (task, check_ins),
    CONSTRAINT fk_points_task FOREIGN KEY(task) REFERENCES tasks (id)
) WITHOUT ROWID;
CREATE TABLE devices (
    task INTEGER NOT NULL,
    slot INTEGER NOT NULL,
    id TEXT NOT NULL,
    token_hash BLOB NOT NULL,
    public_key BLOB NOT NULL,
    joined DOUBLE NOT NULL,
    revoked BOOLEAN NOT NULL,
    CONSTRAINT pk_devices PRIMARY KEY (task, slot),
    CONSTRAINT fk_devices_task FOREIGN KEY(task) REFERENCES tasks (id),
    CONSTRAINT uq_devices_id UNIQUE (id),
    CONSTRAINT uq_devices_task_public_key UNIQUE (task, public_key)
) WITHOUT ROWID;
CREATE TABLE invites (
    task INTEGER NOT NULL,
    code_hash BLOB NOT NULL,
    used BOOLEAN NOT NULL,
    slot INTEGER,
    CONSTRAINT pk_invites PRIMARY KEY (task, code_hash),
    CONSTRAINT fk_invites_task FOREIGN KEY(task) REFERENCES tasks (id)
) WITHOUT ROWID;
CREATE TABLE device_rows (
    task INTEGER NOT NULL,
    slot INTEGER NOT NULL,
    "row" BLOB NOT NULL,
    CONSTRAINT pk_device_rows PRIMARY KEY (task, slot),
    CONSTRAINT fk_device_rows_task_slot FOREIGN KEY(task, slot) REFERENCES devices (task, slot) ON DELETE CASCADE
);
CREATE TABLE receipts (
    id INTEGER NOT NULL,
    task INTEGER NOT NULL,
    slot INTEGER NOT NULL,
    "key" TEXT NOT NULL,
    body BLOB NOT NULL,
    number BIGINT NOT NULL,
    version BIGINT NOT NULL,
    started BIGINT NOT NULL,
    status TEXT NOT NULL,
    previous BIGINT,
    CONSTRAINT pk_receipts PRIMARY KEY (id),
    CONSTRAINT uq_receipts_task_key_slot UNIQUE (task, "key", slot)
);
CREATE TABLE counters (
    task INTEGER NOT NULL,
    slot INTEGER NOT NULL,
    check_ins BIGINT NOT NULL,
    last_version BIGINT NOT NULL,
    last BIGINT NOT NULL,
    CONSTRAINT pk_counters PRIMARY KEY (task, slot),
    CONSTRAINT fk_counters_task_slot FOREIGN KEY(task, slot) REFERENCES devices (task, slot) ON DELETE CASCADE
) WITHOUT ROWID;
CREATE TABLE server_identity (
    id INTEGER NOT NULL,
    signing_key BLOB NOT NULL,
    operator_token_hash BLOB NOT NULL,
    CONSTRAINT pk_server_identity PRIMARY KEY (id)
);
CREATE TABLE meta (
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    CONSTRAINT pk_meta PRIMARY KEY (name)
);
CREATE TABLE days (
    task INTEGER NOT NULL,
    day INTEGER NOT NULL,
    first BIGINT NOT NULL,
    version BIGINT NOT NULL,
    staleness TEXT NOT NULL,
    check_ins BIGINT,
    devices INTEGER,
    CONSTRAINT pk_days PRIMARY KEY (task, day),
    CONSTRAINT fk_days_task FOREIGN KEY(task) REFERENCES tasks (id)
) WITHOUT ROWID;
CREATE TABLE validations (
    task INTEGER NOT NULL,
    version BIGINT NOT NULL,
    error DOUBLE NOT NULL,
    time DOUBLE NOT NULL,
    CONSTRAINT pk_validations PRIMARY KEY (task, version),
    CONSTRAINT fk_validations_task FOREIGN KEY(task) REFERENCES tasks (id)
) WITHOUT ROWID;
CREATE TABLE operator_sessions (
    token_hash BLOB NOT NULL,
    made DOUBLE NOT NULL,
    expires DOUBLE NOT NULL,
    CONSTRAINT pk_operator_sessions PRIMARY KEY (token_hash)
) WITHOUT ROWID;
CREATE TABLE event_log (
    id INTEGER NOT NULL,
    time DOUBLE NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    task INTEGER,
    slot INTEGER,
    count BIGINT NOT NULL,
    detail TEXT NOT NULL,
    CONSTRAINT pk_event_log PRIMARY KEY (id),
    CONSTRAINT fk_event_log_task FOREIGN KEY(task) REFERENCES tasks (id)
);
CREATE TABLE refused_releases (
    task INTEGER NOT NULL,
    slot INTEGER NOT NULL,
    "key" TEXT NOT NULL,
    CONSTRAINT pk_refused_releases PRIMARY KEY (task, slot, "key"),
    CONSTRAINT fk_refused_releases_task_slot FOREIGN KEY(task, slot) REFERENCES devices (task, slot) ON DELETE CASCADE
) WITHOUT ROWID;
