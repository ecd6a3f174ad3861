/*
 * The store: opening, cloning, closing, connecting again, and the table of its methods.
 *
 * Invariants: one connection a handle; a handle that was carried across fork refuses to work; a
 * lost connection is made anew by the next call, and what was known of the old one is read again;
 * the clock of leases is the database's.
 */
#include "store/postgres/store.h"

#include <string.h>
#include <unistd.h>

#include <postroom/limits.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/uuid.h"
#include "store/postgres/inbox.h"
#include "store/postgres/operations.h"
#include "store/postgres/saga.h"
#include "store/postgres/schema.h"
#include "store/postgres/value.h"

#define ORIGIN             "postgres"
#define SCHEMA_DEFAULT     "postroom"
#define LONGEST_SUFFIX     "outbox_parked_by_message_id"
#define ROLE_SUFFIX        "_producer"
#define BUSY_MS_DEFAULT    5000
#define TIMEOUT_MS_DEFAULT 30000
#define CONNECT_MS_DEFAULT 10000
#define UNIT_IDLE_DEFAULT  60000
#define IDLE_MS            10000 /* our own short transactions; longer means frozen */
#define LIMIT_MS_MAX       (60LL * 60 * 1000)

void pr__pg_token(const pr_store *store, char out[PR_UUID_TEXT_SIZE])
{
    uint8_t random[10];
    store->random->fill(store->random->user, random, sizeof random);
    pr__uuid7(store->clock->wall_us(store->clock->user), random, out);
}

int64_t pr__pg_wait_ms(int64_t now_us, int64_t due_us)
{
    return due_us <= now_us ? 0 : (due_us - now_us + 999) / 1000;
}

pr_status pr__pg_now(pr__pg_conn *conn, int64_t *ret_now_us, pr_error *err)
{
    return pr__pg_int(conn, "SELECT pg_catalog.clock_timestamp()", ret_now_us, NULL, err, "");
}

void pr__pg_describe(const pr__pg_store *store, char *out, size_t size)
{
    const PGconn *pg = store->conn.pg;
    const char *host = pg ? PQhost(pg) : NULL;
    const char *name = pg ? PQdb(pg) : NULL;
    pr__format(out, size, "postgresql %s/%s schema %s%s%s", host ? host : "", name ? name : "",
               store->conn.schema, store->conn.prefix[0] ? " prefix " : "", store->conn.prefix);
}

pr_status pr__pg_ready(pr__pg_store *store, pr_error *err)
{
    if (getpid() != store->pid)
        return pr__fail(err, PR_E_STATE, ORIGIN,
                        "the store was opened before a fork: open another in the child");
    if (store->unit_open)
        return pr__fail(err, PR_E_STATE, ORIGIN,
                        "a unit's transaction is open on this store: finish the unit first, or use "
                        "a clone of the store");
    pr__pg_conn *conn = &store->conn;
    if (conn->pg && PQstatus(conn->pg) == CONNECTION_OK) {
        if (!pr__pg_in_transaction(conn))
            return PR_OK;
        pr__pg_conn_drop(conn); /* somebody used our connection and left a transaction open */
    }
    store->changed_known = false;
    return pr__pg_conn_open(conn, store->conninfo, err);
}

static const char SQL_SETTINGS[] =
    "SELECT (SELECT value::pg_catalog.int8 FROM {p}setting WHERE name = 'lanes'), (SELECT value "
    "FROM {p}setting WHERE name = 'default_transport'), (SELECT pg_catalog.max(version) FROM "
    "{p}schema_version), (SELECT system_identifier FROM pg_catalog.pg_control_system()), (SELECT "
    "oid::pg_catalog.int8 FROM pg_catalog.pg_database WHERE datname = "
    "pg_catalog.current_database()), '{p}outbox'::pg_catalog.regclass::pg_catalog.oid"
    "::pg_catalog.int8";

pr_status pr__pg_settings_load(pr__pg_store *store, pr_error *err)
{
    if (store->settings.generation == store->conn.generation && store->settings.generation != 0)
        return PR_OK;
    AUTO_RESULT result = NULL;
    TRY(pr__pg_query(&store->conn, SQL_SETTINGS, &result, err, ""));
    int64_t lanes = pr__pg_value_int(result, 0, 0);
    const char *transport = pr__pg_value_text(result, 0, 1);
    if (lanes < 1 || lanes > PR_LANES_MAX || (lanes & (lanes - 1)) != 0)
        return pr__fail(err, PR_E_SCHEMA, ORIGIN,
                        "setting 'lanes' in %ssetting is missing or no power of two from 1 to %d: "
                        "restore it",
                        store->conn.qualifier, PR_LANES_MAX);
    if (!pr__scheme_valid(transport))
        return pr__fail(err, PR_E_SCHEMA, ORIGIN,
                        "setting 'default_transport' in %ssetting is missing or no transport: "
                        "restore it",
                        store->conn.qualifier);
    pr__pg_settings settings = {.generation = store->conn.generation,
                                .lanes = (uint32_t)lanes,
                                .schema_version = (uint32_t)pr__pg_value_int(result, 0, 2),
                                .system_id = pr__pg_value_int(result, 0, 3),
                                .database = pr__pg_value_int(result, 0, 4),
                                .log = pr__pg_value_int(result, 0, 5)};
    pr__format(settings.default_transport, sizeof settings.default_transport, "%s", transport);
    store->settings = settings;
    store->filter.reader = 0; /* another database perhaps */
    store->host = (pr__pg_known_host){0};
    return PR_OK;
}

