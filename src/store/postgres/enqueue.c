/*
 * Enqueueing.
 *
 * Invariants: one statement, so all or none without a savepoint; a caller's id is looked for among
 * the rows of this very transaction, by its id, so that what a savepoint took back does not count;
 * rows get their ids in the order of the call; what is delayed is decided by the database's clock.
 */
#include "store/postgres/enqueue.h"

#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/text.h"
#include "store/postgres/row.h"
#include "store/postgres/value.h"

#define ORIGIN       "postgres.unit"
#define COLUMN_COUNT 18 /* the message's, deliver_at, is the id the caller's */

static const char SQL_ONE[] =
    "INSERT INTO {p}outbox (" PR__PG_MESSAGE_COLUMNS ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, "
    "$9, $10, $11, $12, $13, $14, $15, $16)";

#define UNNEST(i) "pg_catalog.unnest($" i "), "
#define INPUT                                                                                      \
    "ROWS FROM (" UNNEST("1") UNNEST("2") UNNEST("3") UNNEST("4") UNNEST("5") UNNEST("6")          \
        UNNEST("7") UNNEST("8") UNNEST("9") UNNEST("10") UNNEST("11") UNNEST("12") UNNEST("13")    \
            UNNEST("14") UNNEST("15") UNNEST("16") UNNEST(                                         \
                "17") "pg_catalog.unnest($18)) WITH ORDINALITY AS i (" PR__PG_MESSAGE_COLUMNS      \
                      ", deliver_at, caller_id, n)"

/* Without named statements the server would parse and plan an INSERT each time: procedures keep its
   plan. Most messages have few columns, and each costs something. */
static const char SQL_APPEND[] = "CALL {p}append($1, $2, $3, $4, $5)";
static const char SQL_APPEND_ALL[] =
    "CALL {p}append($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)";

/* Has it nothing but id, type, body, time and key? The rest is as by default. */
static bool is_slim(const pr_message *m)
{
    return m->type_version <= 1 && !m->destination && !m->source && pr__text_empty(m->tenant) &&
           !m->correlation_id && !m->causation_id && !m->traceparent && !m->tracestate &&
           !m->headers && m->expires_at_us == 0 &&
           (!m->content_type || pr__text_equal(m->content_type, PR_CONTENT_TYPE_JSON));
}

static pr_status append(pr__pg_conn *conn, const pr_message *m, pr_error *err)
{
    AUTO_PARAMS params = {.count = 0};
    if (!is_slim(m)) {
        pr__pg_add_message(&params, m, /* id_is_text= */ false);
        return pr__pg_exec(conn, SQL_APPEND_ALL, &params, NULL, err);
    }
    pr__pg_add_uuid(&params, m->id);
    pr__pg_add_text(&params, m->type);
    pr__pg_add_bytes(&params, m->body_size_bytes ? m->body : "", (size_t)m->body_size_bytes);
    pr__pg_add_moment(&params, m->occurred_at_us);
    pr__pg_add_text(&params, m->key);
    return pr__pg_exec(conn, SQL_APPEND, &params, NULL, err);
}

/* Nobody's id is the caller's and nothing is delayed: no row is read. */
static const char SQL_MANY[] = "INSERT INTO {p}outbox (" PR__PG_MESSAGE_COLUMNS
                               ") SELECT " PR__PG_MESSAGE_COLUMNS " FROM " INPUT " ORDER BY n";

