/*
 * Errors of PostgreSQL, classified.
 *
 * Invariants: what is done about an error is decided by SQLSTATE alone, whatever language the
 * server speaks; a fatal error may come without a code, and then the connection is gone; no text
 * of the server but its primary message is passed on, for the detail shows values.
 */
#include "store/postgres/failure.h"

#include <string.h>

#include "base/error.h"
#include "base/text.h"

#define ORIGIN  "postgres"

#define MIGRATE "run `postroom migrate`, or look at the schema and its rights"
#define POOLER  "behind a pooler in transaction mode open the store without named statements"

static const pr__pg_class CLASSES[] = {
    {"", PR_E_BACKEND, PR_RETRY_RECONNECT, NULL},
    {"08", PR_E_BACKEND, PR_RETRY_RECONNECT, NULL},
    {"08P01", PR_E_BACKEND, PR_RETRY_RECONNECT, NULL},
    {"0A000", PR_E_BACKEND, PR_RETRY_SAME, NULL}, /* a cached plan after ALTER TABLE */
    {"22", PR_E_CONTENT, PR_RETRY_NEVER, NULL},
    {"22021", PR_E_CONTENT, PR_RETRY_NEVER, "text must be valid UTF-8"},
    {"23", PR_E_BACKEND, PR_RETRY_NEVER, NULL},
    {"23502", PR_E_CONTENT, PR_RETRY_NEVER, NULL},
    {"23514", PR_E_CONTENT, PR_RETRY_NEVER, NULL},
    {"25", PR_E_STATE, PR_RETRY_NEVER, NULL},
    {"25006", PR_E_BACKEND, PR_RETRY_RECONNECT,
     "the server is read-only: name all hosts and target_session_attrs=read-write"},
    {"25P02", PR_E_STATE, PR_RETRY_NEVER, "roll the transaction back"},
    {"25P03", PR_E_BACKEND, PR_RETRY_RECONNECT, NULL}, /* idle in transaction for too long */
    {"25P04", PR_E_BACKEND, PR_RETRY_RECONNECT, NULL}, /* transaction timeout */
    {"26000", PR_E_BACKEND, PR_RETRY_SAME, POOLER},
    {"28", PR_E_BACKEND, PR_RETRY_NEVER, "look at user, password and pg_hba.conf"},
    {"3D000", PR_E_BACKEND, PR_RETRY_NEVER, "create the database, or name another"},
    {"3F000", PR_E_SCHEMA, PR_RETRY_NEVER, MIGRATE},
    {"40", PR_E_BUSY, PR_RETRY_SAME, NULL},
    {"40001", PR_E_BUSY, PR_RETRY_SAME, NULL},
    {"40003", PR_E_BACKEND, PR_RETRY_UNKNOWN, NULL},
    {"40P01", PR_E_BUSY, PR_RETRY_SAME, NULL},
    {"42", PR_E_BACKEND, PR_RETRY_NEVER, NULL},
    {"42501", PR_E_BACKEND, PR_RETRY_NEVER, "grant the right to the role that connects"},
    {"42703", PR_E_SCHEMA, PR_RETRY_NEVER, MIGRATE},
    {"42883", PR_E_SCHEMA, PR_RETRY_NEVER, MIGRATE},
    {"42P01", PR_E_SCHEMA, PR_RETRY_NEVER, MIGRATE},
    {"42P05", PR_E_BACKEND, PR_RETRY_SAME, POOLER},
    {"53", PR_E_BACKEND, PR_RETRY_SAME, "the server lacks resources"},
    {"53100", PR_E_BACKEND, PR_RETRY_SAME, "make room on the server's disk"},
    {"53300", PR_E_BACKEND, PR_RETRY_RECONNECT, "the server has no connection left"},
    {"54", PR_E_LIMIT, PR_RETRY_NEVER, NULL},
    {"55", PR_E_BACKEND, PR_RETRY_NEVER, NULL},
    {"55006", PR_E_BUSY, PR_RETRY_SAME, NULL},
    {"55P03", PR_E_BUSY, PR_RETRY_SAME, "another transaction holds the lock: try again later"},
    {"57", PR_E_BACKEND, PR_RETRY_RECONNECT, NULL},
    {"57014", PR_E_BUSY, PR_RETRY_SAME, NULL}, /* statement timeout, or cancelled */
    {"57P01", PR_E_BACKEND, PR_RETRY_RECONNECT, NULL},
    {"57P02", PR_E_BACKEND, PR_RETRY_RECONNECT, NULL},
    {"57P03", PR_E_BACKEND, PR_RETRY_RECONNECT, NULL},
    {"57P04", PR_E_BACKEND, PR_RETRY_NEVER, "the database was dropped"},
    {"57P05", PR_E_BACKEND, PR_RETRY_RECONNECT, NULL},
    {"58", PR_E_BACKEND, PR_RETRY_RECONNECT, "look at the server's log"},
    {"72000", PR_E_BUSY, PR_RETRY_SAME, NULL},
    {"F0", PR_E_BACKEND, PR_RETRY_NEVER, "look at the server's configuration"},
    {"XX", PR_E_BACKEND, PR_RETRY_NEVER, "look at the server's log"},
};

