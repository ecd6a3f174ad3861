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

-- What a message must keep, wherever it stands: a domain a column, since the server keeps the rules of
-- domains between statements, and reads a table's constraints anew for every INSERT. The error names
-- the broken rule as a constraint.
CREATE DOMAIN {p}message_id AS uuid
    CONSTRAINT message_id_is_not_nil CHECK (VALUE <> '00000000-0000-0000-0000-000000000000');
CREATE DOMAIN {p}message_type AS text COLLATE "C"
    CONSTRAINT type_is_urn_message_namespace_name_of_200_bytes_at_most
        CHECK (VALUE LIKE 'urn:message:_%:_%' AND octet_length(VALUE) <= 200);
CREATE DOMAIN {p}message_version AS bigint
    CONSTRAINT type_version_is_1_or_more CHECK (VALUE >= 1 AND VALUE <= 4294967295);
CREATE DOMAIN {p}message_content_type AS text COLLATE "C"
    CONSTRAINT content_type_has_1_to_255_bytes
        CHECK (octet_length(VALUE) >= 1 AND octet_length(VALUE) <= 255);
CREATE DOMAIN {p}message_destination AS text COLLATE "C"
    CONSTRAINT destination_is_an_address_of_512_bytes_at_most
        CHECK (VALUE ~ '^[a-z][^:]*://.' AND octet_length(VALUE) <= 512);
CREATE DOMAIN {p}message_source AS text COLLATE "C"
    CONSTRAINT source_has_255_bytes_at_most CHECK (octet_length(VALUE) <= 255);
CREATE DOMAIN {p}message_key AS text COLLATE "C"
    CONSTRAINT key_has_1_to_255_bytes
        CHECK (octet_length(VALUE) >= 1 AND octet_length(VALUE) <= 255);
CREATE DOMAIN {p}message_tenant AS text COLLATE "C"
    CONSTRAINT tenant_has_255_bytes_at_most CHECK (octet_length(VALUE) <= 255);
CREATE DOMAIN {p}message_correlation_id AS text COLLATE "C"
    CONSTRAINT correlation_id_has_255_bytes_at_most CHECK (octet_length(VALUE) <= 255);
CREATE DOMAIN {p}message_causation_id AS text COLLATE "C"
    CONSTRAINT causation_id_has_255_bytes_at_most CHECK (octet_length(VALUE) <= 255);
CREATE DOMAIN {p}message_traceparent AS text COLLATE "C"
    CONSTRAINT traceparent_has_128_bytes_at_most CHECK (octet_length(VALUE) <= 128);
CREATE DOMAIN {p}message_tracestate AS text COLLATE "C"
    CONSTRAINT tracestate_has_512_bytes_at_most CHECK (octet_length(VALUE) <= 512);
CREATE DOMAIN {p}message_headers AS text COLLATE "C"
    CONSTRAINT headers_is_a_json_object_of_32768_bytes_at_most
        CHECK (CASE WHEN octet_length(VALUE) > 32768 THEN false
                    ELSE json_typeof(VALUE::json) = 'object' END);
CREATE DOMAIN {p}message_body AS bytea
    CONSTRAINT body_has_67108864_bytes_at_most CHECK (octet_length(VALUE) <= 67108864);
CREATE DOMAIN {p}message_occurred_at AS timestamptz
    CONSTRAINT occurred_at_is_in_year_1_to_9999 CHECK (
        VALUE >= '0001-01-01 00:00:00+00' AND VALUE < '10000-01-01 00:00:00+00');
CREATE DOMAIN {p}message_expires_at AS timestamptz
    CONSTRAINT expires_at_is_in_year_1_to_9999 CHECK (
        VALUE >= '0001-01-01 00:00:00+00' AND VALUE < '10000-01-01 00:00:00+00');

-- The log. Insert only: the state of a message is where it stands, never a column of this table.
-- Anybody may insert type and body; the rest has defaults, and the lane is computed. xid stands
-- before id, so that a row's transaction id is older than its id. Numbers stand in quotes where they
-- would else be cast, in every statement.
CREATE TABLE {p}outbox (
    xid            xid8 NOT NULL DEFAULT pg_catalog.pg_current_xact_id(),
    id             bigint GENERATED ALWAYS AS IDENTITY,
    lane           integer NOT NULL GENERATED ALWAYS AS (
        (coalesce(pg_catalog.hashtextextended(key, '0'), id) & '{mask}')::integer) STORED,
    message_id     {p}message_id NOT NULL DEFAULT pg_catalog.encode(pg_catalog.set_bit(
        pg_catalog.set_bit(overlay(pg_catalog.uuid_send(pg_catalog.gen_random_uuid())
            PLACING substring(pg_catalog.int8send((extract(epoch FROM
                pg_catalog.clock_timestamp()) * 1000)::bigint) FROM 3)
            FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid,
    type           {p}message_type NOT NULL,
    type_version   {p}message_version NOT NULL DEFAULT '1',
    content_type   {p}message_content_type NOT NULL DEFAULT 'application/json',
    destination    {p}message_destination,
    source         {p}message_source,
    key            {p}message_key,
    tenant         {p}message_tenant NOT NULL DEFAULT '',
    correlation_id {p}message_correlation_id,
    causation_id   {p}message_causation_id,
    traceparent    {p}message_traceparent,
    tracestate     {p}message_tracestate,
    headers        {p}message_headers,
    body           {p}message_body NOT NULL,
    occurred_at    {p}message_occurred_at NOT NULL DEFAULT clock_timestamp(),
    expires_at     {p}message_expires_at,
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
    message_id     {p}message_id NOT NULL,
    type           {p}message_type NOT NULL,
    type_version   {p}message_version NOT NULL,
    content_type   {p}message_content_type NOT NULL,
    destination    {p}message_destination,
    source         {p}message_source,
    key            {p}message_key,
    tenant         {p}message_tenant NOT NULL,
    correlation_id {p}message_correlation_id,
    causation_id   {p}message_causation_id,
    traceparent    {p}message_traceparent,
    tracestate     {p}message_tracestate,
    headers        {p}message_headers,
    body           {p}message_body NOT NULL,
    occurred_at    {p}message_occurred_at NOT NULL,
    expires_at     {p}message_expires_at,
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
