/*
 * The doctor: what is wrong with the server or the schema, or will be.
 *
 * Invariant: read only; what it cannot see for lack of a right it leaves out. Sentences name what
 * they mean and never show a query or a value of somebody else.
 */

#include "base/error.h"
#include "base/text.h"
#include "base/time.h"
#include "store/postgres/schema.h"
#include "store/postgres/store.h"
#include "store/postgres/value.h"

#define ORIGIN             "postgres.doctor"
#define SKEW_MS_DEFAULT    2000
#define HORIZON_MS_DEFAULT (5 * 60 * 1000)
#define LIMIT_MS_MAX       (365LL * 86400000)
#define HOLDERS_MAX        10

typedef struct visit {
    pr__pg_store *store;
    int64_t horizon_ms;
    int64_t skew_ms;
    pr_finding_callback callback;
    void *user;
    bool stopped;
} visit;

static void tell(visit *v, pr_finding_level level, const char *subject, const char *text,
                 const char *remedy)
{
    if (v->stopped)
        return;
    pr_finding finding = {.size = (uint32_t)sizeof finding,
                          .level = level,
                          .subject = subject,
                          .text = text,
                          .remedy = remedy};
    v->stopped = !v->callback(v->user, &finding);
}

/* Each check of the start, on its own: one fault does not hide the next. */
static pr_status look_schema(visit *v, pr_error *err)
{
    static const struct {
        const char *subject;
        pr_status (*check)(pr__pg_store *store, pr_error *err);
        bool needed; /* without it what follows would be noise */
    } checks[] = {
        {"schema", pr__pg_check_version, true},   {"columns", pr__pg_check_objects, false},
        {"settings", pr__pg_settings_load, true}, {"journal", pr__pg_check_journal, false},
        {"lane", pr__pg_check_lane, false},       {"sequence", pr__pg_check_sequence, false}};
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) {
        pr_error found = PR_ERROR_INIT;
        pr_status status = checks[i].check(v->store, &found);
        if (status == PR_OK)
            continue;
        if (status != PR_E_SCHEMA) {
            pr__error_copy(err, &found);
            return status;
        }
        tell(v, PR_FINDING_FAULT, checks[i].subject, found.message, NULL);
        if (checks[i].needed)
            break;
    }
    return PR_OK;
}

static const char SQL_SERVER[] =
    "SELECT pg_catalog.current_setting('fsync'), pg_catalog.current_setting('full_page_writes'), "
    "pg_catalog.current_setting('synchronous_commit'), pg_catalog.pg_is_in_recovery(), "
    "pg_catalog.current_setting('transaction_read_only'), pg_catalog.clock_timestamp(), "
    "pg_catalog.current_setting('autovacuum')";

static void look_setting(visit *v, const char *name, const char *value, const char *why)
{
    char text[200];
    char remedy[120];
    if (!pr__text_equal(value, "off"))
        return;
    pr__format(text, sizeof text, "%s is off: %s", name, why);
    pr__format(remedy, sizeof remedy, "ALTER SYSTEM SET %s = on; SELECT pg_reload_conf();", name);
    tell(v, PR_FINDING_FAULT, name, text, remedy);
}

static void look_clock(visit *v, int64_t before_us, int64_t server_us, int64_t after_us)
{
    char text[200];
    char skew[64];
    int64_t skew_us = 0;
    if (server_us < before_us)
        skew_us = before_us - server_us;
    else if (server_us > after_us)
        skew_us = server_us - after_us;
    if (skew_us < v->skew_ms * 1000)
        return;
    pr__duration_text(skew_us, skew, sizeof skew);
    pr__format(text, sizeof text, "the clocks of this host and of the server are %s apart", skew);
    tell(v, PR_FINDING_WARNING, "clock", text,
         "synchronise both clocks; leases and due times go by the server's");
}