static const pr__pg_class OTHER = {"?", PR_E_BACKEND, PR_RETRY_NEVER, NULL};

static const pr__pg_class *find(const char *code)
{
    for (size_t i = 0; i < sizeof CLASSES / sizeof CLASSES[0]; i++)
        if (strcmp(CLASSES[i].sqlstate, code) == 0)
            return &CLASSES[i];
    return NULL;
}

const pr__pg_class *pr__pg_classify(const char *sqlstate)
{
    const char *code = sqlstate ? sqlstate : "";
    const pr__pg_class *found = find(code);
    if (!found && strlen(code) == 5) {
        char class[3] = {code[0], code[1], '\0'};
        found = find(class);
    }
    return found ? found : &OTHER;
}

static pr_status fail(pr__pg_conn *conn, const pr__pg_class *class, const char *sqlstate,
                      const char *text, pr_error *err)
{
    bool first = err && err->status == PR_OK;
    pr_status status =
        pr__fail_retry(err, class->status, class->retry, ORIGIN, "%s%s%s%s%s%s", text,
                       *sqlstate ? " (" : "", sqlstate, *sqlstate ? ")" : "",
                       class->advice ? ": " : "", class->advice ? class->advice : "");
    if (first)
        pr__format(err->sqlstate, sizeof err->sqlstate, "%s", sqlstate);
    if (class->retry == PR_RETRY_RECONNECT || class->retry == PR_RETRY_UNKNOWN)
        pr__pg_conn_drop(conn);
    return status;
}

/* The first line, without the severity that libpq puts before it. */
static void first_line(const char *text, char *out, size_t size)
{
    size_t length = text ? strcspn(text, "\n") : 0;
    if (length == 0)
        pr__format(out, size, "the connection was lost");
    else
        pr__format(out, size, "%.*s", (int)(length < 600 ? length : 600), text);
}

pr_status pr__pg_fail_result(pr__pg_conn *conn, const PGresult *result, pr_error *err)
{
    const char *code = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char *primary = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    char text[640];
    first_line(primary ? primary : PQresultErrorMessage(result), text, sizeof text);
    const pr__pg_class *class = pr__pg_classify(code);
    if (pr__text_equal(class->sqlstate, "26000") || pr__text_equal(class->sqlstate, "42P05") ||
        pr__text_equal(class->sqlstate, "0A000"))
        pr__pg_conn_forget(conn);
    return fail(conn, class, code ? code : "", text, err);
}

pr_status pr__pg_fail_connection(pr__pg_conn *conn, const char *what, pr_error *err)
{
    char text[640];
    char line[600];
    first_line(conn->pg ? PQerrorMessage(conn->pg) : NULL, line, sizeof line);
    pr__format(text, sizeof text, "%s%s%s", what ? what : "", what ? ": " : "", line);
    return fail(conn, pr__pg_classify(""), "", text, err);
}

pr_status pr__pg_fail_deadline(pr__pg_conn *conn, int64_t limit_ms, pr_error *err)
{
    char text[96];
    pr__format(text, sizeof text, "the server did not answer within %lld ms", (long long)limit_ms);
    return fail(conn, pr__pg_classify(""), "", text, err);
}
