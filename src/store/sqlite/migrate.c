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
#include "port/state.h"
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
        size_t size = pr__migration_statement(sql);
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
    AUTO(char) sql = pr__migration_render(migration->sql, &m->values);
    if (!sql)
        return pr__fail_nomem(err, ORIGIN);
    TRY(apply_all(m, sql, err));
    AUTO_BUFFER row = PR_BUFFER_INIT;
    pr__buffer_printf(&row,
                      "INSERT INTO %s_schema_version (version, name, applied_at) VALUES (%u, '%s', "
                      "CAST(strftime('%%s', 'now') AS INTEGER) * 1000000);",
                      m->values.prefix, migration->version, migration->name);
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
    AUTO_BUFFER sql = PR_BUFFER_INIT;
    const char *prefix = m->values.prefix;
    if (m->opt && m->opt->default_transport)
        pr__buffer_printf(&sql,
                          "UPDATE %s_setting SET value = '%s' WHERE name = 'default_transport' AND "
                          "value <> '%s';\n",
                          prefix, m->opt->default_transport, m->opt->default_transport);
    if (m->opt && m->opt->relay_order != PR_ORDER_DEFAULT)
        pr__buffer_printf(&sql,
                          "UPDATE %s_subscription SET order_policy = '%s' WHERE reader = 1 AND "
                          "order_policy <> '%s';\n",
                          prefix, m->values.order, m->values.order);
    const char *text = pr__buffer_text(&sql);
    if (!text)
        return pr__fail_nomem(err, ORIGIN);
    if (sql.size == 0)
        return PR_OK;
    pr__sqlite_conn *conn = &m->store->conn;
    if (printing(m))
        return apply_all(m, text, err);
    TRY(pr__sqlite_begin(conn, /* write= */ true, err));
    return pr__sqlite_end(conn, apply_all(m, text, err), err);
}

static pr_status prepare(migrator *m, pr_error *err)
{
    const char *transport = m->opt ? m->opt->default_transport : NULL;
    if (transport && !pr__sqlite_transport_valid(transport))
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "default_transport '%s' is no transport: [a-z][a-z0-9+.-]*, at most %d "
                        "bytes",
                        transport, PR__SQLITE_TRANSPORT_SIZE - 1);
    pr__sqlite_conn *conn = &m->store->conn;
    TRY(pr__sqlite_schema_encoding(m->store, err));
    TRY(pr__sqlite_schema_version(conn, &m->version, err));
    if (m->version > pr__sqlite_migration_count)
        return pr__sqlite_schema_newer(m->store, m->version, err);
    uint32_t lanes = m->opt ? m->opt->lanes : 0;
    m->values = (pr__migration_values){
        .prefix = conn->prefix,
        .default_transport = transport ? transport : "database",
        .order = pr__order_text(m->opt ? m->opt->relay_order : PR_ORDER_DEFAULT),
        .lanes = lanes ? lanes : PR_LANES_DEFAULT};
    if (m->version == 0)
        return PR_OK;
    m->store->settings.known = false;
    TRY(pr__sqlite_settings_load(m->store, err));
    if (lanes != 0 && lanes != m->store->settings.lanes)
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "lanes is %u, but the store was created with %u: it is fixed at creation",
                        lanes, m->store->settings.lanes);
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
