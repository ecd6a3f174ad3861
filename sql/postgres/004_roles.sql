-- Who may enqueue. The role {r} can do that and nothing else: grant it to the logins of producers.
-- It is made where the migrating role may make roles; else a DBA makes it and runs the grants below
-- (postroom migrate --print shows them).

REVOKE ALL ON FUNCTION {p}enqueue(text, bytea, text, text, text, text, timestamptz, uuid, bigint, text, text, text,
        text, text, text, timestamptz, timestamptz) FROM PUBLIC;

REVOKE ALL ON FUNCTION {p}enqueue(text, text, text, text, text, text, timestamptz, uuid, bigint, text, text, text,
        text, text, text, timestamptz, timestamptz) FROM PUBLIC;

REVOKE ALL ON FUNCTION {p}api_version() FROM PUBLIC;

-- Whoever may insert into the log may do so by these.
GRANT EXECUTE ON PROCEDURE {p}append(uuid, text, bytea, timestamptz, text) TO PUBLIC;

GRANT EXECUTE ON PROCEDURE {p}append(uuid, text, bigint, text, text, text, text, text, text, text, text,
        text, text, bytea, timestamptz, timestamptz) TO PUBLIC;

DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = '{r}')
       AND EXISTS (SELECT FROM pg_catalog.pg_roles
                   WHERE rolname = current_user AND (rolcreaterole OR rolsuper)) THEN
        BEGIN
            CREATE ROLE {r} NOLOGIN;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL;  -- another database of the cluster made it just now
        END;
    END IF;
    IF EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = '{r}') THEN
        GRANT USAGE ON SCHEMA {s} TO {r};
        GRANT INSERT (message_id, type, type_version, content_type, destination, source, key,
            tenant, correlation_id, causation_id, traceparent, tracestate, headers, body,
            occurred_at, expires_at) ON {p}outbox TO {r};
        GRANT EXECUTE ON FUNCTION {p}enqueue(text, bytea, text, text, text, text, timestamptz, uuid, bigint, text, text, text,
        text, text, text, timestamptz, timestamptz) TO {r};
        GRANT EXECUTE ON FUNCTION {p}enqueue(text, text, text, text, text, text, timestamptz, uuid, bigint, text, text, text,
        text, text, text, timestamptz, timestamptz) TO {r};
        GRANT EXECUTE ON FUNCTION {p}api_version() TO {r};
    END IF;
END
$$;
