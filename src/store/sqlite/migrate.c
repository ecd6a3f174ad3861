/*
 * Migrating: each numbered file in one BEGIN IMMEDIATE transaction together with its version row.
 *
 * Invariant: the version row of a migration stands exactly when all its statements do; the version
 * is read again inside the transaction, so that any number of processes may migrate at once.
 */
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/memory.h"
#include "base/text.h"
#include "store/sqlite/failure.h"
#include "store/sqlite/migration.h"
#include "store/sqlite/schema.h"
#include "store/sqlite/store.h"

#define ORIGIN "sqlite.migrate"

typedef struct migrator {
    pr__sqlite_store *store;
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
    if (printing(m)) {
        m->opt->print(m->opt->user, sql);
        return PR_OK;
    }
    PR_FAULT("store.before_migrate_statement");
    int code = sqlite3_exec(m->store->conn.db, sql, NULL, NULL, NULL);
    if (code != SQLITE_OK)
        return pr__sqlite_fail(&m->store->conn, code, err);
    PR_FAULT("store.after_migrate_statement");
    return PR_OK;
}

static pr_status apply_all(migrator *m, const char *sql, pr_error *err)
{
    while (true) {
        size_t size = pr__sqlite_migration_statement(sql);
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
    AUTO(char) sql = pr__sqlite_migration_render(migration->sql, m->store->conn.prefix, &m->values);
    if (!sql)
        return pr__fail_nomem(err, ORIGIN);
    TRY(apply_all(m, sql, err));
    AUTO_BUFFER row = PR_BUFFER_INIT;
    pr__buffer_printf(&row,
                      "INSERT INTO %s_schema_version (version, name, applied_at) VALUES (%u, '%s', "
                      "CAST(strftime('%%s', 'now') AS INTEGER) * 1000000);",
                      m->store->conn.prefix, migration->version, migration->name);
    const char *text = pr__buffer_text(&row);
    if (!text)
        return pr__fail_nomem(err, ORIGIN);
    return apply(m, text, err);
}

static pr_status print_one(migrator *m, const pr__migration *migration, pr_error *err)
{
    TRY(apply(m, "BEGIN IMMEDIATE;", err));
    TRY(apply_body(m, migration, err));
    return apply(m, "COMMIT;", err);
}

static pr_status migrate_one(migrator *m, const pr__migration *migration, pr_error *err)
{
    if (printing(m))
        return print_one(m, migration, err);
    pr__sqlite_conn *conn = &m->store->conn;
    TRY(pr__sqlite_begin(conn, /* write= */ true, err));
    uint32_t version = 0;
    pr_status status = pr__sqlite_schema_version(conn, &version, err);
    bool others = status == PR_OK && version >= migration->version; /* did it meanwhile */
    if (status == PR_OK && !others)
        status = apply_body(m, migration, err);
    if (status != PR_OK || others) {
        pr__sqlite_rollback(conn);
        if (status != PR_OK)
            pr__error_context(err, "migration %u (%s)", migration->version, migration->name);
        return status;
    }
    PR_FAULT("store.before_migrate_commit");
    TRY(pr__sqlite_commit(conn, err));
    PR_FAULT("store.after_migrate_commit");
    return PR_OK;
}

/* What may be changed later: the default transport and the relay's order. */
static pr_status change_settings(migrator *m, pr_error *err)
{
    char qualifier[PR_NAME_SIZE_MAX + 2];
    pr__format(qualifier, sizeof qualifier, "%s_", m->store->conn.prefix);
    AUTO(char) sql = pr__migration_changes(m->opt, qualifier);
    if (!sql)
        return pr__fail_nomem(err, ORIGIN);
    if (!*sql)
        return PR_OK;
    pr__sqlite_conn *conn = &m->store->conn;
    if (printing(m))
        return apply_all(m, sql, err);
    TRY(pr__sqlite_begin(conn, /* write= */ true, err));
    return pr__sqlite_end(conn, apply_all(m, sql, err), err);
}

static pr_status prepare(migrator *m, pr_error *err)
{
    TRY(pr__migration_check(m->opt, ORIGIN, err));
    pr__sqlite_conn *conn = &m->store->conn;
    TRY(pr__sqlite_schema_encoding(m->store, err));
    TRY(pr__sqlite_schema_version(conn, &m->version, err));
    if (m->version > pr__sqlite_migration_count)
        return pr__sqlite_schema_newer(m->store, m->version, err);
    m->values = pr__migration_values_of(m->opt);
    if (m->version == 0)
        return PR_OK;
    m->store->settings.known = false;
    TRY(pr__sqlite_settings_load(m->store, err));
    TRY(pr__migration_check_lanes(m->opt, m->store->settings.lanes, ORIGIN, err));
    m->values.lanes = m->store->settings.lanes;
    return PR_OK;
}

pr_status pr__sqlite_migrate(pr_store *store, const pr_migrate_options *opt,
                             pr_migrate_report *ret_report, pr_error *err)
{
    migrator m = {.store = pr__sqlite_store_of(store), .opt = opt};
    TRY(pr__sqlite_ready(m.store, err));
    TRY(prepare(&m, err));
    if (!printing(&m))
        TRY(pr__sqlite_conn_use_wal(&m.store->conn, err));
    uint32_t before = m.version;
    for (size_t i = before; i < pr__sqlite_migration_count; i++)
        TRY(migrate_one(&m, &pr__sqlite_migrations[i], err));
    TRY(change_settings(&m, err));
    m.store->settings.known = false;
    if (!printing(&m))
        TRY(pr__sqlite_schema_version(&m.store->conn, &m.version, err));
    uint32_t size = ret_report->size;
    *ret_report = (pr_migrate_report){size, before, m.version};
    return PR_OK;
}
