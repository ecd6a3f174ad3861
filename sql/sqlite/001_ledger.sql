-- The ledger: the log of messages, the claim journal of its readers, what a reader could not pass on.
-- {p} is the prefix of the names, {lanes} and {mask} the number of lanes and that number less one.
-- Instants are microseconds since 1970, UTC.

CREATE TABLE {p}_schema_version (
    version    INTEGER NOT NULL PRIMARY KEY,
    name       TEXT NOT NULL,
    applied_at INTEGER NOT NULL
) STRICT;

CREATE TABLE {p}_setting (
    name  TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO {p}_setting (name, value) VALUES
    ('lanes', '{lanes}'),
    ('default_transport', '{default_transport}');

-- The log. Insert only: the state of a message is where it stands, never a column of this table.
-- Anybody may insert message_id, type and body; the rest has defaults, and the lane is computed.
CREATE TABLE {p}_outbox (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    lane           INTEGER NOT NULL GENERATED ALWAYS AS (
        (CASE WHEN key IS NULL THEN id ELSE
            (((ifnull((((unicode(substr(key, -5)) * 11
                       + unicode(substr(key, -4))) * 11
                      + unicode(substr(key, -3))) * 11
                     + unicode(substr(key, -2))) * 11
                    + unicode(substr(key, -1)), 0)
             + length(key) * 7) & 2147483647) * 1640531527) >> 19
         END) & {mask}) VIRTUAL,  -- of a key its last five characters and its length
    message_id     TEXT NOT NULL
        CONSTRAINT message_id_is_a_lower_case_uuid CHECK (
            message_id GLOB '[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]'
            AND message_id <> '00000000-0000-0000-0000-000000000000'),
    type           TEXT NOT NULL
        CONSTRAINT type_is_urn_message_namespace_name_of_200_bytes_at_most CHECK (
            type GLOB 'urn:message:?*:?*' AND length(CAST(type AS BLOB)) <= 200),
    type_version   INTEGER NOT NULL DEFAULT 1
        CONSTRAINT type_version_is_1_or_more CHECK (type_version BETWEEN 1 AND 4294967295),
    content_type   TEXT NOT NULL DEFAULT 'application/json'
        CONSTRAINT content_type_has_1_to_255_bytes CHECK (
            length(CAST(content_type AS BLOB)) BETWEEN 1 AND 255),
    destination    TEXT
        CONSTRAINT destination_is_an_address_of_512_bytes_at_most CHECK (
            destination GLOB '[a-z]*://?*' AND length(CAST(destination AS BLOB)) <= 512),
    source         TEXT
        CONSTRAINT source_has_255_bytes_at_most CHECK (length(CAST(source AS BLOB)) <= 255),
    key            TEXT
        CONSTRAINT key_has_1_to_255_bytes CHECK (length(CAST(key AS BLOB)) BETWEEN 1 AND 255),
    tenant         TEXT NOT NULL DEFAULT ''
        CONSTRAINT tenant_has_255_bytes_at_most CHECK (length(CAST(tenant AS BLOB)) <= 255),
    correlation_id TEXT
        CONSTRAINT correlation_id_has_255_bytes_at_most CHECK (
            length(CAST(correlation_id AS BLOB)) <= 255),
    causation_id   TEXT
        CONSTRAINT causation_id_has_255_bytes_at_most CHECK (
            length(CAST(causation_id AS BLOB)) <= 255),
    traceparent    TEXT
        CONSTRAINT traceparent_has_128_bytes_at_most CHECK (
            length(CAST(traceparent AS BLOB)) <= 128),
    tracestate     TEXT
        CONSTRAINT tracestate_has_512_bytes_at_most CHECK (
            length(CAST(tracestate AS BLOB)) <= 512),
    headers        TEXT
        CONSTRAINT headers_is_a_json_object_of_32768_bytes_at_most CHECK (
            CASE WHEN headers IS NULL THEN 1
                 WHEN length(CAST(headers AS BLOB)) > 32768 OR NOT json_valid(headers) THEN 0
                 ELSE json_type(headers) = 'object' END),
    body           BLOB NOT NULL
        CONSTRAINT body_has_67108864_bytes_at_most CHECK (length(body) <= 67108864),
    occurred_at    INTEGER NOT NULL DEFAULT (
        CAST(strftime('%s', 'now') AS INTEGER) * 1000000
        + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER) * 1000)
        CONSTRAINT occurred_at_is_microseconds_from_year_1_to_9999 CHECK (
            occurred_at BETWEEN -62135596800000000 AND 253402300799999999),
    expires_at     INTEGER
        CONSTRAINT expires_at_is_microseconds_from_year_1_to_9999 CHECK (
            expires_at BETWEEN -62135596800000000 AND 253402300799999999)
) STRICT;

CREATE INDEX {p}_outbox_by_lane ON {p}_outbox (lane);
CREATE INDEX {p}_outbox_by_message_id ON {p}_outbox (message_id);

