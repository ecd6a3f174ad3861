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

static void append_value(pr__buffer *text, const char *name, size_t size,
                         const pr__migration_values *values)
{
    if (size == 1 && name[0] == 'p')
        pr__buffer_append_text(text, values->prefix);
    else if (size == 5 && memcmp(name, "lanes", 5) == 0)
        pr__buffer_printf(text, "%u", values->lanes);
    else if (size == 4 && memcmp(name, "mask", 4) == 0)
        pr__buffer_printf(text, "%u", values->lanes - 1);
    else if (size == 17 && memcmp(name, "default_transport", 17) == 0)
        pr__buffer_append_text(text, values->default_transport);
    else if (size == 5 && memcmp(name, "order", 5) == 0)
        pr__buffer_append_text(text, values->order);
    else { /* braces of somebody else */
        pr__buffer_append_char(text, '{');
        pr__buffer_append(text, name, size);
        pr__buffer_append_char(text, '}');
    }
}

char *pr__migration_render(const char *sql, const pr__migration_values *values)
{
    AUTO_BUFFER text = PR_BUFFER_INIT;
    for (const char *at = sql;;) {
        const char *open = strchr(at, '{');
        const char *close = open ? strchr(open, '}') : NULL;
        if (!close) {
            pr__buffer_append_text(&text, at);
            return pr__buffer_take(&text);
        }
        pr__buffer_append(&text, at, (size_t)(open - at));
        append_value(&text, open + 1, (size_t)(close - open - 1), values);
        at = close + 1;
    }
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

size_t pr__migration_statement(const char *sql)
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

pr_status pr__migration_model(sqlite3 *db, const pr__migration_values *values, pr_error *err)
{
    for (size_t i = 0; i < pr__sqlite_migration_count; i++) {
        AUTO(char) sql = pr__migration_render(pr__sqlite_migrations[i].sql, values);
        if (!sql)
            return pr__fail_nomem(err, ORIGIN);
        if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
            return pr__fail(err, PR_E_BACKEND, ORIGIN, "the built-in schema does not build: %s",
                            sqlite3_errmsg(db));
    }
    return PR_OK;
}
