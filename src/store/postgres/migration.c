/*
 * Text of migrations: placeholders and statements.
 *
 * Invariant: a statement ends at a semicolon outside of comments, quotes and dollar quotes.
 */
#include "store/postgres/migration.h"

#include <string.h>

#include "base/buffer.h"
#include "base/text.h"

/* The role that may enqueue: <schema>_<prefix>producer. */
static void write_role(const pr__pg_conn *conn, char *out, size_t size)
{
    pr__format(out, size, "%s_%sproducer", conn->schema, conn->prefix);
}

static bool append_own(const void *user, const char *name, size_t size, pr__buffer *text)
{
    const pr__pg_conn *conn = user;
    char role[2 * PR__PG_NAME_SIZE + 16];
    if (size != 1)
        return false;
    switch (name[0]) {
    case 'p':
        pr__buffer_append_text(text, conn->qualifier);
        return true;
    case 's':
        pr__buffer_printf(text, "\"%s\"", conn->schema);
        return true;
    case 'n':
        pr__buffer_append_text(text, conn->prefix);
        return true;
    case 'r':
        write_role(conn, role, sizeof role);
        pr__buffer_append_text(text, role);
        return true;
    }
    return false;
}

char *pr__pg_migration_render(const char *sql, const pr__pg_conn *conn,
                              const pr__migration_values *values)
{
    return pr__migration_render(sql, values, append_own, conn);
}

/* Behind a comment, a quoted text or a dollar quote that begins here; NULL when none does. */
static const char *skip_quoted(const char *at)
{
    const char *end = NULL;
    if (at[0] == '-' && at[1] == '-')
        return at + strcspn(at, "\n");
    if (at[0] == '\'' || at[0] == '"')
        end = strchr(at + 1, at[0]);
    else if (at[0] == '$' && at[1] == '$')
        end = strstr(at + 2, "$$");
    else
        return NULL;
    if (!end)
        return at + strlen(at);
    return end + (at[0] == '$' ? 2 : 1);
}

size_t pr__pg_migration_statement(const char *sql)
{
    bool blank = true;
    for (const char *at = sql; *at;) {
        const char *behind = skip_quoted(at);
        if (behind) {
            blank = blank && at[0] == '-';
            at = behind;
            continue;
        }
        if (*at == ';')
            return (size_t)(at - sql) + 1;
        blank = blank && strchr(" \t\r\n", *at);
        at++;
    }
    return blank ? 0 : strlen(sql);
}