static void store_free(pr_store *base)
{
    pr__pg_store *store = pr__pg_store_of(base);
    if (getpid() == store->pid)
        pr__pg_conn_drop(&store->conn); /* a child must not say good-bye on its parent's socket */
    pr__arena_free(store->filter.arena);
    pr__free(store->conninfo);
    pr__free(store);
}

DEFINE_AUTO(pr_store, store_free);

static pr_status store_now(pr_store *base, int64_t *ret_now_us, pr_error *err)
{
    pr__pg_store *store = pr__pg_store_of(base);
    if (!store->unit_open)
        TRY(pr__pg_ready(store, err));
    return pr__pg_now(&store->conn, ret_now_us, err);
}

static pr_status store_clone(pr_store *base, pr_store **ret_store, pr_error *err)
{
    pr__pg_store *store = pr__pg_store_of(base);
    const pr__pg_limits *limits = &store->conn.limits;
    pr_postgres_options opt =
        PR_POSTGRES_OPTIONS(.statements_off = store->statements_off, .schema_check_off = true,
                            .conninfo = store->conninfo, .schema = store->conn.schema,
                            .prefix = store->conn.prefix, .busy_ms = limits->busy_ms,
                            .timeout_ms = limits->timeout_ms, .connect_ms = limits->connect_ms,
                            .unit_idle_ms = store->unit_idle_ms,
                            .body_size_max = base->body_size_max, .clock = base->clock,
                            .random = base->random, .observer = base->observer);
    return pr_postgres_store_open(&opt, ret_store, err);
}

static const pr__store_ops OPS = {
    .name = "postgres",
    .free = store_free,
    .clone = store_clone,
    .migrate = pr__pg_migrate,
    .check = pr__pg_check,
    .unit_begin = pr__pg_unit_begin,
    .reader_open = pr__pg_reader_open,
    .reader_keep = pr__pg_reader_keep,
    .reader_drop = pr__pg_reader_drop,
    .reader_set_order = pr__pg_reader_set_order,
    .reader_exists = pr__pg_reader_exists,
    .claim = pr__pg_claim,
    .claim_parked = pr__pg_claim_parked,
    .settle = pr__pg_settle,
    .renew = pr__pg_renew,
    .promote = pr__pg_promote,
    .parked_due = pr__pg_parked_due,
    .parked_count = pr__pg_parked_count,
    .changed = pr__pg_changed,
    .maintain = pr__pg_maintain,
    .backlog = pr__pg_backlog,
    .inbox_claim = pr__pg_inbox_claim,
    .inbox_due = pr__pg_inbox_due,
    .inbox_release = pr__pg_inbox_release,
    .inbox_renew = pr__pg_inbox_renew,
    .status = pr__pg_status,
    .list = pr__pg_list,
    .show = pr__pg_show,
    .redrive = pr__pg_redrive,
    .discard = pr__pg_discard,
    .cancel = pr__pg_cancel,
    .blocker = pr__pg_blocker,
    .place = pr__pg_place,
    .saga_list = pr__pg_saga_list,
    .saga_show = pr__pg_saga_show,
    .saga_release = pr__pg_saga_release,
    .saga_sweep = pr__pg_saga_sweep,
    .unit_enter = pr__pg_unit_enter,
    .reader_find = pr__pg_reader_find,
    .now = store_now,
};

bool pr__pg_is_postgres(const pr_store *store)
{
    return store && store->ops == &OPS;
}

/* Names are kept in lower case: PostgreSQL folds what is not quoted, and others will not quote. */
static pr_status read_name(const char *what, const char *given, size_t limit,
                           char out[PR__PG_NAME_SIZE], pr_error *err)
{
    size_t size = strlen(given);
    if (!pr__name_valid(given, PR_NAME_SIZE_MAX) || (given[0] >= '0' && given[0] <= '9'))
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "the %s is [A-Za-z_][A-Za-z0-9_]*, at most %zu bytes", what, limit);
    if (size > limit)
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "%s '%s' has %zu bytes, at most %zu, since names are put behind it", what,
                        given, size, limit);
    for (size_t i = 0; i <= size; i++)
        out[i] = (char)(given[i] >= 'A' && given[i] <= 'Z' ? given[i] + ('a' - 'A') : given[i]);
    if (pr__text_starts_with(out, "pg_"))
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "%s '%s': names that begin with pg_ are PostgreSQL's own", what, given);
    return PR_OK;
}