static pr_status look_server(visit *v, pr_error *err)
{
    AUTO_RESULT result = NULL;
    const pr_clock *clock = v->store->base.clock;
    int64_t before_us = clock->wall_us(clock->user);
    TRY(pr__pg_query(&v->store->conn, SQL_SERVER, &result, err, ""));
    int64_t after_us = clock->wall_us(clock->user);
    look_setting(v, "fsync", pr__pg_value_text(result, 0, 0),
                 "a crash of the machine damages the database");
    look_setting(v, "full_page_writes", pr__pg_value_text(result, 0, 1),
                 "a crash in mid write damages pages");
    if (pr__pg_value_int(result, 0, 3))
        tell(v, PR_FINDING_FAULT, "read-only", "the server is a standby: nothing can be written",
             "name all hosts in the connection string, with target_session_attrs=read-write");
    else if (pr__text_equal(pr__pg_value_text(result, 0, 4), "on"))
        tell(v, PR_FINDING_WARNING, "read-only",
             "transactions are read-only by default; ours say otherwise, joined ones do not", NULL);
    if (pr__text_equal(pr__pg_value_text(result, 0, 2), "off"))
        tell(
            v, PR_FINDING_WARNING, "synchronous_commit",
            "synchronous_commit is off by default: what a joined unit of the host committed may be "
            "lost in a crash; our own transactions set it on",
            "ALTER SYSTEM SET synchronous_commit = on; SELECT pg_reload_conf();");
    if (pr__text_equal(pr__pg_value_text(result, 0, 6), "off"))
        tell(v, PR_FINDING_WARNING, "autovacuum", "autovacuum is off: dead rows stay",
             "ALTER SYSTEM SET autovacuum = on; SELECT pg_reload_conf();");
    look_clock(v, before_us, pr__pg_value_instant(result, 0, 5), after_us);
    return PR_OK;
}

static const char SQL_HOLDERS[] =
    "SELECT 'session ' || pid || coalesce(' of ' || usename, '') || coalesce(' in ' || datname, "
    "'') || CASE WHEN application_name <> '' THEN ' (' || application_name || ')' ELSE '' END || "
    "', ' || state, xact_start, 'SELECT pg_terminate_backend(' || pid || ');' FROM "
    "pg_catalog.pg_stat_activity WHERE (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL) AND "
    "backend_type = 'client backend' AND pid <> pg_catalog.pg_backend_pid() AND xact_start < $1 "
    "UNION ALL SELECT 'prepared transaction ' || gid || ' of ' || owner || ' in ' || database, "
    "prepared, 'COMMIT PREPARED or ROLLBACK PREPARED ' || pg_catalog.quote_literal(gid) FROM "
    "pg_catalog.pg_prepared_xacts WHERE prepared < $1 ORDER BY 2 LIMIT 10";

/* Messages are delivered all the same; but nothing dead is vacuumed behind it. */
static pr_status look_horizon(visit *v, pr_error *err)
{
    AUTO_RESULT result = NULL;
    int64_t now_us = 0;
    TRY(pr__pg_now(&v->store->conn, &now_us, err));
    TRY(pr__pg_query(&v->store->conn, SQL_HOLDERS, &result, err, "s",
                     now_us - v->horizon_ms * 1000));
    for (int row = 0; row < PQntuples(result) && row < HOLDERS_MAX; row++) {
        char text[400];
        char age[64];
        pr__duration_text(now_us - pr__pg_value_instant(result, row, 1), age, sizeof age);
        pr__format(text, sizeof text,
                   "%s has been open for %s and keeps dead rows from being "
                   "vacuumed; what it enqueued waits for its commit",
                   pr__pg_value_text(result, row, 0), age);
        tell(v, PR_FINDING_WARNING, "horizon", text, pr__pg_value_text(result, row, 2));
    }
    return PR_OK;
}

static pr_status read_options(const pr_postgres_doctor_options *opt, visit *v, pr_error *err)
{
    static const pr_postgres_doctor_options none = {.size = (uint32_t)sizeof none};
    if (!opt)
        opt = &none;
    if (opt->size < sizeof *opt)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "size of pr_postgres_doctor_options is %u",
                        opt->size);
    if (opt->horizon_ms < 0 || opt->horizon_ms > LIMIT_MS_MAX || opt->skew_ms < 0 ||
        opt->skew_ms > LIMIT_MS_MAX)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "horizon_ms and skew_ms must be 0 to %lld",
                        LIMIT_MS_MAX);
    v->horizon_ms = opt->horizon_ms ? opt->horizon_ms : HORIZON_MS_DEFAULT;
    v->skew_ms = opt->skew_ms ? opt->skew_ms : SKEW_MS_DEFAULT;
    return PR_OK;
}

pr_status pr_postgres_doctor(pr_store *base, const pr_postgres_doctor_options *opt,
                             pr_finding_callback callback, void *user, pr_error *err)
{
    if (!pr__pg_is_postgres(base) || !callback)
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "store or callback is NULL, or the store is not on PostgreSQL");
    visit v = {.store = pr__pg_store_of(base), .callback = callback, .user = user};
    TRY(read_options(opt, &v, err));
    TRY(pr__pg_ready(v.store, err));
    v.store->settings.generation = 0;
    TRY(look_schema(&v, err));
    TRY(look_server(&v, err));
    return look_horizon(&v, err);
}
