-- The inbox, sagas, live processes and the audit.

-- A mark: this consumer has handled this message, and the effect committed with the mark.
CREATE TABLE {p}_inbox (
    tenant       TEXT NOT NULL,
    consumer     TEXT NOT NULL,
    message_id   TEXT NOT NULL,
    body_hash    BLOB NOT NULL CHECK (length(body_hash) = 16),  -- BLAKE2b of type, version, body
    processed_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, consumer, message_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX {p}_inbox_by_processed_at ON {p}_inbox (processed_at);

-- What a consumer could not handle: a full copy, in the order of place within its key.
CREATE TABLE {p}_inbox_parked (
    place           INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant          TEXT NOT NULL,
    consumer        TEXT NOT NULL,
    message_id      TEXT NOT NULL,  -- what the consumer dedups by; or conflict:<hash>
    original_id     TEXT NOT NULL,  -- the id that the message came with
    body_hash       BLOB NOT NULL CHECK (length(body_hash) = 16),
    type            TEXT NOT NULL,
    type_version    INTEGER NOT NULL,
    content_type    TEXT NOT NULL,
    destination     TEXT,
    source          TEXT,
    key             TEXT CHECK (key <> ''),
    correlation_id  TEXT,
    causation_id    TEXT,
    traceparent     TEXT,
    tracestate      TEXT,
    headers         TEXT,
    body            BLOB NOT NULL,
    occurred_at     INTEGER NOT NULL,
    expires_at      INTEGER,
    state           TEXT NOT NULL CHECK (state IN ('failed', 'held', 'processing', 'dead')),
    resume_state    TEXT CHECK (resume_state IN ('failed', 'held')),  -- what a processing one was
    attempts        INTEGER NOT NULL DEFAULT 0
        CONSTRAINT attempts_is_0_or_more CHECK (attempts BETWEEN 0 AND 4294967295),
    takeovers       INTEGER NOT NULL DEFAULT 0
        CONSTRAINT takeovers_is_0_or_more CHECK (takeovers BETWEEN 0 AND 4294967295),
    next_attempt_at INTEGER NOT NULL,
    lock_token      TEXT,
    locked_until    INTEGER,
    owner           TEXT,
    last_error      TEXT,
    first_failed_at INTEGER,
    operator_hold   INTEGER NOT NULL DEFAULT 0 CHECK (operator_hold IN (0, 1)),
    parked_at       INTEGER NOT NULL,
    redriven_at     INTEGER,
    UNIQUE (tenant, consumer, message_id),
    -- what contradicts this would stand here for ever: no claim would find it
    CONSTRAINT processing_has_a_token_and_a_lease CHECK (
        state <> 'processing' OR (lock_token IS NOT NULL AND locked_until IS NOT NULL))
) STRICT;

CREATE INDEX {p}_inbox_parked_by_key
    ON {p}_inbox_parked (tenant, consumer, key, place, state) WHERE key IS NOT NULL;
CREATE INDEX {p}_inbox_parked_by_due
    ON {p}_inbox_parked (consumer, next_attempt_at) WHERE state = 'failed';
CREATE INDEX {p}_inbox_parked_by_held
    ON {p}_inbox_parked (consumer, tenant, key, place) WHERE state = 'held';
CREATE INDEX {p}_inbox_parked_by_lease
    ON {p}_inbox_parked (consumer, locked_until) WHERE state = 'processing';
CREATE INDEX {p}_inbox_parked_by_message_id ON {p}_inbox_parked (message_id);

-- A saga: one row of state that messages move. Completed ones stay until retention, as tombstones.
CREATE TABLE {p}_saga (
    tenant          TEXT NOT NULL,
    saga_type       TEXT NOT NULL,
    correlation_key TEXT NOT NULL CHECK (correlation_key <> ''),
    instance_id     TEXT NOT NULL,
    version         INTEGER NOT NULL,            -- saves so far
    state           BLOB NOT NULL,
    state_version   INTEGER NOT NULL,            -- of its contract
    timeouts        TEXT NOT NULL DEFAULT '[]',  -- JSON array of {name, token, due_at}: the open ones
    last_messages   TEXT NOT NULL DEFAULT '[]',  -- JSON array of {id, type}: what moved it last
    lease_token     TEXT,
    lease_owner     TEXT,                        -- who, for people; not an identity
    lease_until     INTEGER,
    started_at      INTEGER NOT NULL,
    updated_at      INTEGER NOT NULL,
    completed_at    INTEGER,
    PRIMARY KEY (tenant, saga_type, correlation_key)
) STRICT;

CREATE UNIQUE INDEX {p}_saga_by_instance ON {p}_saga (instance_id);
CREATE INDEX {p}_saga_by_completed_at
    ON {p}_saga (completed_at) WHERE completed_at IS NOT NULL;

-- Live processes, for people.
CREATE TABLE {p}_node (
    name       TEXT NOT NULL PRIMARY KEY,
    role       TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    seen_at    INTEGER NOT NULL,
    detail     TEXT
) STRICT;

-- Who did what and why.
CREATE TABLE {p}_audit (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    at      INTEGER NOT NULL,
    who     TEXT NOT NULL,
    action  TEXT NOT NULL,
    subject TEXT NOT NULL,     -- JSON: the message id or the filter
    reason  TEXT NOT NULL,
    count   INTEGER NOT NULL   -- how many it changed
) STRICT;

CREATE INDEX {p}_audit_by_at ON {p}_audit (at);
