/*
 * The connection: opening, statements, waiting with a deadline.
 *
 * Invariants: no wait is without an end. Several statements may share a round trip; they are run in
 * order, and none after one that failed, whether they do or not.
 *
 * Must not know: the tables.
 */
#include "store/postgres/connection.h"

#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <libpq-events.h>

#include "base/assert.h"
#include "base/buffer.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"
#include "base/time.h"
#include "store/postgres/failure.h"
#include "store/postgres/value.h"

#define ORIGIN              "postgres"
#define SERVER_MIN          130000
#define SETTINGS_COUNT      16
#define STATEMENT_NAME_SIZE 32
#define KEEPALIVE_IDLE      "15" /* seconds until a silent peer is asked, then 3 times every 5 */

void pr__pg_conn_init(pr__pg_conn *conn, const char *schema, const char *prefix,
                      const pr__pg_limits *limits, bool named)
{
    memset(conn, 0, sizeof *conn);
    pr__format(conn->schema, sizeof conn->schema, "%s", schema);
    pr__format(conn->prefix, sizeof conn->prefix, "%s", prefix);
    pr__format(conn->qualifier, sizeof conn->qualifier, "\"%s\".%s", schema, prefix);
    conn->limits = *limits;
    conn->named = named;
}

/* libpq prints notices on standard error unless somebody takes them. */
static void ignore_notice(void *user, const PGresult *result)
{
    (void)user;
    (void)result;
}

/* libpq shows every result here, those of other code on our connection too. */
static int see_result(PGEventId id, void *info, void *user)
{
    pr__pg_conn *conn = user;
    if (id != PGEVT_RESULTCREATE || !conn->watching)
        return 1;
    const char *tag = PQcmdStatus(((PGEventResultCreate *)info)->result);
    if (pr__text_equal(tag, "COMMIT") || pr__text_equal(tag, "PREPARE TRANSACTION"))
        conn->committed = true;
    if (pr__text_equal(tag, "BEGIN") || pr__text_equal(tag, "START TRANSACTION"))
        conn->begun = true;
    return 1;
}

typedef struct keywords {
    const char *names[SETTINGS_COUNT];
    const char *values[SETTINGS_COUNT];
    int count;
} keywords;

static void set(keywords *words, const char *name, const char *value)
{
    words->names[words->count] = name;
    words->values[words->count++] = value;
}

static pr_status check_server(pr__pg_conn *conn, pr_error *err)
{
    int version = PQserverVersion(conn->pg);
    const char *encoding = PQparameterStatus(conn->pg, "server_encoding");
    if (version < SERVER_MIN)
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "the server is version %d, at least 13 is needed: upgrade it",
                        version / 10000);
    if (!pr__text_equal(encoding, "UTF8"))
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "the database's encoding is %s: use a database in UTF8",
                        encoding ? encoding : "not known");
    return PR_OK;
}

/* What the user's string says goes before ours; the encoding alone is not up for choice. */
static PGconn *connect_to(const char *conninfo, int64_t connect_ms, int64_t timeout_ms)
{
    char seconds[24];
    char user_timeout[24];
    keywords words = {.count = 0};
    int64_t whole = (connect_ms + 999) / 1000;
    pr__format(seconds, sizeof seconds, "%lld", (long long)(whole < 2 ? 2 : whole));
    pr__format(user_timeout, sizeof user_timeout, "%lld", (long long)timeout_ms);
    set(&words, "fallback_application_name", "postroom");
    if (!getenv("PGCONNECT_TIMEOUT"))
        set(&words, "connect_timeout", seconds);
    set(&words, "keepalives_idle", KEEPALIVE_IDLE);
    set(&words, "keepalives_interval", "5");
    set(&words, "keepalives_count", "3");
    set(&words, "tcp_user_timeout", user_timeout);
    if (!pr__text_empty(conninfo))
        set(&words, "dbname", conninfo);
    set(&words, "client_encoding", "UTF8");
    set(&words, NULL, NULL);
    return PQconnectdbParams(words.names, words.values, /* expand_dbname= */ 1);
}

