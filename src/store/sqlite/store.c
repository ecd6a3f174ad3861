/*
 * The store: opening, cloning, closing, and the table of its methods.
 *
 * Invariants: one connection a handle; a handle that was carried across fork, or that met an I/O
 * error, refuses to work; the clock of leases is the store's clock port.
 */
#include "store/sqlite/store.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <postroom/limits.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/sized.h"
#include "base/text.h"
#include "base/uuid.h"
#include "store/sqlite/failure.h"
#include "store/sqlite/inbox.h"
#include "store/sqlite/operations.h"
#include "store/sqlite/saga.h"

#define ORIGIN         "sqlite"
#define PREFIX_DEFAULT "postroom"
#define LONGEST_SUFFIX "_outbox_parked_by_message_id"

int64_t pr__sqlite_now(const pr_store *store)
{
    return store->clock->wall_us(store->clock->user);
}

void pr__sqlite_token(const pr_store *store, char out[PR_UUID_TEXT_SIZE])
{
    uint8_t random[10];
    store->random->fill(store->random->user, random, sizeof random);
    pr__uuid7(pr__sqlite_now(store), random, out);
}

int64_t pr__sqlite_wait_ms(int64_t now_us, int64_t due_us)
{
    return due_us <= now_us ? 0 : (due_us - now_us + 999) / 1000;
}

pr_status pr__sqlite_ready(pr__sqlite_store *store, pr_error *err)
{
    if (getpid() != store->pid)
        return pr__fail(err, PR_E_STATE, ORIGIN,
                        "the store was opened before a fork: open another in the child");
    return pr__sqlite_usable(&store->conn, err);
}

static const char SQL_SETTINGS[] =
    "SELECT (SELECT CAST(value AS INTEGER) FROM {p}_setting WHERE name = 'lanes'), (SELECT value "
    "FROM {p}_setting WHERE name = 'default_transport'), (SELECT max(version) FROM "
    "{p}_schema_version)";

pr_status pr__sqlite_settings_load(pr__sqlite_store *store, pr_error *err)
{
    if (store->settings.known)
        return PR_OK;
    AUTO_STMT stmt = NULL;
    bool row = false;
    TRY(pr__sqlite_query(&store->conn, SQL_SETTINGS, &stmt, err, ""));
    TRY(pr__sqlite_step(&store->conn, stmt, &row, err));
    int64_t lanes = row ? sqlite3_column_int64(stmt, 0) : 0;
    const char *transport = row ? (const char *)sqlite3_column_text(stmt, 1) : NULL;
    if (lanes < 1 || lanes > PR_LANES_MAX || (lanes & (lanes - 1)) != 0)
        return pr__fail(err, PR_E_SCHEMA, ORIGIN,
                        "setting 'lanes' in '%s_setting' is missing or no power of two from 1 to "
                        "%d: restore it",
                        store->conn.prefix, PR_LANES_MAX);
    if (!pr__scheme_valid(transport))
        return pr__fail(err, PR_E_SCHEMA, ORIGIN,
                        "setting 'default_transport' in '%s_setting' is missing or no transport: "
                        "restore it",
                        store->conn.prefix);
    store->settings.lanes = (uint32_t)lanes;
    pr__format(store->settings.default_transport, sizeof store->settings.default_transport, "%s",
               transport);
    store->settings.schema_version = (uint32_t)sqlite3_column_int64(stmt, 2);
    store->settings.known = true;
    return PR_OK;
}

static void store_free(pr_store *base)
{
    pr__sqlite_store *store = pr__sqlite_store_of(base);
    pr__sqlite_conn_done(&store->conn);
    pr__line_release(store->line);
    pr__arena_free(store->filter.arena);
    pr__free(store->path);
    pr__free(store);
}

DEFINE_AUTO(pr_store, store_free);

static pr_status store_now(pr_store *store, int64_t *ret_now_us, pr_error *err)
{
    (void)err;
    *ret_now_us = pr__sqlite_now(store);
    return PR_OK;
}

static pr_status open_in_line(const pr_sqlite_options *opt, pr__line *line, pr_store **ret_store,
                              pr_error *err);

static pr_status store_clone(pr_store *base, pr_store **ret_store, pr_error *err)
{
    pr__sqlite_store *store = pr__sqlite_store_of(base);
    pr_sqlite_options opt =
        PR_SQLITE_OPTIONS(.path = store->path, .prefix = store->conn.prefix,
                          .busy_ms = store->busy_ms, .body_size_max = base->body_size_max,
                          .schema_check_off = true, .clock = base->clock, .random = base->random,
                          .observer = base->observer);
    return open_in_line(&opt, store->line, ret_store, err);
}