-- Who reads the log. Reader 1 is the relay; numbers are never used again.
CREATE TABLE {p}_subscription (
    reader       INTEGER PRIMARY KEY AUTOINCREMENT,
    name         TEXT NOT NULL UNIQUE,
    destinations TEXT NOT NULL       -- JSON array of exact addresses, sorted; the relay: []
        CONSTRAINT destinations_is_a_json_array CHECK (
            CASE WHEN json_valid(destinations) THEN json_type(destinations) = 'array' ELSE 0 END),
    order_policy TEXT NOT NULL CHECK (order_policy IN ('hold', 'skip', 'halt')),
    temporary    INTEGER NOT NULL CHECK (temporary IN (0, 1)),
    expiry_ms    INTEGER,
    expires_at   INTEGER,            -- of a temporary one
    start_id     INTEGER NOT NULL,   -- ids up to here are older than the reader
    created_at   INTEGER NOT NULL
) STRICT;

INSERT INTO {p}_subscription
    (reader, name, destinations, order_policy, temporary, expiry_ms, expires_at, start_id, created_at)
VALUES (1, '$relay', '[]', '{order}', 0, NULL, NULL, 0, CAST(strftime('%s', 'now') AS INTEGER) * 1000000);

-- The claim journal. Insert only; only the newest row of a (reader, lane) is read, so every row
-- carries the whole state of its lane. The newest row is never deleted: seq is the fence.
CREATE TABLE {p}_outbox_claim (
    reader      INTEGER NOT NULL,
    lane        INTEGER NOT NULL,
    seq         INTEGER NOT NULL
        CONSTRAINT seq_is_0_or_more_with_room_above CHECK (
            seq BETWEEN 0 AND 4611686018427387904),
    kind        TEXT NOT NULL CHECK (kind IN ('claim', 'settle', 'renew', 'release')),
    token       TEXT NOT NULL,     -- of the open slice, or of the one that was settled
    owner       TEXT NOT NULL,     -- who, for people; not an identity
    pos         INTEGER NOT NULL   -- ids up to here were passed
        CONSTRAINT pos_is_0_or_more CHECK (pos >= 0),
    low         INTEGER NOT NULL,  -- ids below are neither open nor in rest
    ids         TEXT NOT NULL      -- JSON array: the open slice
        CONSTRAINT ids_is_a_json_array CHECK (
            CASE WHEN ids = '[]' THEN 1
                 WHEN json_valid(ids) THEN json_type(ids) = 'array'
                 ELSE 0 END),
    rest        TEXT NOT NULL      -- JSON array: claimed before, neither published nor parked
        CONSTRAINT rest_is_a_json_array CHECK (
            CASE WHEN rest = '[]' THEN 1
                 WHEN json_valid(rest) THEN json_type(rest) = 'array'
                 ELSE 0 END),
    suspects    TEXT NOT NULL      -- JSON object: id -> times lost
        CONSTRAINT suspects_is_a_json_object CHECK (
            CASE WHEN suspects = '{}' THEN 1
                 WHEN json_valid(suspects) THEN json_type(suspects) = 'object'
                 ELSE 0 END),
    attempt     INTEGER NOT NULL   -- takeovers without a settle
        CONSTRAINT attempt_is_0_or_more CHECK (attempt BETWEEN 0 AND 4294967295),
    lease_until INTEGER NOT NULL,  -- 0 when no slice is open
    acked       INTEGER NOT NULL,  -- running count: published or parked
    passed      INTEGER NOT NULL,  -- running count: not this reader's
    at          INTEGER NOT NULL,
    PRIMARY KEY (reader, lane, seq)
) STRICT, WITHOUT ROWID;

INSERT INTO {p}_outbox_claim
WITH RECURSIVE lane (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM lane WHERE n < {mask})
SELECT 1, n, 0, 'release', '', '', 0, 1, '[]', '[]', '{}', 0, 0, 0, 0,
       CAST(strftime('%s', 'now') AS INTEGER) * 1000000 FROM lane;