/* The text of libpq about a string that it cannot read quotes from it, and so from a password. */
static bool readable(const char *conninfo)
{
    if (pr__text_empty(conninfo))
        return true;
    bool pairs = strchr(conninfo, '=') || strstr(conninfo, "://");
    PQconninfoOption *options = pairs ? PQconninfoParse(conninfo, NULL) : NULL;
    bool good = !pairs || options;
    PQconninfoFree(options);
    return good;
}

pr_status pr__pg_conn_open(pr__pg_conn *conn, const char *conninfo, pr_error *err)
{
    pr__pg_conn_drop(conn);
    if (!readable(conninfo))
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "the connection string cannot be read: give a postgresql:// address or "
                        "keyword=value pairs");
    conn->pg = connect_to(conninfo, conn->limits.connect_ms, conn->limits.timeout_ms);
    if (!conn->pg)
        return pr__fail_nomem(err, ORIGIN);
    if (PQstatus(conn->pg) != CONNECTION_OK) {
        pr_status status = pr__pg_fail_connection(conn, NULL, err);
        pr__pg_conn_drop(conn);
        return status;
    }
    PQsetNoticeReceiver(conn->pg, ignore_notice, NULL);
    if (!PQregisterEventProc(conn->pg, see_result, "postroom", conn)) {
        pr__pg_conn_drop(conn);
        return pr__fail_nomem(err, ORIGIN);
    }
    conn->generation++;
    pr_status status = check_server(conn, err);
    if (status == PR_OK && PQsetnonblocking(conn->pg, 1) != 0)
        status = pr__pg_fail_connection(conn, NULL, err);
    if (status != PR_OK)
        pr__pg_conn_drop(conn);
    return status;
}

void pr__pg_conn_borrow(pr__pg_conn *conn, PGconn *pg, const pr__pg_conn *like)
{
    pr__pg_conn_init(conn, like->schema, like->prefix, &like->limits, /* named= */ false);
    conn->pg = pg;
    conn->borrowed = true;
}

void pr__pg_conn_forget(pr__pg_conn *conn)
{
    conn->statement_count = 0;
    conn->statement_epoch++;
    memset(conn->statements, 0, sizeof conn->statements);
}

void pr__pg_conn_drop(pr__pg_conn *conn)
{
    if (conn->borrowed) {
        conn->aborted = true;
        return;
    }
    conn->watching = false;
    PQfinish(conn->pg);
    conn->pg = NULL;
    pr__pg_conn_forget(conn);
}

char *pr__pg_expand(const pr__pg_conn *conn, const char *sql)
{
    AUTO_BUFFER text = PR_BUFFER_INIT;
    for (const char *at = sql;;) {
        const char *next = strchr(at, '{');
        if (!next) {
            pr__buffer_append_text(&text, at);
            return pr__buffer_take(&text);
        }
        pr__buffer_append(&text, at, (size_t)(next - at));
        if (next[1] == 'p' && next[2] == '}')
            pr__buffer_append_text(&text, conn->qualifier);
        else if (next[1] == 'n' && next[2] == '}')
            pr__buffer_append_text(&text, conn->prefix);
        else
            pr__buffer_append(&text, next, 1);
        at = next + (next[1] != '\0' && next[2] == '}' && strchr("pn", next[1]) ? 3 : 1);
    }
}

void pr__pg_with_limit(const char *sql, uint32_t limit, char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (const char *at = sql; *at && used + 1 < size;) {
        const char *next = strstr(at, "{l}");
        size_t part = next ? (size_t)(next - at) : strlen(at);
        pr__format(out + used, size - used, "%.*s", (int)part, at);
        used += strlen(out + used);
        if (!next)
            break;
        pr__format(out + used, size - used, "%u", limit);
        used += strlen(out + used);
        at = next + 3;
    }
    pr_assert(used + 1 < size); /* half a statement could mean something else */
}

/* ---- waiting ---- */

/* Wait until the connection is ready to be read, or written when something waits to be sent. */
static bool wait_ready(pr__pg_conn *conn, bool sending, int64_t until_us)
{
    int64_t left_us = until_us - pr__monotonic_us();
    if (left_us <= 0)
        return false;
    struct pollfd fd = {.fd = PQsocket(conn->pg), .events = POLLIN};
    if (sending)
        fd.events |= POLLOUT;
    int64_t left_ms = (left_us + 999) / 1000;
    (void)poll(&fd, 1, (int)(left_ms > 60000 ? 60000 : left_ms));
    return true;
}