static const pr__store_ops OPS = {
    .name = "sqlite",
    .free = store_free,
    .clone = store_clone,
    .migrate = pr__sqlite_migrate,
    .check = pr__sqlite_check,
    .unit_begin = pr__sqlite_unit_begin,
    .reader_open = pr__sqlite_reader_open,
    .reader_keep = pr__sqlite_reader_keep,
    .reader_drop = pr__sqlite_reader_drop,
    .reader_set_order = pr__sqlite_reader_set_order,
    .reader_exists = pr__sqlite_reader_exists,
    .claim = pr__sqlite_claim,
    .claim_parked = pr__sqlite_claim_parked,
    .settle = pr__sqlite_settle,
    .renew = pr__sqlite_renew,
    .promote = pr__sqlite_promote,
    .parked_due = pr__sqlite_parked_due,
    .parked_count = pr__sqlite_parked_count,
    .changed = pr__sqlite_changed,
    .maintain = pr__sqlite_maintain,
    .backlog = pr__sqlite_backlog,
    .inbox_claim = pr__sqlite_inbox_claim,
    .inbox_due = pr__sqlite_inbox_due,
    .inbox_release = pr__sqlite_inbox_release,
    .inbox_renew = pr__sqlite_inbox_renew,
    .status = pr__sqlite_status,
    .list = pr__sqlite_list,
    .show = pr__sqlite_show,
    .redrive = pr__sqlite_redrive,
    .discard = pr__sqlite_discard,
    .cancel = pr__sqlite_cancel,
    .blocker = pr__sqlite_blocker,
    .place = pr__sqlite_place,
    .saga_list = pr__sqlite_saga_list,
    .saga_show = pr__sqlite_saga_show,
    .saga_release = pr__sqlite_saga_release,
    .saga_sweep = pr__sqlite_saga_sweep,
    .reader_find = pr__sqlite_reader_find,
    .now = store_now,
};

/* SQLite folds the case of ASCII in names; the catalogue does not, so names are kept in lower case.
   */
static pr_status read_prefix(const char *given, char out[PR__SQLITE_PREFIX_SIZE], pr_error *err)
{
    const char *prefix = given ? given : PREFIX_DEFAULT;
    size_t limit = PR_NAME_SIZE_MAX - strlen(LONGEST_SUFFIX);
    if (!pr__name_valid(prefix, PR_NAME_SIZE_MAX))
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "the prefix of table names is [A-Za-z0-9_], at most %zu bytes", limit);
    if (strlen(prefix) > limit)
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "prefix '%s' has %zu bytes, at most %zu, since '%s' is put behind it",
                        prefix, strlen(prefix), limit, LONGEST_SUFFIX);
    if (prefix[0] >= '0' && prefix[0] <= '9')
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "prefix '%s' begins with a digit: begin it with a letter", prefix);
    for (size_t i = 0; i <= strlen(prefix); i++)
        out[i] = (char)(prefix[i] >= 'A' && prefix[i] <= 'Z' ? prefix[i] + ('a' - 'A') : prefix[i]);
    if (pr__text_starts_with(out, "sqlite"))
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "prefix '%s': names that begin with sqlite are SQLite's own", prefix);
    return PR_OK;
}

/* The command's way to name a store, given to a function that takes a path: a file of such a name
   would be made in silence. What stands behind the scheme may hold a password. */
static pr_status refuse_address(const char *path, pr_error *err)
{
    if (pr__text_starts_with(path, "sqlite:"))
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "path '%s' begins with 'sqlite:': give the path alone (./%s for a file of "
                        "that name)",
                        path, path);
    if (pr__text_starts_with(path, "postgresql:") || pr__text_starts_with(path, "postgres:"))
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "path is an address of PostgreSQL: open it with the functions of "
                        "postroom/postgres.h");
    return PR_OK;
}

static pr_status check_options(const pr_sqlite_options *opt, pr_error *err)
{
    TRY(pr__sized_check(opt, sizeof *opt, "pr_sqlite_options", ORIGIN, err));
    if (pr__text_empty(opt->path))
        return pr__fail(err, PR_E_INVALID, ORIGIN, "path is empty: name the database file");
    if (opt->path[0] == ':' || pr__text_starts_with(opt->path, "file:"))
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "path '%s' is no plain file: a store is shared by processes, so name a "
                        "file",
                        opt->path);
    TRY(refuse_address(opt->path, err));
    if (opt->busy_ms < 0 || opt->busy_ms > PR__SQLITE_BUSY_MS_MAX)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "busy_ms is %lld, must be 0 to %lld",
                        (long long)opt->busy_ms, PR__SQLITE_BUSY_MS_MAX);
    if (opt->body_size_max > (uint64_t)PR_BODY_SIZE_MAX)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "body_size_max is %llu, must be at most %lld",
                        (unsigned long long)opt->body_size_max, PR_BODY_SIZE_MAX);
    return PR_OK;
}

