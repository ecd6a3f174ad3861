/*
 * Text of migrations: placeholders and statements.
 *
 * Invariant: a statement ends at a semicolon outside of comments, quotes and dollar quotes.
 */
#include "store/postgres/migration.h"

#include <string.h>

#include "base/buffer.h"
#include "base/text.h"

void pr__pg_migration_role(const pr__pg_conn *conn, char *out, size_t size)
{
    pr__format(out, size, "%s_%sproducer", conn->schema, conn->prefix);
}

/* Is it one of ours? Then its value is appended. */
static bool append_value(pr__buffer *text, const char *name, size_t size,
                         const pr__pg_migration_values *values)
{
    const pr__pg_conn *conn = values->conn;
    char role[2 * PR__PG_NAME_SIZE + 16];
    pr__pg_migration_role(conn, role, sizeof role);
    const struct {
        const char *name;
        const char *value;
    } known[] = {{"p", conn->qualifier},
                 {"n", conn->prefix},
                 {"r", role},
                 {"default_transport", values->default_transport},
                 {"order", values->order}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strlen(known[i].name) == size && memcmp(known[i].name, name, size) == 0) {
            pr__buffer_append_text(text, known[i].value);
            return true;
        }
    }
    if (size == 1 && name[0] == 's')
        pr__buffer_printf(text, "\"%s\"", conn->schema);
    else if (size == 5 && memcmp(name, "lanes", 5) == 0)
        pr__buffer_printf(text, "%u", values->lanes);
    else if (size == 4 && memcmp(name, "mask", 4) == 0)
        pr__buffer_printf(text, "%u", values->lanes - 1);
    else
        return false;
    return true;
}

char *pr__pg_migration_render(const char *sql, const pr__pg_migration_values *values)
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
        at = close + 1;
        if (append_value(&text, open + 1, (size_t)(close - open - 1), values))
            continue;
        pr__buffer_append_char(&text, '{'); /* an empty array, or braces of somebody else */
        at = open + 1;
    }
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