/* The next result, NULL at the end; *ret_status says what went wrong in waiting for it. */
static PGresult *next_result(pr__pg_conn *conn, int64_t until_us, pr_status *ret_status,
                             pr_error *err)
{
    for (;;) {
        int unsent = PQflush(conn->pg);
        bool lost = unsent < 0;
        if (!lost && !PQisBusy(conn->pg))
            return PQgetResult(conn->pg);
        if (!lost && !wait_ready(conn, unsent > 0, until_us)) {
            *ret_status = pr__pg_fail_deadline(conn, conn->limits.timeout_ms, err);
            return NULL;
        }
        if (lost || PQconsumeInput(conn->pg) == 0) {
            if (!PQisBusy(conn->pg)) /* what it said last may be an error with its code */
                return PQgetResult(conn->pg);
            *ret_status = pr__pg_fail_connection(conn, NULL, err);
            return NULL;
        }
    }
}

static bool failed(const PGresult *result)
{
    switch (PQresultStatus(result)) {
    case PGRES_EMPTY_QUERY:
    case PGRES_COMMAND_OK:
    case PGRES_TUPLES_OK:
    case PGRES_SINGLE_TUPLE:
    case PGRES_PIPELINE_SYNC:
        return false;
    case PGRES_COPY_OUT:
    case PGRES_COPY_IN:
    case PGRES_COPY_BOTH:
    case PGRES_BAD_RESPONSE:
    case PGRES_NONFATAL_ERROR:
    case PGRES_FATAL_ERROR:
    case PGRES_PIPELINE_ABORTED:
        return true;
    }
    return true;
}

/* All results of what was sent: the first error, else the last one. */
static pr_status receive(pr__pg_conn *conn, PGresult **ret_result, pr_error *err)
{
    AUTO_RESULT kept = NULL;
    pr_status status = PR_OK;
    int64_t until_us = pr__monotonic_us() + conn->limits.timeout_ms * 1000;
    for (;;) {
        PGresult *result = next_result(conn, until_us, &status, err);
        if (!result)
            break;
        if (kept && failed(kept)) {
            PQclear(result);
            continue;
        }
        PQclear(kept);
        kept = result;
    }
    TRY(status);
    if (!kept)
        return pr__pg_fail_connection(conn, NULL, err);
    if (failed(kept)) {
        status = pr__pg_fail_result(conn, kept, err);
        if (conn->pg && PQstatus(conn->pg) != CONNECTION_OK)
            pr__pg_conn_drop(conn);
        return status;
    }
    if (ret_result)
        *ret_result = TAKE(kept);
    return PR_OK;
}

pr_status pr__pg_usable(pr__pg_conn *conn, pr_error *err)
{
    if (conn->borrowed && conn->aborted)
        return pr__fail_retry(err, PR_E_BACKEND, PR_RETRY_RECONNECT, ORIGIN,
                              "the host's connection gave no answer before: close it");
    if (conn->pg && PQstatus(conn->pg) == CONNECTION_OK)
        return PR_OK;
    pr__pg_conn_drop(conn);
    return pr__fail_retry(err, PR_E_BACKEND, PR_RETRY_RECONNECT, ORIGIN,
                          "there is no connection to the server");
}

/* Our waits need a connection that does not block; the host's is put back as it was. */
static pr_status finish(pr__pg_conn *conn, int sent, int was_nonblocking, PGresult **ret_result,
                        pr_error *err)
{
    pr_status status =
        sent ? receive(conn, ret_result, err) : pr__pg_fail_connection(conn, NULL, err);
    if (conn->borrowed && !was_nonblocking && !conn->aborted)
        PQsetnonblocking(conn->pg, 0);
    return status;
}

static int make_nonblocking(pr__pg_conn *conn)
{
    int was = PQisnonblocking(conn->pg);
    if (!was)
        PQsetnonblocking(conn->pg, 1);
    return was;
}

