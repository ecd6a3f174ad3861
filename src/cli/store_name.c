/*
 * The names of stores.
 *
 * A PostgreSQL address may hold a password, so it is shown made anew from its host, port and
 * database, never as it was typed. Reading it is libpq's business alone.
 */
#include "cli/store_name.h"

#include <libpq-fe.h>
#include <string.h>

#include "base/text.h"

#define SQLITE_SCHEME "sqlite:"
#define BARE_POSTGRES "postgresql:"
#define LETTERS       "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

/* "key=value …" of which libpq knows every key. A path with '=' in it is none, unless it looks
   exactly like that; sqlite:PATH is then the way to say so. */
static bool is_conninfo(const char *text)
{
    if (!strchr(text, '='))
        return false;
    PQconninfoOption *options = PQconninfoParse(text, NULL);
    PQconninfoFree(options);
    return options != NULL;
}

/* "mysql:x" names another database, not a file; a file of that name is ./mysql:x or sqlite:mysql:x.
 */
static bool has_scheme(const char *text)
{
    size_t size = strspn(text, LETTERS "0123456789+.-");
    return size > 1 && text[size] == ':' && strchr(LETTERS, text[0]);
}

static bool is_bare_postgres(const char *text)
{
    return pr__text_equal(text, BARE_POSTGRES) || pr__text_equal(text, "postgres:");
}

pr__store_kind pr__store_kind_of(const char *text)
{
    if (pr__text_starts_with(text, SQLITE_SCHEME))
        return PR__STORE_SQLITE;
    if (pr__text_starts_with(text, "postgresql://") || pr__text_starts_with(text, "postgres://") ||
        is_bare_postgres(text))
        return PR__STORE_POSTGRES;
    if (has_scheme(text) || (strstr(text, "://") && !strchr(text, ' ')))
        return PR__STORE_OTHER;
    return is_conninfo(text) ? PR__STORE_POSTGRES : PR__STORE_SQLITE;
}

const char *pr__store_path(const char *text)
{
    if (pr__store_kind_of(text) != PR__STORE_SQLITE)
        return NULL;
    return pr__text_starts_with(text, SQLITE_SCHEME) ? text + strlen(SQLITE_SCHEME) : text;
}

const char *pr__store_conninfo(const char *text)
{
    return is_bare_postgres(text) ? "" : text;
}

static const char *value_of(const PQconninfoOption *options, const char *keyword)
{
    for (const PQconninfoOption *option = options; option && option->keyword; option++) {
        if (strcmp(option->keyword, keyword) == 0)
            return option->val ? option->val : "";
    }
    return "";
}

void pr__store_label(const char *text, char *out, size_t size)
{
    if (pr__store_kind_of(text) != PR__STORE_POSTGRES) {
        pr__format(out, size, "%s", text);
        return;
    }
    PQconninfoOption *options = PQconninfoParse(pr__store_conninfo(text), NULL);
    const char *host = value_of(options, "host"), *port = value_of(options, "port");
    if (host[0] == '/') /* a socket's folder is no part of an address */
        pr__format(out, size, "postgresql:///%s?host=%s%s%s", value_of(options, "dbname"), host,
                   port[0] ? "&port=" : "", port);
    else
        pr__format(out, size, "postgresql://%s%s%s/%s", host, port[0] ? ":" : "", port,
                   value_of(options, "dbname"));
    PQconninfoFree(options);
}