#define SAME "i.n, o.type = i.type AND o.type_version = i.type_version AND o.body = i.body AS same"
static const char SQL_ANY[] =
    "WITH input AS MATERIALIZED (SELECT i.*, coalesce(deliver_at > now, false) AS delayed FROM "
    "(SELECT pg_catalog.clock_timestamp() AS now) AS c, " INPUT "), "
    "own AS MATERIALIZED (SELECT " SAME
    " FROM input AS i JOIN {p}outbox AS o ON o.xid = pg_catalog.pg_current_xact_id() AND "
    "o.message_id = i.message_id WHERE i.caller_id UNION ALL SELECT " SAME
    " FROM input AS i JOIN {p}outbox_parked AS o ON o.xid = pg_catalog.pg_current_xact_id() AND "
    "o.message_id = i.message_id AND o.reader = 0 WHERE i.caller_id), "
    "fresh AS MATERIALIZED (SELECT i.*, CASE WHEN delayed THEN "
    "pg_catalog.nextval('{p}outbox_parked_place_seq'::pg_catalog.regclass) END AS place FROM input "
    "AS i WHERE NOT EXISTS (SELECT FROM own WHERE NOT same) AND NOT EXISTS (SELECT FROM own WHERE "
    "own.n = i.n)), "
    "logged AS (INSERT INTO {p}outbox (" PR__PG_MESSAGE_COLUMNS ") SELECT " PR__PG_MESSAGE_COLUMNS
    " FROM fresh WHERE NOT delayed ORDER BY n), "
    "parked AS (INSERT INTO {p}outbox_parked (" PR__PG_MESSAGE_COLUMNS
    ", place, reader, log_id, lane, state, next_attempt_at) SELECT " PR__PG_MESSAGE_COLUMNS
    ", place, 0, place, -1, 'delayed', deliver_at FROM fresh WHERE delayed ORDER BY n) "
    "SELECT n, same FROM own ORDER BY same, n";

static bool same_content(const pr_message *a, const pr_message *b)
{
    uint32_t version_a = a->type_version ? a->type_version : 1;
    uint32_t version_b = b->type_version ? b->type_version : 1;
    return version_a == version_b && strcmp(a->type, b->type) == 0 &&
           a->body_size_bytes == b->body_size_bytes &&
           (a->body_size_bytes == 0 || memcmp(a->body, b->body, (size_t)a->body_size_bytes) == 0);
}

static pr_status conflict(const pr__enqueue *one, size_t index, size_t count, pr_error *err)
{
    pr_status status = pr__fail(err, PR_E_CONFLICT, ORIGIN,
                                "id '%s' stands in this unit with other content: use another id",
                                one->message->id);
    if (count > 1)
        pr__error_context(err, "message %zu", index);
    return status;
}

/* An id that comes twice in one call: a table of the indexes seen so far, by the id's bytes. */
static pr_status find_twins(pr__enqueue *messages, size_t count, pr_error *err)
{
    size_t capacity = 16;
    while (capacity < count * 2)
        capacity *= 2;
    AUTO(void) memory = pr__alloc_array(capacity, sizeof(size_t));
    if (!memory)
        return pr__fail_nomem(err, ORIGIN);
    size_t *table = memory;
    for (size_t i = 0; i < count; i++) {
        uint8_t id[16];
        if (!messages[i].caller_id || !pr__uuid_parse(messages[i].message->id, id))
            continue;
        size_t at = (size_t)pr__quick_hash(id, sizeof id, 0) & (capacity - 1);
        for (; table[at] != 0; at = (at + 1) & (capacity - 1)) {
            const pr_message *other = messages[table[at] - 1].message;
            uint8_t other_id[16];
            if (!pr__uuid_parse(other->id, other_id) || memcmp(id, other_id, sizeof id) != 0)
                continue;
            if (!same_content(other, messages[i].message))
                return conflict(&messages[i], i, count, err);
            messages[i].duplicate = true;
            break;
        }
        if (table[at] == 0)
            table[at] = i + 1;
    }
    return PR_OK;
}

typedef struct column_set {
    pr__pg_array arrays[COLUMN_COUNT];
} column_set;

static void begin_columns(column_set *set)
{
    static const Oid types[COLUMN_COUNT] = {
        PR__PG_UUID,        PR__PG_TEXT,        PR__PG_INT8, PR__PG_TEXT,  PR__PG_TEXT,
        PR__PG_TEXT,        PR__PG_TEXT,        PR__PG_TEXT, PR__PG_TEXT,  PR__PG_TEXT,
        PR__PG_TEXT,        PR__PG_TEXT,        PR__PG_TEXT, PR__PG_BYTEA, PR__PG_TIMESTAMPTZ,
        PR__PG_TIMESTAMPTZ, PR__PG_TIMESTAMPTZ, PR__PG_BOOL};
    for (size_t i = 0; i < COLUMN_COUNT; i++)
        pr__pg_array_init(&set->arrays[i], types[i]);
}