pr_status pr__pg_script(pr__pg_conn *conn, const char *text, PGresult **ret_result, pr_error *err)
{
    TRY(pr__pg_usable(conn, err));
    int was = make_nonblocking(conn);
    return finish(conn, PQsendQuery(conn->pg, text), was, ret_result, err);
}

/* ---- statements ---- */

#define STATEMENTS_FULL (PR__PG_STATEMENTS_MAX * 3 / 4)

static uint64_t *find_statement(pr__pg_conn *conn, uint64_t hash)
{
    size_t mask = PR__PG_STATEMENTS_MAX - 1;
    size_t i = (size_t)hash & mask;
    while (conn->statements[i] != 0 && conn->statements[i] != hash)
        i = (i + 1) & mask;
    return &conn->statements[i];
}

static uint64_t hash_of(const char *text)
{
    return pr__quick_hash(text, strlen(text), 0) | 1;
}

static void name_statement(const pr__pg_conn *conn, uint64_t hash, char name[STATEMENT_NAME_SIZE])
{
    pr__format(name, STATEMENT_NAME_SIZE, "pr_%u_%016llx", conn->statement_epoch,
               (unsigned long long)hash);
}

/* Prepare the text under a name of its own unless it is; *ret_named false: no room for more. */
static pr_status prepare(pr__pg_conn *conn, const char *text, const pr__pg_params *params,
                         char name[STATEMENT_NAME_SIZE], bool *ret_named, pr_error *err)
{
    uint64_t hash = hash_of(text);
    uint64_t *slot = find_statement(conn, hash);
    name_statement(conn, hash, name);
    *ret_named = true;
    if (*slot == hash)
        return PR_OK;
    if (conn->statement_count >= STATEMENTS_FULL) {
        *ret_named = false;
        return PR_OK;
    }
    int sent = PQsendPrepare(conn->pg, name, text, params ? params->count : 0,
                             params ? params->types : NULL);
    TRY(finish(conn, sent, 1, NULL, err));
    *slot = hash;
    conn->statement_count++;
    return PR_OK;
}

pr_status pr__pg_exec(pr__pg_conn *conn, const char *sql, const pr__pg_params *params,
                      PGresult **ret_result, pr_error *err)
{
    if (params && params->failed)
        return pr__fail_nomem(err, ORIGIN);
    TRY(pr__pg_usable(conn, err));
    AUTO(char) text = pr__pg_expand(conn, sql);
    if (!text)
        return pr__fail_nomem(err, ORIGIN);
    int count = params ? params->count : 0;
    char name[STATEMENT_NAME_SIZE];
    bool named = false;
    if (conn->named)
        TRY(prepare(conn, text, params, name, &named, err));
    int was = make_nonblocking(conn);
    int sent =
        named ? PQsendQueryPrepared(conn->pg, name, count, params ? params->values : NULL,
                                    params ? params->lengths : NULL,
                                    params ? params->formats : NULL, /* resultFormat= */ 1)
              : PQsendQueryParams(conn->pg, text, count, params ? params->types : NULL,
                                  params ? params->values : NULL, params ? params->lengths : NULL,
                                  params ? params->formats : NULL, /* resultFormat= */ 1);
    return finish(conn, sent, was, ret_result, err);
}

/* ---- several statements ---- */

/* A statement on its way. */
typedef struct passage {
    char *text;
    char name[STATEMENT_NAME_SIZE];
    uint64_t hash;
    bool prepares; /* it is prepared on the way */
} passage;

static bool is_before(const passage *passages, int count, uint64_t hash)
{
    for (int i = 0; i < count; i++)
        if (passages[i].hash == hash)
            return true;
    return false;
}

static void free_passages(passage *passages, int count)
{
    for (int i = 0; i < count; i++)
        passages[i].text = pr__free(passages[i].text);
}

/* False when out of memory: nothing of it is left. */
static bool make_passages(pr__pg_conn *conn, const pr__pg_call *calls, int count, passage *passages)
{
    for (int i = 0; i < count; i++) {
        passage *one = &passages[i];
        one->text = pr__pg_expand(conn, calls[i].sql);
        if (!one->text) {
            free_passages(passages, i);
            return false;
        }
        one->hash = hash_of(one->text);
        name_statement(conn, one->hash, one->name);
        one->prepares =
            *find_statement(conn, one->hash) != one->hash && !is_before(passages, i, one->hash);
    }
    return true;
}

