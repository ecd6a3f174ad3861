/*
 * Opens what the command line names.
 *
 * Nothing but `migrate` makes a database: a file that is missing is an error, never an empty store.
 */
#include "cli/wiring.h"

#include <stdlib.h>
#include <string.h>

#include <postroom/amqp.h>
#include <postroom/database.h>
#include <postroom/postgres.h>
#include <postroom/sqlite.h>

#include "base/error.h"
#include "base/text.h"
#include "cli/store_name.h"

#define ORIGIN "cli.wiring"

const char *pr__wiring_store_name(const pr__common *common)
{
    const char *text = common->store ? common->store : getenv(PR__STORE_ENVIRONMENT);
    return pr__text_empty(text) ? NULL : text;
}

static pr_status open_sqlite(const char *text, const pr__store_request *request,
                             pr_store **ret_store, pr_error *err)
{
    const char *path = pr__store_path(text);
    if (path[0] == '\0')
        return pr__fail(err, PR_E_INVALID, ORIGIN, "the store '%s' has no path; use sqlite:PATH",
                        text);
    if (request->common->schema || request->common->pooler)
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "--schema and --pooler are for PostgreSQL, not for '%s'", text);
    pr_sqlite_options opt =
        PR_SQLITE_OPTIONS(.create = request->create,
                          .schema_check_off = request->create || request->schema_check_off,
                          .path = path, .prefix = request->common->prefix,
                          .busy_ms = pr__option_or(request->common->busy_ms, 0),
                          .body_size_max = request->body_size_max, .observer = request->observer);
    return pr_sqlite_store_open(&opt, ret_store, err);
}

static pr_status open_postgres(const char *text, const pr__store_request *request,
                               pr_store **ret_store, pr_error *err)
{
    pr_postgres_options opt =
        PR_POSTGRES_OPTIONS(.statements_off = request->common->pooler,
                            .schema_check_off = request->create || request->schema_check_off,
                            .conninfo = pr__store_conninfo(text), .schema = request->common->schema,
                            .prefix = request->common->prefix,
                            .busy_ms = pr__option_or(request->common->busy_ms, 0),
                            .body_size_max = request->body_size_max, .observer = request->observer);
    return pr_postgres_store_open(&opt, ret_store, err);
}

static pr_status open_named(const char *text, const pr__store_request *request,
                            pr_store **ret_store, pr_error *err)
{
    pr_error cause = PR_ERROR_INIT;
    char label[PR__STORE_LABEL_SIZE];
    pr_status status = PR_OK;
    pr__store_label(text, label, sizeof(label));
    switch (pr__store_kind_of(text)) {
    case PR__STORE_SQLITE:
        status = open_sqlite(text, request, ret_store, &cause);
        break;
    case PR__STORE_POSTGRES:
        status = open_postgres(text, request, ret_store, &cause);
        break;
    case PR__STORE_OTHER:
        if (pr__wiring_is_amqp(text) || pr__text_starts_with(text, "rabbitmq:"))
            return pr__fail(err, PR_E_UNSUPPORTED, ORIGIN,
                            "a broker is no store; name it amqp://HOST, with --to or --from");
        /* the address may hold a password: it is not shown */
        return pr__fail(err, PR_E_UNSUPPORTED, ORIGIN,
                        "stores of the kind '%.*s' are not built in; use sqlite:PATH or "
                        "postgresql://HOST/DATABASE",
                        (int)strcspn(text, ":"), text);
    }
    if (status == PR_E_NOT_FOUND)
        return pr__fail(err, status, ORIGIN,
                        "there is no store '%s'; make it with: postroom migrate --store %s", label,
                        label);
    if (status != PR_OK)
        pr__error_copy(err, &cause);
    return status;
}

pr_status pr__wiring_store(const pr__store_request *request, pr_store **ret_store, pr_error *err)
{
    const char *text = pr__wiring_store_name(request->common);
    if (!text)
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "no store is named; use --store sqlite:PATH, --store "
                        "postgresql://HOST/DATABASE, or set " PR__STORE_ENVIRONMENT);
    return open_named(text, request, ret_store, err);
}

/* The size of a transport's name that text begins with and '=' ends; 0 = none. */
static size_t name_size(const char *text)
{
    if (pr__store_kind_of(text) == PR__STORE_POSTGRES)
        return 0; /* host=… is an address of libpq, not a transport "host" */
    size_t size = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789+.-");
    if (size == 0 || text[size] != '=' || text[0] < 'a' || text[0] > 'z')
        return 0;
    return size;
}

bool pr__wiring_is_amqp(const char *text)
{
    return pr__text_starts_with(text, "amqp:") || pr__text_starts_with(text, "amqps:");
}

static pr_status open_amqp(const char *text, const pr__link_request *request, pr__link *link,
                           pr_error *err)
{
    pr_amqp_options opt =
        PR_AMQP_OPTIONS(.window = request->window, .flags = request->amqp_flags,
                        .queue_kind = request->queue_kind, .name = link->name,
                        .prefix = request->exchange_prefix, .observer = request->observer);
    if (strcmp(text, "amqp:") == 0) {
        text = getenv(PR__AMQP_ENVIRONMENT);
        if (pr__text_empty(text))
            return pr__fail(err, PR_E_INVALID, ORIGIN,
                            "'amqp:' means what " PR__AMQP_ENVIRONMENT " says, and it says "
                            "nothing; set it to amqp://USER:PASSWORD@HOST, or name that here");
    }
    return pr_amqp_transport_new(text, &opt, &link->transport, err);
}

static pr_status open_database(const char *text, const pr__link_request *request, pr__link *link,
                               pr_error *err)
{
    pr__store_request store = {.common = request->common, .observer = request->observer};
    TRY(open_named(text, &store, &link->store, err));
    pr_database_options opt = {.size = (uint32_t)sizeof(opt),
                               .name = link->name,
                               .owner = request->owner,
                               .observer = request->observer};
    return pr_database_transport_new(link->store, &opt, &link->transport, err);
}

pr_status pr__wiring_link(const pr__link_request *request, pr__link *ret_link, pr_error *err)
{
    pr__link link = {NULL, NULL, ""};
    size_t size = name_size(request->text);
    const char *target = size > 0 ? request->text + size + 1 : request->text;
    bool amqp = pr__wiring_is_amqp(target);
    if (size >= sizeof(link.name))
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "the transport name '%.*s' is longer than %zu bytes", (int)size,
                        request->text, sizeof(link.name) - 1);
    if (size > 0)
        pr__format(link.name, sizeof(link.name), "%.*s", (int)size, request->text);
    else
        pr__format(link.name, sizeof(link.name), "%s",
                   request->name ? request->name
                   : amqp        ? "rabbitmq"
                                 : "database");
    pr_status status =
        amqp ? open_amqp(target, request, &link, err) : open_database(target, request, &link, err);
    if (status != PR_OK) {
        pr__link_done(&link);
        return status;
    }
    *ret_link = link;
    return PR_OK;
}

void pr__link_done(pr__link *link)
{
    pr_transport_free(link->transport);
    pr_store_free(link->store);
    *link = (pr__link){NULL, NULL, ""};
}
