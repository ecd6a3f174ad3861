/*
 * Text of migrations: placeholders and statements.
 */
#include "store/sqlite/migration.h"

#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"

#define ORIGIN "sqlite.migrate"

static bool append_own(const void *user, const char *name, size_t size, pr__buffer *text)
{
    if (size != 1 || name[0] != 'p')
        return false;
    pr__buffer_append_text(text, user);
    return true;
}

char *pr__sqlite_migration_render(const char *sql, const char *prefix,
                                  const pr__migration_values *values)
{
    return pr__migration_render(sql, values, append_own, prefix);
}

/* Is there anything but blanks and comments? */
static bool blank(const char *sql)
{
    while (*sql) {
        if (sql[0] == '-' && sql[1] == '-')
            sql += strcspn(sql, "\n");
        else if (strchr(" \t\r\n;", *sql))
            sql++;
        else
            return false;
    }
    return true;
}

size_t pr__sqlite_migration_statement(const char *sql)
{
    if (blank(sql))
        return 0;
    for (const char *end = strchr(sql, ';'); end; end = strchr(end + 1, ';')) {
        size_t size = (size_t)(end - sql) + 1;
        AUTO(char) part = pr__strndup(sql, size);
        if (part && sqlite3_complete(part))
            return size;
    }
    return strlen(sql);
}

pr_status pr__sqlite_migration_model(sqlite3 *db, const char *prefix,
                                     const pr__migration_values *values, pr_error *err)
{
    for (size_t i = 0; i < pr__sqlite_migration_count; i++) {
        AUTO(char) sql = pr__sqlite_migration_render(pr__sqlite_migrations[i].sql, prefix, values);
        if (!sql)
            return pr__fail_nomem(err, ORIGIN);
        if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
            return pr__fail(err, PR_E_BACKEND, ORIGIN, "the built-in schema does not build: %s",
                            sqlite3_errmsg(db));
    }
    return PR_OK;
}