static bool send_call(pr__pg_conn *conn, const pr__pg_call *call, const passage *as)
{
    const pr__pg_params *params = call->params;
    int count = params ? params->count : 0;
    if (as->prepares &&
        !PQsendPrepare(conn->pg, as->name, as->text, count, params ? params->types : NULL))
        return false;
    return PQsendQueryPrepared(conn->pg, as->name, count, params ? params->values : NULL,
                               params ? params->lengths : NULL, params ? params->formats : NULL,
                               /* resultFormat= */ 1);
}

static bool send_all(pr__pg_conn *conn, const pr__pg_call *calls, int count,
                     const passage *passages)
{
    if (!PQenterPipelineMode(conn->pg))
        return false;
    for (int i = 0; i < count; i++)
        if (!send_call(conn, &calls[i], &passages[i]))
            return false;
    return PQpipelineSync(conn->pg);
}

/* The result of one statement, and the end of its results. */
static pr_status receive_one(pr__pg_conn *conn, int64_t until_us, PGresult **ret_result,
                             pr_error *err)
{
    AUTO_RESULT kept = NULL;
    pr_status status = PR_OK;
    for (;;) {
        PGresult *result = next_result(conn, until_us, &status, err);
        if (!result)
            break;
        PQclear(kept);
        kept = result;
        if (PQresultStatus(kept) == PGRES_PIPELINE_SYNC)
            break; /* nothing ends it */
    }
    TRY(status);
    if (!kept)
        return pr__pg_fail_connection(conn, NULL, err);
    if (PQresultStatus(kept) == PGRES_PIPELINE_ABORTED)
        return PR_E_BACKEND; /* skipped; the error came before it */
    if (failed(kept))
        return pr__pg_fail_result(conn, kept, err);
    *ret_result = TAKE(kept);
    return PR_OK;
}

static pr_status receive_call(pr__pg_conn *conn, int64_t until_us, const passage *as,
                              PGresult **ret_result, pr_error *err)
{
    pr_status status = PR_OK;
    if (as->prepares) {
        AUTO_RESULT prepared = NULL;
        status = receive_one(conn, until_us, &prepared, err);
        if (status == PR_OK) {
            *find_statement(conn, as->hash) = as->hash;
            conn->statement_count++;
        } else if (!conn->pg) {
            return status;
        }
    }
    pr_status run = receive_one(conn, until_us, ret_result, status == PR_OK ? err : NULL);
    return status == PR_OK ? run : status;
}

/* Results in the order of the statements; after an error the server skips what is left. */
static pr_status receive_all(pr__pg_conn *conn, pr__pg_call *calls, int count,
                             const passage *passages, int *ret_done, pr_error *err)
{
    static const passage sync = {.prepares = false};
    pr_status first = PR_OK;
    int64_t until_us = pr__monotonic_us() + conn->limits.timeout_ms * 1000;
    for (int i = 0; i <= count; i++) {
        AUTO_RESULT result = NULL;
        pr_status status = receive_call(conn, until_us, i < count ? &passages[i] : &sync, &result,
                                        first == PR_OK ? err : NULL);
        if (first == PR_OK)
            first = status;
        if (!conn->pg || PQstatus(conn->pg) != CONNECTION_OK) {
            if (first == PR_OK)
                first = pr__pg_fail_connection(conn, NULL, err);
            pr__pg_conn_drop(conn);
            return first;
        }
        if (first != PR_OK || i == count)
            continue;
        calls[i].result = TAKE(result);
        (*ret_done)++;
    }
    if (!PQexitPipelineMode(conn->pg))
        pr__pg_conn_drop(conn);
    return first;
}