static pr_status check_file(const pr_sqlite_options *opt, pr_error *err)
{
    struct stat info;
    if (stat(opt->path, &info) == 0) {
        if (!S_ISREG(info.st_mode))
            return pr__fail(err, PR_E_BACKEND, ORIGIN, "'%s' is no regular file: name a file",
                            opt->path);
        if (access(opt->path, W_OK) != 0)
            return pr__fail(err, PR_E_BACKEND, ORIGIN,
                            "'%s' is read-only: make the file and its folder writable", opt->path);
        return PR_OK;
    }
    int error = errno;
    if ((error == ENOENT || error == ENOTDIR) && !opt->create)
        return pr__fail(err, PR_E_NOT_FOUND, ORIGIN,
                        "there is no file '%s': run `postroom migrate` to create it", opt->path);
    if (error == ENOENT)
        return PR_OK;
    pr_status status = pr__fail(err, PR_E_BACKEND, ORIGIN, "'%s': %s", opt->path, strerror(error));
    if (err && err->os_errno == 0)
        err->os_errno = error;
    return status;
}

static pr_status connect(pr__sqlite_store *store, const char *prefix, bool create, pr_error *err)
{
    pr_status status = pr__sqlite_conn_open(&store->conn, store->path, prefix, store->busy_ms,
                                            create, store->line, err);
    if (status == PR_OK && !store->schema_check_off)
        status = pr__sqlite_check(&store->base, err);
    if (status == PR_OK && !store->schema_check_off)
        status = pr__sqlite_conn_use_wal(&store->conn, err);
    struct stat info;
    if (status == PR_OK && stat(store->path, &info) == 0) {
        store->device = info.st_dev;
        store->inode = info.st_ino;
    }
    if (status != PR_OK && status != PR_E_SCHEMA)
        pr__error_context(err, "'%s'", store->path);
    return status;
}

pr_status pr__sqlite_reopen(pr__sqlite_store *store, pr_error *err)
{
    char prefix[PR__SQLITE_PREFIX_SIZE];
    pr__format(prefix, sizeof prefix, "%s", store->conn.prefix);
    pr__sqlite_conn_done(&store->conn);
    store->changed_known = false;
    return pr__sqlite_conn_open(&store->conn, store->path, prefix, store->busy_ms,
                                /* create= */ false, store->line, err);
}

/* line NULL: one of its own. */
static pr_status open_in_line(const pr_sqlite_options *opt, pr__line *line, pr_store **ret_store,
                              pr_error *err)
{
    char prefix[PR__SQLITE_PREFIX_SIZE];
    TRY(check_options(opt, err));
    TRY(read_prefix(opt->prefix, prefix, err));
    TRY(check_file(opt, err));
    pr__sqlite_store *store = pr__alloc(sizeof *store);
    if (!store)
        return pr__fail_nomem(err, ORIGIN);
    store->base = (pr_store){.ops = &OPS,
                             .clock = opt->clock ? opt->clock : pr_clock_system(),
                             .random = opt->random ? opt->random : pr_random_system(),
                             .observer = opt->observer,
                             .body_size_max = opt->body_size_max ? opt->body_size_max
                                                                 : (uint64_t)PR_BODY_SIZE_DEFAULT};
    AUTO(pr_store) guard = &store->base;
    store->pid = getpid();
    store->busy_ms = opt->busy_ms ? opt->busy_ms : PR__SQLITE_BUSY_MS_DEFAULT;
    store->schema_check_off = opt->schema_check_off;
    store->path = pr__strdup(opt->path);
    store->line = line ? pr__line_hold(line) : pr__line_new();
    if (!store->path || !store->line)
        return pr__fail_nomem(err, ORIGIN);
    TRY(connect(store, prefix, opt->create, err));
    *ret_store = TAKE(guard);
    return PR_OK;
}

pr_status pr_sqlite_store_open(const pr_sqlite_options *opt, pr_store **ret_store, pr_error *err)
{
    if (!ret_store)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "ret_store is NULL");
    return open_in_line(opt, NULL, ret_store, err);
}

/* Without a look at the schema first every start would wait for the lock of a migration. */
pr_status pr_sqlite_open(const char *path, pr_store **ret_store, pr_error *err)
{
    pr_sqlite_options opt = PR_SQLITE_OPTIONS(.path = path, .create = true);
    pr_error local = PR_ERROR_INIT;
    pr_status status = pr_sqlite_store_open(&opt, ret_store, &local);
    if (status != PR_E_SCHEMA) {
        pr__error_copy(err, &local);
        return status;
    }
    AUTO(pr_store) store = NULL;
    opt.schema_check_off = true;
    TRY(pr_sqlite_store_open(&opt, &store, err));
    TRY(pr_store_migrate(store, NULL, NULL, err));
    TRY(pr_store_check(store, err));
    *ret_store = TAKE(store);
    return PR_OK;
}