static pr_status read_names(const pr_postgres_options *opt, char schema[PR__PG_NAME_SIZE],
                            char prefix[PR__PG_NAME_SIZE], pr_error *err)
{
    size_t prefix_limit = PR_NAME_SIZE_MAX - strlen(LONGEST_SUFFIX);
    size_t role_limit = PR_NAME_SIZE_MAX - strlen(ROLE_SUFFIX);
    prefix[0] = '\0';
    TRY(read_name("schema", opt->schema ? opt->schema : SCHEMA_DEFAULT, role_limit, schema, err));
    if (!pr__text_empty(opt->prefix))
        TRY(read_name("prefix", opt->prefix, prefix_limit, prefix, err));
    if (strlen(schema) + strlen(prefix) + 1 > role_limit)
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "schema and prefix have %zu bytes together, at most %zu, since the role is "
                        "named by both",
                        strlen(schema) + strlen(prefix), role_limit - 1);
    return PR_OK;
}

static pr_status check_limit(const char *name, int64_t value, pr_error *err)
{
    if (value >= 0 && value <= LIMIT_MS_MAX)
        return PR_OK;
    return pr__fail(err, PR_E_INVALID, ORIGIN, "%s is %lld, must be 0 to %lld", name,
                    (long long)value, LIMIT_MS_MAX);
}

static pr_status check_options(const pr_postgres_options *opt, pr_error *err)
{
    if (!opt || opt->size < sizeof *opt)
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "options are NULL, or their size is not set: use PR_POSTGRES_OPTIONS");
    TRY(check_limit("busy_ms", opt->busy_ms, err));
    TRY(check_limit("timeout_ms", opt->timeout_ms, err));
    TRY(check_limit("connect_ms", opt->connect_ms, err));
    TRY(check_limit("unit_idle_ms", opt->unit_idle_ms, err));
    if (opt->body_size_max > (uint64_t)PR_BODY_SIZE_MAX)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "body_size_max is %llu, must be at most %lld",
                        (unsigned long long)opt->body_size_max, PR_BODY_SIZE_MAX);
    return PR_OK;
}

static pr__pg_store *store_new(const pr_postgres_options *opt, const char *schema,
                               const char *prefix)
{
    pr__pg_store *store = pr__alloc(sizeof *store);
    if (!store)
        return NULL;
    pr__pg_limits limits = {.busy_ms = opt->busy_ms ? opt->busy_ms : BUSY_MS_DEFAULT,
                            .timeout_ms = opt->timeout_ms ? opt->timeout_ms : TIMEOUT_MS_DEFAULT,
                            .connect_ms = opt->connect_ms ? opt->connect_ms : CONNECT_MS_DEFAULT,
                            .idle_ms = IDLE_MS};
    store->base = (pr_store){.ops = &OPS,
                             .clock = opt->clock ? opt->clock : pr_clock_system(),
                             .random = opt->random ? opt->random : pr_random_system(),
                             .observer = opt->observer,
                             .body_size_max = opt->body_size_max ? opt->body_size_max
                                                                 : (uint64_t)PR_BODY_SIZE_DEFAULT};
    store->pid = getpid();
    store->unit_idle_ms = opt->unit_idle_ms ? opt->unit_idle_ms : UNIT_IDLE_DEFAULT;
    store->statements_off = opt->statements_off;
    store->schema_check_off = opt->schema_check_off;
    pr__pg_conn_init(&store->conn, schema, prefix, &limits, !opt->statements_off);
    return store;
}

pr_status pr_postgres_store_open(const pr_postgres_options *opt, pr_store **ret_store,
                                 pr_error *err)
{
    if (!ret_store)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "ret_store is NULL");
    char schema[PR__PG_NAME_SIZE];
    char prefix[PR__PG_NAME_SIZE];
    TRY(check_options(opt, err));
    TRY(read_names(opt, schema, prefix, err));
    pr__pg_store *store = store_new(opt, schema, prefix);
    if (!store)
        return pr__fail_nomem(err, ORIGIN);
    AUTO(pr_store) guard = &store->base;
    if (opt->conninfo) {
        store->conninfo = pr__strdup(opt->conninfo);
        if (!store->conninfo)
            return pr__fail_nomem(err, ORIGIN);
    }
    TRY(pr__pg_ready(store, err));
    if (!opt->schema_check_off)
        TRY(pr__pg_check(&store->base, err));
    *ret_store = TAKE(guard);
    return PR_OK;
}

/* A role that may only read and write can open what stands: it is migrated only if it must be. */
pr_status pr_postgres_open(const char *conninfo, pr_store **ret_store, pr_error *err)
{
    pr_postgres_options opt = PR_POSTGRES_OPTIONS(.conninfo = conninfo);
    pr_error local = PR_ERROR_INIT;
    pr_status status = pr_postgres_store_open(&opt, ret_store, &local);
    if (status != PR_E_SCHEMA) {
        pr__error_copy(err, &local);
        return status;
    }
    AUTO(pr_store) store = NULL;
    opt.schema_check_off = true;
    TRY(pr_postgres_store_open(&opt, &store, err));
    TRY(pr_store_migrate(store, NULL, NULL, err));
    TRY(pr_store_check(store, err));
    *ret_store = TAKE(store);
    return PR_OK;
}
