-- The ledger: the log of messages, the claim journal of its readers, what a reader could not pass on.
-- {p} is the schema and the prefix of the names, {s} the schema, {n} the prefix, {lanes} and
-- {mask} the number of lanes and that number less one. Text is compared by bytes everywhere.

DO $$
BEGIN
    IF pg_catalog.to_regnamespace('{s}') IS NULL THEN
        CREATE SCHEMA {s};
    END IF;
END
$$;

CREATE TABLE {p}schema_version (
    version    integer NOT NULL PRIMARY KEY,
    name       text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE {p}setting (
    name  text COLLATE "C" NOT NULL PRIMARY KEY,
    value text NOT NULL
);

INSERT INTO {p}setting (name, value) VALUES
    ('lanes', '{lanes}'),
    ('default_transport', '{default_transport}');

-- What a message must keep, wherever it stands. A function, and not a constraint for each rule, since
-- the server reads each constraint anew for every INSERT, which cost as much as the INSERT itself. The
-- error names the broken rule as a constraint. Operators are named in full: it runs in anybody's session.
CREATE FUNCTION {p}message_check(message_id uuid, type text, type_version bigint, content_type text,
    destination text, source text, key text, tenant text, correlation_id text, causation_id text,
    traceparent text, tracestate text, headers text, body bytea, occurred_at timestamptz,
    expires_at timestamptz) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
DECLARE
    broken text := CASE
        WHEN message_id OPERATOR(pg_catalog.=) '00000000-0000-0000-0000-000000000000'
            THEN 'message_id_is_not_nil'
        WHEN type OPERATOR(pg_catalog.!~~) 'urn:message:_%:_%'
            OR pg_catalog.octet_length(type) OPERATOR(pg_catalog.>) 200
            THEN 'type_is_urn_message_namespace_name_of_200_bytes_at_most'
        WHEN type_version OPERATOR(pg_catalog.<) 1
            OR type_version OPERATOR(pg_catalog.>) 4294967295
            THEN 'type_version_is_1_or_more'
        WHEN pg_catalog.octet_length(content_type) OPERATOR(pg_catalog.=) 0
            OR pg_catalog.octet_length(content_type) OPERATOR(pg_catalog.>) 255
            THEN 'content_type_has_1_to_255_bytes'
        WHEN destination OPERATOR(pg_catalog.!~) '^[a-z][^:]*://.'
            OR pg_catalog.octet_length(destination) OPERATOR(pg_catalog.>) 512
            THEN 'destination_is_an_address_of_512_bytes_at_most'
        WHEN pg_catalog.octet_length(source) OPERATOR(pg_catalog.>) 255
            THEN 'source_has_255_bytes_at_most'
        WHEN pg_catalog.octet_length(key) OPERATOR(pg_catalog.=) 0
            OR pg_catalog.octet_length(key) OPERATOR(pg_catalog.>) 255
            THEN 'key_has_1_to_255_bytes'
        WHEN pg_catalog.octet_length(tenant) OPERATOR(pg_catalog.>) 255
            THEN 'tenant_has_255_bytes_at_most'
        WHEN pg_catalog.octet_length(correlation_id) OPERATOR(pg_catalog.>) 255
            THEN 'correlation_id_has_255_bytes_at_most'
        WHEN pg_catalog.octet_length(causation_id) OPERATOR(pg_catalog.>) 255
            THEN 'causation_id_has_255_bytes_at_most'
        WHEN pg_catalog.octet_length(traceparent) OPERATOR(pg_catalog.>) 128
            THEN 'traceparent_has_128_bytes_at_most'
        WHEN pg_catalog.octet_length(tracestate) OPERATOR(pg_catalog.>) 512
            THEN 'tracestate_has_512_bytes_at_most'
        WHEN CASE WHEN headers IS NULL THEN false
                  WHEN pg_catalog.octet_length(headers) OPERATOR(pg_catalog.>) 32768 THEN true
                  ELSE pg_catalog.json_typeof(headers::pg_catalog.json)
                      OPERATOR(pg_catalog.<>) 'object' END
            THEN 'headers_is_a_json_object_of_32768_bytes_at_most'
        WHEN pg_catalog.octet_length(body) OPERATOR(pg_catalog.>) 67108864
            THEN 'body_has_67108864_bytes_at_most'
        WHEN occurred_at OPERATOR(pg_catalog.<) '0001-01-01 00:00:00+00'
            OR occurred_at OPERATOR(pg_catalog.>=) '10000-01-01 00:00:00+00'
            THEN 'occurred_at_is_in_year_1_to_9999'
        WHEN expires_at OPERATOR(pg_catalog.<) '0001-01-01 00:00:00+00'
            OR expires_at OPERATOR(pg_catalog.>=) '10000-01-01 00:00:00+00'
            THEN 'expires_at_is_in_year_1_to_9999'
    END;
BEGIN
    IF broken IS NULL THEN
        RETURN true;
    END IF;
    RAISE EXCEPTION USING ERRCODE = 'check_violation', CONSTRAINT = broken,
        MESSAGE = pg_catalog.format('the message violates check constraint "%s"', broken);
END
$$;

-- The log. Insert only: the state of a message is where it stands, never a column of this table.
-- Anybody may insert type and body; the rest has defaults, and the lane is computed. xid stands
-- before id, so that a row's transaction id is older than its id.
CREATE TABLE {p}outbox (
    xid            xid8 NOT NULL DEFAULT pg_catalog.pg_current_xact_id(),
    id             bigint GENERATED ALWAYS AS IDENTITY,
    lane           integer NOT NULL GENERATED ALWAYS AS (
        ((CASE WHEN key IS NULL THEN id
               ELSE pg_catalog.hashtextextended(key COLLATE "C", 0) END) & {mask})::integer) STORED,
    message_id     uuid NOT NULL DEFAULT pg_catalog.encode(pg_catalog.set_bit(pg_catalog.set_bit(
        overlay(pg_catalog.uuid_send(pg_catalog.gen_random_uuid()) PLACING substring(
            pg_catalog.int8send((extract(epoch FROM pg_catalog.clock_timestamp()) * 1000)::bigint)
            FROM 3) FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid,
    type           text COLLATE "C" NOT NULL,
    type_version   bigint NOT NULL DEFAULT 1,
    content_type   text COLLATE "C" NOT NULL DEFAULT 'application/json',
    destination    text COLLATE "C",
    source         text COLLATE "C",
    key            text COLLATE "C",
    tenant         text COLLATE "C" NOT NULL DEFAULT '',
    correlation_id text COLLATE "C",
    causation_id   text COLLATE "C",
    traceparent    text COLLATE "C",
    tracestate     text COLLATE "C",
    headers        text COLLATE "C",
    body           bytea NOT NULL,
    occurred_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at     timestamptz,
    CONSTRAINT {n}outbox_message CHECK ({p}message_check(message_id, type,
        type_version, content_type, destination, source, key, tenant, correlation_id, causation_id,
        traceparent, tracestate, headers, body, occurred_at, expires_at)),
    CONSTRAINT {n}outbox_pkey PRIMARY KEY (lane, id)
);

CREATE INDEX {n}outbox_by_xid ON {p}outbox (xid, lane, id);
CREATE INDEX {n}outbox_by_message_id ON {p}outbox USING brin (message_id)
    WITH (pages_per_range = 32, autosummarize = on);

-- Who reads the log. Reader 1 is the relay; numbers are never used again.
CREATE TABLE {p}subscription (
    reader       bigint GENERATED BY DEFAULT AS IDENTITY (START WITH 2) PRIMARY KEY,
    name         text COLLATE "C" NOT NULL CONSTRAINT {n}subscription_by_name UNIQUE,
    destinations text[] COLLATE "C" NOT NULL,  -- exact addresses, sorted; the relay: none
    order_policy text NOT NULL CHECK (order_policy IN ('hold', 'skip', 'halt')),
    temporary    boolean NOT NULL,
    expiry_ms    bigint,
    expires_at   timestamptz,             -- of a temporary one
    start_id     bigint NOT NULL,         -- ids up to here are older than the reader,
    start_pend   xid8[] NOT NULL,         -- unless one of these transactions wrote them
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp()
);

INSERT INTO {p}subscription
    (reader, name, destinations, order_policy, temporary, start_id, start_pend)
VALUES (1, '$relay', '{}', '{order}', false, 0, '{}');

-- The claim journal. Insert only; only the newest row of a (reader, lane) is read, so every row
-- carries the whole state of its lane. The newest row is never deleted: seq is the fence.
CREATE TABLE {p}outbox_claim (
    reader      bigint NOT NULL,
    lane        integer NOT NULL,
    seq         bigint NOT NULL,
    pos         bigint NOT NULL,    -- ids up to here were passed
    drain_pos   bigint NOT NULL,    -- of the transactions in drain, ids up to here were taken
    rebase_id   bigint NOT NULL,    -- late rows of pend are sought above it only
    acked       bigint NOT NULL,    -- running count: published or parked
    passed      bigint NOT NULL,    -- running count: not this reader's
    system_id   bigint NOT NULL,    -- of the cluster whose transaction ids stand here
    lease_until timestamptz,        -- null when no slice is open
    at          timestamptz NOT NULL,
    attempt     integer NOT NULL,   -- takeovers without a settle
    token       uuid NOT NULL,      -- of the open slice, or of the one that was settled
    kind        text NOT NULL CHECK (kind IN ('claim', 'settle', 'renew', 'release')),
    owner       text NOT NULL,      -- who, for people; not an identity
    ids         bigint[] NOT NULL,  -- the open slice
    rest        bigint[] NOT NULL,  -- claimed before, neither published nor parked
    suspects    bigint[] NOT NULL,  -- pairs: id, times lost
    pend        xid8[] NOT NULL,    -- transactions that were open when pos passed their ids
    drain       xid8[] NOT NULL,    -- transactions that have ended, whose late rows are taken now
    CONSTRAINT {n}outbox_claim_pkey PRIMARY KEY (reader, lane, seq)
);

INSERT INTO {p}outbox_claim
SELECT 1, lane, 0, 0, 0, 0, 0, 0, (SELECT system_identifier FROM pg_catalog.pg_control_system()),
       NULL, clock_timestamp(), 0, '00000000-0000-0000-0000-000000000000', 'release', '', '{}',
       '{}', '{}', '{}', '{}'
FROM pg_catalog.generate_series(0, {mask}) AS lane;

-- What a reader could not pass on; reader 0: delayed messages that are not in the log yet.
CREATE TABLE {p}outbox_parked (
    place          bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    xid            xid8 NOT NULL DEFAULT pg_catalog.pg_current_xact_id(),
    reader         bigint NOT NULL,
    log_id         bigint NOT NULL,   -- id in the log; of a delayed one its place
    lane           integer NOT NULL,  -- -1 for a delayed one
    message_id     uuid NOT NULL,
    type           text COLLATE "C" NOT NULL,
    type_version   bigint NOT NULL,
    content_type   text COLLATE "C" NOT NULL,
    destination    text COLLATE "C",
    source         text COLLATE "C",
    key            text COLLATE "C",
    tenant         text COLLATE "C" NOT NULL,
    correlation_id text COLLATE "C",
    causation_id   text COLLATE "C",
    traceparent    text COLLATE "C",
    tracestate     text COLLATE "C",
    headers        text COLLATE "C",
    body           bytea NOT NULL,
    occurred_at    timestamptz NOT NULL,
    expires_at     timestamptz,
    state           text NOT NULL
        CHECK (state IN ('delayed', 'failed', 'held', 'processing', 'dead')),
    resume_state    text CHECK (resume_state IN ('failed', 'held')),  -- what a processing one was
    attempts        integer NOT NULL DEFAULT 0,
    takeovers       integer NOT NULL DEFAULT 0,
    suspicion       integer NOT NULL DEFAULT 0,  -- times lost while it may have closed the connection
    deferred        boolean NOT NULL DEFAULT false,  -- its destination is down
    next_attempt_at timestamptz NOT NULL
        CONSTRAINT next_attempt_at_is_in_year_1_to_9999 CHECK (
            next_attempt_at >= '0001-01-01 00:00:00+00' AND
            next_attempt_at < '10000-01-01 00:00:00+00'),
    lock_token      uuid,
    locked_until    timestamptz,
    owner           text,
    last_error      text,
    first_failed_at timestamptz,
    operator_hold   boolean NOT NULL DEFAULT false,
    parked_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    redriven_at     timestamptz,
    CONSTRAINT {n}outbox_parked_message CHECK ({p}message_check(message_id, type,
        type_version, content_type, destination, source, key, tenant, correlation_id, causation_id,
        traceparent, tracestate, headers, body, occurred_at, expires_at)),
    CONSTRAINT {n}outbox_parked_by_log_id UNIQUE (reader, log_id)
);

CREATE INDEX {n}outbox_parked_by_key
    ON {p}outbox_parked (reader, tenant, key, log_id, state) WHERE key IS NOT NULL;
CREATE INDEX {n}outbox_parked_by_due
    ON {p}outbox_parked (reader, next_attempt_at) WHERE state IN ('delayed', 'failed');
CREATE INDEX {n}outbox_parked_by_held
    ON {p}outbox_parked (reader, tenant, key, log_id) WHERE state = 'held';
CREATE INDEX {n}outbox_parked_by_lease
    ON {p}outbox_parked (reader, locked_until) WHERE state = 'processing';
CREATE INDEX {n}outbox_parked_by_uncharged
    ON {p}outbox_parked (reader, lane) WHERE attempts = 0 AND state IN ('failed', 'held');
CREATE INDEX {n}outbox_parked_by_message_id ON {p}outbox_parked (message_id);