-- What a reader could not pass on; reader 0: delayed messages that are not in the log yet.
CREATE TABLE {p}_outbox_parked (
    place           INTEGER PRIMARY KEY AUTOINCREMENT,
    reader          INTEGER NOT NULL,
    log_id          INTEGER NOT NULL,  -- id in the log; of a delayed one its place
    lane            INTEGER NOT NULL,  -- -1 for a delayed one
    message_id      TEXT NOT NULL
        CONSTRAINT message_id_is_a_lower_case_uuid CHECK (
            message_id GLOB '[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]'
            AND message_id <> '00000000-0000-0000-0000-000000000000'),
    type            TEXT NOT NULL
        CONSTRAINT type_is_urn_message_namespace_name_of_200_bytes_at_most CHECK (
            type GLOB 'urn:message:?*:?*' AND length(CAST(type AS BLOB)) <= 200),
    type_version    INTEGER NOT NULL
        CONSTRAINT type_version_is_1_or_more CHECK (type_version BETWEEN 1 AND 4294967295),
    content_type    TEXT NOT NULL
        CONSTRAINT content_type_has_1_to_255_bytes CHECK (
            length(CAST(content_type AS BLOB)) BETWEEN 1 AND 255),
    destination     TEXT
        CONSTRAINT destination_is_an_address_of_512_bytes_at_most CHECK (
            destination GLOB '[a-z]*://?*' AND length(CAST(destination AS BLOB)) <= 512),
    source          TEXT
        CONSTRAINT source_has_255_bytes_at_most CHECK (length(CAST(source AS BLOB)) <= 255),
    key             TEXT
        CONSTRAINT key_has_1_to_255_bytes CHECK (length(CAST(key AS BLOB)) BETWEEN 1 AND 255),
    tenant          TEXT NOT NULL
        CONSTRAINT tenant_has_255_bytes_at_most CHECK (length(CAST(tenant AS BLOB)) <= 255),
    correlation_id  TEXT
        CONSTRAINT correlation_id_has_255_bytes_at_most CHECK (
            length(CAST(correlation_id AS BLOB)) <= 255),
    causation_id    TEXT
        CONSTRAINT causation_id_has_255_bytes_at_most CHECK (
            length(CAST(causation_id AS BLOB)) <= 255),
    traceparent     TEXT
        CONSTRAINT traceparent_has_128_bytes_at_most CHECK (
            length(CAST(traceparent AS BLOB)) <= 128),
    tracestate      TEXT
        CONSTRAINT tracestate_has_512_bytes_at_most CHECK (
            length(CAST(tracestate AS BLOB)) <= 512),
    headers         TEXT
        CONSTRAINT headers_is_a_json_object_of_32768_bytes_at_most CHECK (
            CASE WHEN headers IS NULL THEN 1
                 WHEN length(CAST(headers AS BLOB)) > 32768 OR NOT json_valid(headers) THEN 0
                 ELSE json_type(headers) = 'object' END),
    body            BLOB NOT NULL
        CONSTRAINT body_has_67108864_bytes_at_most CHECK (length(body) <= 67108864),
    occurred_at     INTEGER NOT NULL
        CONSTRAINT occurred_at_is_microseconds_from_year_1_to_9999 CHECK (
            occurred_at BETWEEN -62135596800000000 AND 253402300799999999),
    expires_at      INTEGER
        CONSTRAINT expires_at_is_microseconds_from_year_1_to_9999 CHECK (
            expires_at BETWEEN -62135596800000000 AND 253402300799999999),
    state           TEXT NOT NULL
        CHECK (state IN ('delayed', 'failed', 'held', 'processing', 'dead')),
    resume_state    TEXT CHECK (resume_state IN ('failed', 'held')),  -- what a processing one was
    attempts        INTEGER NOT NULL DEFAULT 0
        CONSTRAINT attempts_is_0_or_more CHECK (attempts BETWEEN 0 AND 4294967295),
    takeovers       INTEGER NOT NULL DEFAULT 0
        CONSTRAINT takeovers_is_0_or_more CHECK (takeovers BETWEEN 0 AND 4294967295),
    suspicion       INTEGER NOT NULL DEFAULT 0   -- times lost while it may have closed the connection
        CONSTRAINT suspicion_is_0_or_more CHECK (suspicion BETWEEN 0 AND 4294967295),
    deferred        INTEGER NOT NULL DEFAULT 0 CHECK (deferred IN (0, 1)),  -- its destination is down
    next_attempt_at INTEGER NOT NULL,
    lock_token      TEXT,
    locked_until    INTEGER,
    owner           TEXT,
    last_error      TEXT,
    first_failed_at INTEGER,
    operator_hold   INTEGER NOT NULL DEFAULT 0 CHECK (operator_hold IN (0, 1)),
    parked_at       INTEGER NOT NULL,
    redriven_at     INTEGER,
    UNIQUE (reader, log_id),
    -- what contradicts these would stand here for ever: no claim would find it
    CONSTRAINT delayed_is_for_reader_0 CHECK (state <> 'delayed' OR reader = 0),
    CONSTRAINT held_has_a_key CHECK (state <> 'held' OR key IS NOT NULL),
    CONSTRAINT processing_has_a_token_and_a_lease CHECK (
        state <> 'processing' OR (lock_token IS NOT NULL AND locked_until IS NOT NULL))
) STRICT;

CREATE INDEX {p}_outbox_parked_by_key
    ON {p}_outbox_parked (reader, tenant, key, log_id, state) WHERE key IS NOT NULL;
CREATE INDEX {p}_outbox_parked_by_due
    ON {p}_outbox_parked (reader, next_attempt_at) WHERE state IN ('delayed', 'failed');
CREATE INDEX {p}_outbox_parked_by_held
    ON {p}_outbox_parked (reader, tenant, key, log_id) WHERE state = 'held';
CREATE INDEX {p}_outbox_parked_by_lease
    ON {p}_outbox_parked (reader, locked_until) WHERE state = 'processing';
CREATE INDEX {p}_outbox_parked_by_uncharged
    ON {p}_outbox_parked (reader, lane) WHERE attempts = 0 AND state IN ('failed', 'held');
CREATE INDEX {p}_outbox_parked_by_message_id ON {p}_outbox_parked (message_id);
