-- The familiar columns, as views, and the way in for other languages.

-- One row for each message and reader that it is meant for; delayed ones under reader 1.
-- SELECT … WHERE reader = 1 is what the relay sees.
CREATE VIEW {p}_outbox_state AS
SELECT s.reader, o.id AS log_id, o.lane, o.message_id, o.type, o.destination,
       CASE
           WHEN p.state = 'processing' THEN 'publishing'
           WHEN p.state = 'failed' AND p.attempts = 0 AND p.redriven_at IS NOT NULL THEN 'pending'
           WHEN p.state IS NOT NULL THEN p.state
           WHEN o.id > j.pos THEN 'pending'
           WHEN o.id < j.low THEN 'published'
           WHEN o.id IN (SELECT value FROM json_each(j.ids)) THEN 'publishing'
           WHEN o.id IN (SELECT value FROM json_each(j.rest)) THEN 'pending'
           ELSE 'published'
       END AS state,
       coalesce(p.attempts, 0) AS attempts,
       CASE WHEN p.state = 'failed' THEN p.next_attempt_at END AS next_attempt_at,
       CASE WHEN p.place IS NOT NULL THEN p.lock_token
            WHEN o.id BETWEEN j.low AND j.pos AND o.id IN (SELECT value FROM json_each(j.ids))
            THEN j.token END AS lock_token,
       CASE WHEN p.place IS NOT NULL THEN p.locked_until
            WHEN o.id BETWEEN j.low AND j.pos AND o.id IN (SELECT value FROM json_each(j.ids))
            THEN j.lease_until END AS locked_until,
       p.last_error, o.occurred_at
-- CROSS JOIN fixes the order of the loops: the journal is looked up for each message. Left to itself
-- SQLite goes through the whole journal, and through a lane for each of its rows.
FROM {p}_subscription AS s
CROSS JOIN {p}_outbox AS o ON o.id > s.start_id
CROSS JOIN {p}_outbox_claim AS j ON j.reader = s.reader AND j.lane = o.lane
    AND j.seq = (SELECT max(seq) FROM {p}_outbox_claim WHERE reader = s.reader AND lane = o.lane)
LEFT JOIN {p}_outbox_parked AS p ON p.reader = s.reader AND p.log_id = o.id
WHERE CASE WHEN s.reader = 1
           THEN coalesce(o.destination NOT GLOB 'local://*',
                    (SELECT value <> 'local' FROM {p}_setting WHERE name = 'default_transport'))
           ELSE coalesce(o.destination,
                    (SELECT value || '://topic/' || o.type FROM {p}_setting
                     WHERE name = 'default_transport'))
                IN (SELECT value FROM json_each(s.destinations))
      END
UNION ALL
SELECT 1, log_id, NULL, message_id, type, destination, 'delayed', 0, next_attempt_at, NULL, NULL,
       NULL, occurred_at
FROM {p}_outbox_parked WHERE reader = 0;

-- What each consumer has handled (published) or could not handle.
CREATE VIEW {p}_inbox_state AS
SELECT tenant, consumer, message_id, type, destination,
       CASE
           WHEN state = 'processing' THEN 'publishing'
           WHEN state = 'failed' AND attempts = 0 AND redriven_at IS NOT NULL THEN 'pending'
           ELSE state
       END AS state,
       attempts,
       CASE WHEN state = 'failed' THEN next_attempt_at END AS next_attempt_at,
       lock_token, locked_until, last_error, occurred_at, NULL AS processed_at
FROM {p}_inbox_parked
UNION ALL
SELECT tenant, consumer, message_id, NULL, NULL, 'published', NULL, NULL, NULL, NULL, NULL, NULL,
       processed_at
FROM {p}_inbox;

-- INSERT INTO {p}_enqueue (type, body, …): every other column may be left out. deliver_at in the
-- future parks the message as delayed; headers is a JSON object; body may be text.
CREATE VIEW {p}_enqueue (type, body, content_type, key, destination, headers, deliver_at,
                         message_id, type_version, source, tenant, correlation_id, causation_id,
                         traceparent, tracestate, occurred_at, expires_at) AS
SELECT type, body, content_type, key, destination, headers, NULL, message_id, type_version, source,
       tenant, correlation_id, causation_id, traceparent, tracestate, occurred_at, expires_at
FROM {p}_outbox;

CREATE TRIGGER {p}_enqueue_insert INSTEAD OF INSERT ON {p}_enqueue
BEGIN
    INSERT INTO {p}_outbox (message_id, type, type_version, content_type, destination, source, key,
        tenant, correlation_id, causation_id, traceparent, tracestate, headers, body, occurred_at,
        expires_at)
    SELECT coalesce(lower(NEW.message_id), lower(
               substr(printf('%012x', now / 1000), 1, 8) || '-' ||
               substr(printf('%012x', now / 1000), 9, 4) || '-7' ||
               substr(hex(randomblob(2)), 2) || '-' ||
               substr('89ab', 1 + (random() & 3), 1) || substr(hex(randomblob(2)), 2) || '-' ||
               hex(randomblob(6)))),
           NEW.type, coalesce(NEW.type_version, 1), coalesce(NEW.content_type, 'application/json'),
           NEW.destination, NEW.source, NEW.key, coalesce(NEW.tenant, ''), NEW.correlation_id,
           NEW.causation_id, NEW.traceparent, NEW.tracestate, NEW.headers, CAST(NEW.body AS BLOB),
           coalesce(NEW.occurred_at, now), NEW.expires_at
    FROM (SELECT CAST(strftime('%s', 'now') AS INTEGER) * 1000000
                 + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER) * 1000 AS now)
    WHERE NEW.deliver_at IS NULL OR NEW.deliver_at <= now;

    INSERT INTO {p}_outbox_parked (reader, log_id, lane, message_id, type, type_version,
        content_type, destination, source, key, tenant, correlation_id, causation_id, traceparent,
        tracestate, headers, body, occurred_at, expires_at, state, next_attempt_at, parked_at)
    -- its own place, foretold: within one statement the sequence is not written yet
    SELECT 0, 1 + max(coalesce((SELECT seq FROM sqlite_sequence
                                WHERE name = '{p}_outbox_parked'), 0),
                      coalesce((SELECT max(place) FROM {p}_outbox_parked), 0)),
           -1,
           coalesce(lower(NEW.message_id), lower(
               substr(printf('%012x', now / 1000), 1, 8) || '-' ||
               substr(printf('%012x', now / 1000), 9, 4) || '-7' ||
               substr(hex(randomblob(2)), 2) || '-' ||
               substr('89ab', 1 + (random() & 3), 1) || substr(hex(randomblob(2)), 2) || '-' ||
               hex(randomblob(6)))),
           NEW.type, coalesce(NEW.type_version, 1), coalesce(NEW.content_type, 'application/json'),
           NEW.destination, NEW.source, NEW.key, coalesce(NEW.tenant, ''), NEW.correlation_id,
           NEW.causation_id, NEW.traceparent, NEW.tracestate, NEW.headers, CAST(NEW.body AS BLOB),
           coalesce(NEW.occurred_at, now), NEW.expires_at, 'delayed', NEW.deliver_at, now
    FROM (SELECT CAST(strftime('%s', 'now') AS INTEGER) * 1000000
                 + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER) * 1000 AS now)
    WHERE NEW.deliver_at > now;
END;
