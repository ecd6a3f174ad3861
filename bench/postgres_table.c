/*
 * The usual outbox table.
 *
 * At its best: the index of what is to be done is a partial one, ids are in the order of time, the
 * statements are prepared, and publishing batch k and claiming batch k + 1 are one statement.
 */
#include "postgres_table.h"

#include <string.h>

#include "database.h"
#include "postgres.h"

#include "base/text.h"

static const char SQL_CREATE[] =
    "CREATE TABLE usual (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "
    "message_id uuid NOT NULL UNIQUE DEFAULT (lpad(to_hex((extract(epoch FROM clock_timestamp()) "
    "* 1000)::bigint), 12, '0') || '7' || substr(md5(random()::text), 1, 19))::uuid, "
    "type text NOT NULL, type_version integer NOT NULL DEFAULT 1, "
    "content_type text NOT NULL DEFAULT 'application/json', key text, body bytea NOT NULL, "
    "occurred_at timestamptz NOT NULL DEFAULT clock_timestamp(), "
    "status smallint NOT NULL DEFAULT 0, attempts integer NOT NULL DEFAULT 0, "
    "available_at timestamptz NOT NULL DEFAULT now(), locked_until timestamptz, owner text, "
    "published_at timestamptz);"
    "CREATE INDEX usual_pending ON usual (id) WHERE status = 0";

#define SQL_PUBLISH                                                                                \
    "UPDATE usual SET status = 2, published_at = clock_timestamp() WHERE id = ANY ($1::bigint[]) " \
    "AND status = 1"
#define SQL_TURN                                                                                   \
    "WITH done AS (" SQL_PUBLISH "), next AS MATERIALIZED (SELECT id FROM usual WHERE status = 0 " \
    "AND available_at <= now() ORDER BY id LIMIT 500 FOR UPDATE SKIP LOCKED) "                     \
    "UPDATE usual AS u SET status = 1, attempts = u.attempts + 1, owner = 'bench', "               \
    "locked_until = now() + interval '30 s' FROM next WHERE u.id = next.id "                       \
    "RETURNING u.id, u.message_id, u.type, u.type_version, u.content_type, u.key, u.body, "        \
    "u.occurred_at"

void bench_table_create(PGconn *db)
{
    bench_pg_run(db, SQL_CREATE);
}

void bench_table_fill(PGconn *db, uint64_t count)
{
    char sql[400];
    for (uint64_t done = 0; done < count; done += 5000) {
        uint64_t chunk = count - done < 5000 ? count - done : 5000;
        pr__format(sql, sizeof sql,
                   "INSERT INTO usual (type, key, body) SELECT '" BENCH_PG_TYPE
                   "', 'order-' || i %% 10000, " BENCH_PG_BODY
                   " FROM generate_series(%llu, %llu) AS i",
                   (unsigned long long)done, (unsigned long long)(done + chunk - 1));
        bench_pg_run(db, sql);
    }
}

void bench_table_open(bench_table_relay *relay, const char *address)
{
    *relay = (bench_table_relay){.db = bench_pg_open(address), .ids = "{}"};
    PQclear(bench_pg_checked(relay->db, PQprepare(relay->db, "turn", SQL_TURN, 1, NULL), "turn"));
    PQclear(bench_pg_checked(relay->db, PQprepare(relay->db, "publish", SQL_PUBLISH, 1, NULL),
                             "publish"));
}

void bench_table_close(bench_table_relay *relay)
{
    PQfinish(relay->db);
}

static int64_t read_int64(const char *bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < 8; i++)
        value = value << 8 | (unsigned char)bytes[i];
    return (int64_t)value;
}

/* Hold what was claimed, and touch every column of it. */
static void hold(bench_table_relay *relay, const PGresult *result)
{
    size_t used = 1;
    relay->held = PQntuples(result);
    for (int row = 0; row < relay->held; row++) {
        for (int column = 0; column < PQnfields(result); column++)
            if (PQgetlength(result, row, column) > 0)
                relay->touched += (unsigned char)PQgetvalue(result, row, column)[0];
        pr__format(relay->ids + used, sizeof relay->ids - used, "%s%lld", row ? "," : "",
                   (long long)read_int64(PQgetvalue(result, row, 0)));
        used += strlen(relay->ids + used);
    }
    relay->ids[0] = '{';
    relay->ids[used] = '}';
    relay->ids[used + 1] = '\0';
}

static PGresult *execute(bench_table_relay *relay, const char *statement, const char *ids)
{
    const char *values[] = {ids};
    return bench_pg_checked(
        relay->db, PQexecPrepared(relay->db, statement, 1, values, NULL, NULL, /* binary */ 1),
        statement);
}

void bench_table_turn(bench_table_relay *relay)
{
    PGresult *result = execute(relay, "turn", relay->ids);
    relay->published += (uint64_t)relay->held;
    hold(relay, result);
    PQclear(result);
}

void bench_table_claim(bench_table_relay *relay)
{
    PGresult *result = execute(relay, "turn", "{}");
    hold(relay, result);
    PQclear(result);
}

void bench_table_publish(bench_table_relay *relay)
{
    if (relay->held == 0)
        return;
    PQclear(execute(relay, "publish", relay->ids));
    relay->published += (uint64_t)relay->held;
    relay->held = 0;
}

void bench_table_drain(void *item)
{
    bench_table_relay *relay = item;
    do
        bench_table_turn(relay);
    while (relay->held > 0);
}
