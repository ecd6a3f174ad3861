-- The familiar columns, as views, and the way in for other languages.

-- One row for each message and reader that it is meant for; delayed ones under reader 1.
-- SELECT … WHERE reader = 1 is what the relay sees.
CREATE VIEW {p}outbox_state AS
SELECT s.reader, o.id AS log_id, o.lane, o.message_id, o.type, o.destination,
       CASE
           WHEN p.state = 'processing' THEN 'publishing'
           WHEN p.state = 'failed' AND p.attempts = 0 AND p.redriven_at IS NOT NULL THEN 'pending'
           WHEN p.state IS NOT NULL THEN p.state
           WHEN o.id > j.pos THEN 'pending'
           WHEN o.id = ANY (j.ids) THEN 'publishing'
           WHEN o.id = ANY (j.rest) THEN 'pending'
           WHEN o.id > j.rebase_id AND o.xid = ANY (j.pend) THEN 'pending'
           WHEN o.id > j.drain_pos AND o.xid = ANY (j.drain) THEN 'pending'
           ELSE 'published'
       END AS state,
       coalesce(p.attempts, 0) AS attempts,
       CASE WHEN p.state = 'failed' THEN p.next_attempt_at END AS next_attempt_at,
       CASE WHEN p.place IS NOT NULL THEN p.lock_token
            WHEN o.id = ANY (j.ids) THEN j.token END AS lock_token,
       CASE WHEN p.place IS NOT NULL THEN p.locked_until
            WHEN o.id = ANY (j.ids) THEN j.lease_until END AS locked_until,
       p.last_error, o.occurred_at
FROM {p}subscription AS s
JOIN {p}outbox AS o ON o.id > s.start_id OR o.xid = ANY (s.start_pend)
JOIN LATERAL (SELECT * FROM {p}outbox_claim AS c WHERE c.reader = s.reader AND c.lane = o.lane
              ORDER BY c.seq DESC LIMIT 1) AS j ON true
LEFT JOIN {p}outbox_parked AS p ON p.reader = s.reader AND p.log_id = o.id
WHERE CASE WHEN s.reader = 1
           THEN coalesce(o.destination NOT LIKE 'local://%',
                    (SELECT value <> 'local' FROM {p}setting WHERE name = 'default_transport'))
           ELSE coalesce(o.destination,
                    (SELECT value FROM {p}setting WHERE name = 'default_transport')
                    || '://topic/' || o.type) = ANY (s.destinations)
      END
UNION ALL
SELECT 1, log_id, NULL, message_id, type, destination, 'delayed', 0, next_attempt_at, NULL, NULL,
       NULL, occurred_at
FROM {p}outbox_parked WHERE reader = 0;

-- What each consumer has handled (published) or could not handle.
CREATE VIEW {p}inbox_state AS
SELECT tenant, consumer, message_id, type, destination,
       CASE
           WHEN state = 'processing' THEN 'publishing'
           WHEN state = 'failed' AND attempts = 0 AND redriven_at IS NOT NULL THEN 'pending'
           ELSE state
       END AS state,
       attempts,
       CASE WHEN state = 'failed' THEN next_attempt_at END AS next_attempt_at,
       lock_token, locked_until, last_error, occurred_at, NULL::timestamptz AS processed_at
FROM {p}inbox_parked
UNION ALL
SELECT tenant, consumer, message_id, NULL, NULL, 'published', NULL, NULL, NULL, NULL, NULL, NULL,
       processed_at
FROM {p}inbox;

-- Enqueue one message in the caller's transaction; the result is its id. deliver_at in the future
-- parks it as delayed; headers is a JSON object.
CREATE FUNCTION {p}enqueue(
    type text, body bytea, content_type text DEFAULT NULL, key text DEFAULT NULL,
    destination text DEFAULT NULL, headers text DEFAULT NULL, deliver_at timestamptz DEFAULT NULL,
    message_id uuid DEFAULT NULL, type_version bigint DEFAULT NULL, source text DEFAULT NULL,
    tenant text DEFAULT NULL, correlation_id text DEFAULT NULL, causation_id text DEFAULT NULL,
    traceparent text DEFAULT NULL, tracestate text DEFAULT NULL,
    occurred_at timestamptz DEFAULT NULL, expires_at timestamptz DEFAULT NULL)
