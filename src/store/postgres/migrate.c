/*
 * Migrating: each numbered file in one transaction together with its version row.
 *
 * Invariants: the version row of a migration stands exactly when all its statements do; an advisory
 * lock of the transaction lets one process at a time go on, and the version is read again under it,
 * so that any number may migrate at once; nothing is left behind by one that dies.
 */
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/memory.h"
#include "base/text.h"
#include "store/postgres/migration.h"
#include "store/postgres/schema.h"
#include "store/postgres/store.h"

#define ORIGIN  "postgres.migrate"
#define LOCK_MS 25000 /* others may be migrating; below the deadline of one answer */

typedef struct migrator {
    pr__pg_store *store;
    const pr_migrate_options *opt;
    pr__migration_values values;
    uint32_t version;
} migrator;

static bool printing(const migrator *m)
{
    return m->opt && m->opt->print;
}

/* Run one statement, or hand it over. */
static pr_status apply(migrator *m, const char *sql, pr_error *err)
{
    if (m->opt && m->opt->print) {
        m->opt->print(m->opt->user, sql);
        return PR_OK;
    }
    PR_FAULT("store.before_migrate_statement");
    TRY(pr__pg_script(&m->store->conn, sql, NULL, err));
    PR_FAULT("store.after_migrate_statement");
    return PR_OK;
}

static pr_status apply_all(migrator *m, const char *sql, pr_error *err)
{
    while (true) {
        size_t size = pr__pg_migration_statement(sql);
        if (size == 0)
            return PR_OK;
        size_t blank = strspn(sql, " \t\r\n");
        AUTO(char) statement = pr__strndup(sql + blank, size - blank);
        if (!statement)
            return pr__fail_nomem(err, ORIGIN);
        TRY(apply(m, statement, err));
        sql += size;
    }
}

static pr_status apply_body(migrator *m, const pr__migration *migration, pr_error *err)
{
    AUTO(char) sql = pr__pg_migration_render(migration->sql, &m->store->conn, &m->values);
    if (!sql)
        return pr__fail_nomem(err, ORIGIN);
    TRY(apply_all(m, sql, err));
    AUTO_BUFFER row = PR_BUFFER_INIT;
    pr__buffer_printf(&row, "INSERT INTO %sschema_version (version, name) VALUES (%u, '%s');",
                      m->store->conn.qualifier, migration->version, migration->name);
    const char *text = pr__buffer_text(&row);
    if (!text)
        return pr__fail_nomem(err, ORIGIN);
    return apply(m, text, err);
}

/* One lock for each installation. */
static pr_status lock(migrator *m, pr_error *err)
{
    AUTO_BUFFER sql = PR_BUFFER_INIT;
    pr__buffer_printf(&sql,
                      "SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended("
                      "'postroom %s %s', 0));",
                      m->store->conn.schema, m->store->conn.prefix);
    const char *text = pr__buffer_text(&sql);
    return text ? apply(m, text, err) : pr__fail_nomem(err, ORIGIN);
}

static pr_status print_one(migrator *m, const pr__migration *migration, pr_error *err)
{
    TRY(apply(m, "BEGIN;", err));
    TRY(lock(m, err));
    TRY(apply_body(m, migration, err));
    return apply(m, "COMMIT;", err);
}

static pr_status migrate_in_transaction(migrator *m, const pr__migration *migration, bool *ret_done,
                                        pr_error *err)
{
    uint32_t version = 0;
    TRY(lock(m, err));
    TRY(pr__pg_schema_version(&m->store->conn, &version, err));
    *ret_done = version >= migration->version; /* somebody did it meanwhile */
    return *ret_done ? PR_OK : apply_body(m, migration, err);
}

static pr_status migrate_one(migrator *m, const pr__migration *migration, pr_error *err)
{
    if (printing(m))
        return print_one(m, migration, err);
    pr__pg_conn *conn = &m->store->conn;
    bool done = false;
    TRY(pr__pg_begin_with(conn, 0, LOCK_MS, 0, err));
    pr_status status = migrate_in_transaction(m, migration, &done, err);
    if (status != PR_OK || done) {
        pr__pg_rollback(conn);
        if (status != PR_OK)
            pr__error_context(err, "migration %u (%s)", migration->version, migration->name);
        return status;
    }
    PR_FAULT("store.before_migrate_commit");
    pr_error found = PR_ERROR_INIT;
    status = pr__pg_commit(conn, &found);
    PR_FAULT("store.after_migrate_commit");
    if (status != PR_OK && found.retry == PR_RETRY_UNKNOWN) { /* the version row tells */
        uint32_t version = 0;
        if (pr__pg_ready(m->store, NULL) == PR_OK &&
            pr__pg_schema_version(conn, &version, NULL) == PR_OK && version >= migration->version)
            return PR_OK;
    }
    pr__error_copy(err, &found);
    return status;
}

/* What may be changed later: the default transport and the relay's order. */
static pr_status change_settings(migrator *m, pr_error *err)
{
    AUTO(char) sql = pr__migration_changes(m->opt, m->store->conn.qualifier);
    if (!sql)
        return pr__fail_nomem(err, ORIGIN);
    if (!*sql)
        return PR_OK;
    if (printing(m))
        return apply_all(m, sql, err);
    pr__pg_conn *conn = &m->store->conn;
    TRY(pr__pg_begin(conn, err));
    return pr__pg_end(conn, apply_all(m, sql, err), err);
}

static pr_status check_lanes(migrator *m, pr_error *err)
{
    m->store->settings.generation = 0;
    TRY(pr__pg_settings_load(m->store, err));
    return pr__migration_check_lanes(m->opt, m->store->settings.lanes, ORIGIN, err);
}

static pr_status prepare(migrator *m, pr_error *err)
{
    TRY(pr__migration_check(m->opt, ORIGIN, err));
    TRY(pr__pg_schema_version(&m->store->conn, &m->version, err));
    if (m->version > pr__postgres_migration_count)
        return pr__pg_schema_newer(m->store, m->version, err);
    m->values = pr__migration_values_of(m->opt);
    if (m->version == 0)
        return PR_OK;
    TRY(check_lanes(m, err));
    m->values.lanes = m->store->settings.lanes;
    return PR_OK;
}

pr_status pr__pg_migrate(pr_store *store, const pr_migrate_options *opt,
                         pr_migrate_report *ret_report, pr_error *err)
{
    migrator m = {.store = pr__pg_store_of(store), .opt = opt};
    TRY(pr__pg_ready(m.store, err));
    TRY(prepare(&m, err));
    uint32_t before = m.version;
    for (size_t i = before; i < pr__postgres_migration_count; i++)
        TRY(migrate_one(&m, &pr__postgres_migrations[i], err));
    TRY(change_settings(&m, err));
    m.store->settings.generation = 0;
    if (!printing(&m)) {
        TRY(check_lanes(&m, err)); /* others may have made the schema meanwhile */
        TRY(pr__pg_schema_version(&m.store->conn, &m.version, err));
    }
    uint32_t size = ret_report->size;
    *ret_report = (pr_migrate_report){size, before, m.version};
    return PR_OK;
}