static void end_columns(column_set *set)
{
    for (size_t i = 0; i < COLUMN_COUNT; i++)
        pr__pg_array_done(&set->arrays[i]);
}

static void add_columns(column_set *set, const pr__enqueue *one)
{
    const pr_message *m = one->message;
    pr__pg_array *at = set->arrays;
    pr__pg_array_uuid(at++, m->id);
    pr__pg_array_text(at++, m->type);
    pr__pg_array_int(at++, m->type_version ? m->type_version : 1);
    pr__pg_array_text(at++, m->content_type ? m->content_type : PR_CONTENT_TYPE_JSON);
    pr__pg_array_text(at++, m->destination);
    pr__pg_array_text(at++, m->source);
    pr__pg_array_text(at++, m->key);
    pr__pg_array_text(at++, m->tenant ? m->tenant : "");
    pr__pg_array_text(at++, m->correlation_id);
    pr__pg_array_text(at++, m->causation_id);
    pr__pg_array_text(at++, m->traceparent);
    pr__pg_array_text(at++, m->tracestate);
    pr__pg_array_text(at++, m->headers);
    pr__pg_array_bytes(at++, m->body_size_bytes ? m->body : "", (size_t)m->body_size_bytes);
    pr__pg_array_instant(at++, m->occurred_at_us);
    pr__pg_array_instant(at++, m->expires_at_us);
    pr__pg_array_instant(at++, m->deliver_at_us);
    pr__pg_array_bool(at, one->caller_id);
}

/* Run the statement for all that are no twins, and mark what stood before. */
static pr_status insert_all(pr__pg_conn *conn, pr__enqueue *messages, size_t count, bool plain,
                            column_set *set, size_t *sent, pr_error *err)
{
    AUTO_PARAMS params = {.count = 0};
    AUTO_RESULT result = NULL;
    size_t sent_count = 0;
    for (size_t i = 0; i < count; i++) {
        if (messages[i].duplicate)
            continue;
        add_columns(set, &messages[i]);
        sent[sent_count++] = i;
    }
    for (size_t i = 0; i < COLUMN_COUNT; i++)
        pr__pg_add_array(&params, &set->arrays[i]);
    TRY(pr__pg_exec(conn, plain ? SQL_MANY : SQL_ANY, &params, &result, err));
    for (int row = 0; !plain && row < PQntuples(result); row++) {
        size_t n = (size_t)pr__pg_value_int(result, row, 0) - 1;
        size_t index = sent[n < sent_count ? n : 0];
        if (!pr__pg_value_int(result, row, 1))
            return conflict(&messages[index], index, count, err);
        messages[index].duplicate = true;
    }
    return PR_OK;
}

pr_status pr__pg_enqueue(pr__pg_conn *conn, pr__enqueue *messages, size_t count, pr_error *err)
{
    bool callers = false;
    bool plain = true;
    for (size_t i = 0; i < count; i++) {
        messages[i].duplicate = false;
        callers = callers || messages[i].caller_id;
        plain = plain && !messages[i].caller_id && messages[i].message->deliver_at_us == 0;
    }
    if (count == 1 && plain && !conn->named)
        return append(conn, messages->message, err);
    if (count == 1 && plain) {
        AUTO_PARAMS params = {.count = 0};
        pr__pg_add_message(&params, messages->message, /* id_is_text= */ false);
        return pr__pg_exec(conn, SQL_ONE, &params, NULL, err);
    }
    if (callers && count > 1)
        TRY(find_twins(messages, count, err));
    column_set set;
    AUTO(void) sent = pr__alloc_array(count, sizeof(size_t));
    if (!sent)
        return pr__fail_nomem(err, ORIGIN);
    begin_columns(&set);
    pr_status status = insert_all(conn, messages, count, plain, &set, sent, err);
    end_columns(&set);
    return status;
}