RETURNS uuid
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
    v_id uuid := $8;
    v_place bigint;
BEGIN
    IF v_id IS NULL THEN
        v_id := encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid()) PLACING substring(
            int8send((extract(epoch FROM v_now) * 1000)::bigint) FROM 3) FROM 1 FOR 6), 52, 1), 53,
            1), 'hex')::uuid;
    END IF;
    IF $7 > v_now THEN
        v_place := nextval('{p}outbox_parked_place_seq');
        INSERT INTO {p}outbox_parked (place, reader, log_id, lane, message_id, type, type_version,
            content_type, destination, source, key, tenant, correlation_id, causation_id,
            traceparent, tracestate, headers, body, occurred_at, expires_at, state,
            next_attempt_at)
        VALUES (v_place, 0, v_place, -1, v_id, $1, coalesce($9, 1),
            coalesce($3, 'application/json'), $5, $10, $4, coalesce($11, ''), $12, $13, $14, $15,
            $6, $2, coalesce($16, v_now), $17, 'delayed', $7);
    ELSE
        INSERT INTO {p}outbox (message_id, type, type_version, content_type, destination, source,
            key, tenant, correlation_id, causation_id, traceparent, tracestate, headers, body,
            occurred_at, expires_at)
        VALUES (v_id, $1, coalesce($9, 1), coalesce($3, 'application/json'), $5, $10, $4,
            coalesce($11, ''), $12, $13, $14, $15, $6, $2, coalesce($16, v_now), $17);
    END IF;
    RETURN v_id;
END
$$;

-- The same for a body that is text.
CREATE FUNCTION {p}enqueue(
    type text, body text, content_type text DEFAULT NULL, key text DEFAULT NULL,
    destination text DEFAULT NULL, headers text DEFAULT NULL, deliver_at timestamptz DEFAULT NULL,
    message_id uuid DEFAULT NULL, type_version bigint DEFAULT NULL, source text DEFAULT NULL,
    tenant text DEFAULT NULL, correlation_id text DEFAULT NULL, causation_id text DEFAULT NULL,
    traceparent text DEFAULT NULL, tracestate text DEFAULT NULL,
    occurred_at timestamptz DEFAULT NULL, expires_at timestamptz DEFAULT NULL)
RETURNS uuid
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT {p}enqueue($1, convert_to($2, 'UTF8'), $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13,
                      $14, $15, $16, $17)
$$;

-- What the library calls on a host's connection, where it may prepare nothing: an INSERT whose plan the
-- session keeps. With the caller's rights: it can do no more than an INSERT of the caller's own.
-- Procedures, since CALL costs less than SELECT.
CREATE PROCEDURE {p}append(message_id uuid, type text, body bytea, occurred_at timestamptz, key text)
LANGUAGE plpgsql
AS $$
BEGIN
    INSERT INTO {p}outbox (message_id, type, body, occurred_at, key) VALUES ($1, $2, $3, $4, $5);
END
$$;

-- The same of all columns of a message.
CREATE PROCEDURE {p}append(
    message_id uuid, type text, type_version bigint, content_type text, destination text,
    source text, key text, tenant text, correlation_id text, causation_id text, traceparent text,
    tracestate text, headers text, body bytea, occurred_at timestamptz, expires_at timestamptz)
LANGUAGE plpgsql
AS $$
BEGIN
    INSERT INTO {p}outbox (message_id, type, type_version, content_type, destination, source, key,
        tenant, correlation_id, causation_id, traceparent, tracestate, headers, body, occurred_at,
        expires_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16);
END
$$;

-- The version of what other languages may rely on: enqueue, the message columns of outbox, the views.
CREATE FUNCTION {p}api_version() RETURNS integer
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$ SELECT 1 $$;