pr_status pr__pg_exec_all(pr__pg_conn *conn, pr__pg_call *calls, int count, int *ret_sent,
                          int *ret_done, pr_error *err)
{
    passage passages[PR__PG_CALLS_MAX];
    pr_assert(count <= PR__PG_CALLS_MAX);
    *ret_sent = *ret_done = 0;
    for (int i = 0; i < count; i++) {
        calls[i].result = NULL;
        if (calls[i].params && calls[i].params->failed)
            return pr__fail_nomem(err, ORIGIN);
    }
    TRY(pr__pg_usable(conn, err));
    bool room = conn->statement_count + PR__PG_CALLS_MAX < STATEMENTS_FULL;
    if (!conn->named || conn->borrowed || !room) {
        for (int i = 0; i < count; i++) {
            (*ret_sent)++;
            TRY(pr__pg_exec(conn, calls[i].sql, calls[i].params, &calls[i].result, err));
            (*ret_done)++;
        }
        return PR_OK;
    }
    if (!make_passages(conn, calls, count, passages))
        return pr__fail_nomem(err, ORIGIN);
    *ret_sent = count;
    bool all = send_all(conn, calls, count, passages);
    free_passages(passages, count);
    if (!all) {
        pr_status status = pr__pg_fail_connection(conn, NULL, err);
        pr__pg_conn_drop(conn);
        return status;
    }
    return receive_all(conn, calls, count, passages, ret_done, err);
}

void pr__pg_calls_done(pr__pg_call *calls, int count)
{
    for (int i = 0; i < count; i++) {
        PQclear(calls[i].result);
        calls[i].result = NULL;
    }
}

static void add_by_format(pr__pg_params *params, const char *format, va_list *args)
{
    for (; *format; format++) {
        switch (*format) {
        case 'i':
            pr__pg_add_int(params, va_arg(*args, int64_t));
            break;
        case 'o':
            pr__pg_add_bool(params, va_arg(*args, int) != 0);
            break;
        case 't':
            pr__pg_add_text(params, va_arg(*args, const char *));
            break;
        case 'u':
            pr__pg_add_uuid(params, va_arg(*args, const char *));
            break;
        case 's':
            pr__pg_add_instant(params, va_arg(*args, int64_t));
            break;
        case 'b': {
            const void *data = va_arg(*args, const void *);
            pr__pg_add_bytes(params, data, va_arg(*args, size_t));
            break;
        }
        default:
            params->failed = true;
            break;
        }
    }
}

static pr_status query(pr__pg_conn *conn, const char *sql, PGresult **ret_result, pr_error *err,
                       const char *format, va_list *args)
{
    AUTO_PARAMS params = {.count = 0};
    add_by_format(&params, format, args);
    return pr__pg_exec(conn, sql, &params, ret_result, err);
}

pr_status pr__pg_query(pr__pg_conn *conn, const char *sql, PGresult **ret_result, pr_error *err,
                       const char *format, ...)
{
    va_list args;
    va_start(args, format);
    pr_status status = query(conn, sql, ret_result, err, format, &args);
    va_end(args);
    return status;
}

pr_status pr__pg_run(pr__pg_conn *conn, const char *sql, int64_t *ret_changes, pr_error *err,
                     const char *format, ...)
{
    AUTO_RESULT result = NULL;
    va_list args;
    va_start(args, format);
    pr_status status = query(conn, sql, &result, err, format, &args);
    va_end(args);
    TRY(status);
    int64_t changes = 0;
    (void)pr__parse_int64(PQcmdTuples(result), 0, INT64_MAX, &changes);
    if (ret_changes)
        *ret_changes = changes;
    return PR_OK;
}

pr_status pr__pg_int(pr__pg_conn *conn, const char *sql, int64_t *ret_value, bool *ret_found,
                     pr_error *err, const char *format, ...)
{
    AUTO_RESULT result = NULL;
    va_list args;
    va_start(args, format);
    pr_status status = query(conn, sql, &result, err, format, &args);
    va_end(args);
    TRY(status);
    bool found = PQntuples(result) > 0 && !PQgetisnull(result, 0, 0);
    if (found && PQftype(result, 0) == PR__PG_TIMESTAMPTZ)
        *ret_value = pr__pg_value_instant(result, 0, 0);
    else if (found)
        *ret_value = pr__pg_value_int(result, 0, 0);
    if (ret_found)
        *ret_found = found;
    return PR_OK;
}
