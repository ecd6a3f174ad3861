/*
 * Readers of the log, as subscriptions need them.
 *
 * Owns: which addresses a subscription takes, and the name of its reader.
 * Keeps: the same endpoint with the same types, in whatever order, is the same reader.
 * Must not know: claims and deliveries.
 */
#include "transport/database/reader.h"

#include <stdlib.h>
#include <string.h>

#include <postroom/address.h>

#include "base/error.h"
#include "base/text.h"

#define ORIGIN       "database.subscribe"
#define LOCAL        PR_TRANSPORT_LOCAL "://"
#define REPLY_PREFIX "reply/" /* no endpoint id has a '/': a reply reader has its own name */

/* LOCAL and four more parts, "" for none; NULL when out of memory. */
static const char *join(pr__arena *arena, const char *a, const char *b, const char *c,
                        const char *d)
{
    const char *const parts[] = {LOCAL, a, b, c, d};
    size_t size = 1;
    for (size_t i = 0; i < 5; i++)
        size += strlen(parts[i]);
    char *text = pr__arena_alloc(arena, size);
    char *at = text;
    for (size_t i = 0; text && i < 5; i++) {
        size_t part = strlen(parts[i]);
        memcpy(at, parts[i], part);
        at += part;
    }
    return text;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The types sorted, each once. */
static const char **sort_types(pr__arena *arena, const pr_subscribe_options *options,
                               size_t *ret_count)
{
    const char **types = pr__arena_alloc(arena, (options->type_count + 1) * sizeof(*types));
    if (!types)
        return NULL;
    for (size_t i = 0; i < options->type_count; i++)
        types[i] = options->types[i];
    qsort(types, options->type_count, sizeof(*types), by_text);
    size_t count = 0;
    for (size_t i = 0; i < options->type_count; i++) {
        if (count == 0 || strcmp(types[count - 1], types[i]) != 0)
            types[count++] = types[i];
    }
    *ret_count = count;
    return types;
}

/* Everything in the spec lives in the arena. An endpoint takes the topics of its types, in/<id> and
   in/<urn>/<id>; a temporary subscription its topics and reply/<id>. */
static pr_status make_spec(pr__arena *arena, const pr_subscribe_options *options,
                           pr__reader_spec *ret_spec, pr_error *err)
{
    size_t type_count = 0;
    const char **types = sort_types(arena, options, &type_count);
    const char **destinations = pr__arena_alloc(arena, (2 * type_count + 1) * sizeof(*types));
    if (!types || !destinations)
        return pr__fail_nomem(err, ORIGIN);
    size_t count = 0;
    destinations[count++] =
        join(arena, options->temporary ? REPLY_PREFIX : "in/", options->endpoint, "", "");
    for (size_t i = 0; i < type_count; i++) {
        destinations[count++] = join(arena, "topic/", types[i], "", "");
        if (options->temporary)
            continue;
        destinations[count++] = join(arena, "in/", types[i], "/", options->endpoint);
    }
    for (size_t i = 0; i < count; i++) {
        if (!destinations[i])
            return pr__fail_nomem(err, ORIGIN);
    }
    *ret_spec = (pr__reader_spec){
        .name = options->temporary ? destinations[0] + strlen(LOCAL) : options->endpoint,
        .destinations = destinations,
        .destination_count = count,
        .temporary = options->temporary,
        .expiry_ms = options->expiry_ms ? options->expiry_ms : PR__EXPIRY_MS_DEFAULT,
    };
    return PR_OK;
}

static pr_status attach(pr_store *store, pr__arena *arena, const pr_subscribe_options *options,
                        int64_t *ret_reader, pr_error *err)
{
    pr__reader_spec spec;
    TRY(make_spec(arena, options, &spec, err));
    bool exists = false;
    if (options->temporary)
        TRY(pr__store_reader_exists(store, spec.destinations[0], &exists, err));
    if (exists)
        return pr__fail(err, PR_E_CONFLICT, ORIGIN,
                        "the temporary subscription '%s' is open already; use another id",
                        options->endpoint);
    pr_status status = pr__store_reader_open(store, &spec, ret_reader, err);
    if (status == PR_E_CONFLICT)
        pr__error_context(err, "endpoint '%s' stands with other types", options->endpoint);
    return status;
}

pr_status pr__reader_attach(pr_store *store, const pr_subscribe_options *options,
                            int64_t *ret_reader, pr_error *err)
{
    AUTO(pr__arena) arena = pr__arena_new(0);
    if (!arena)
        return pr__fail_nomem(err, ORIGIN);
    return attach(store, arena, options, ret_reader, err);
}

pr_status pr__reader_look_up(pr_store *store, const pr_subscribe_options *options,
                             int64_t *ret_reader, pr_error *err)
{
    AUTO(pr__arena) arena = pr__arena_new(0);
    pr__reader_spec spec;
    if (!arena)
        return pr__fail_nomem(err, ORIGIN);
    TRY(make_spec(arena, options, &spec, err));
    return pr__store_reader_find(store, spec.name, ret_reader, err);
}

pr_status pr__reader_verify(pr_store *store, const pr_subscribe_options *options, pr_error *err)
{
    AUTO(pr__arena) arena = pr__arena_new(0);
    pr__reader_spec spec;
    bool exists = false;
    if (!arena)
        return pr__fail_nomem(err, ORIGIN);
    TRY(make_spec(arena, options, &spec, err));
    TRY(pr__store_reader_exists(store, spec.destinations[0], &exists, err));
    if (!exists)
        return pr__fail(err, PR_E_NOT_FOUND, ORIGIN, "there is no reader of endpoint '%s'",
                        options->endpoint);
    int64_t reader; /* it stands, so opening it only compares */
    return attach(store, arena, options, &reader, err);
}
