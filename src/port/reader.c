/*
 * What a reader takes.
 *
 * Invariant: the relay takes what leaves this store, every other reader exactly the destinations of
 * its filter; a message without a destination goes to its type's topic on the default transport.
 */
#include "port/reader.h"

#include <stdlib.h>
#include <string.h>

#include <postroom/address.h>

#include "base/error.h"
#include "base/text.h"

#define LOCAL      PR_TRANSPORT_LOCAL "://"
#define TOPIC_SIZE (sizeof "://topic/" + PR__SCHEME_SIZE_MAX + PR_TYPE_SIZE_MAX)

static bool is_local(pr__span destination)
{
    return destination.size >= sizeof LOCAL - 1 &&
           memcmp(destination.text, LOCAL, sizeof LOCAL - 1) == 0;
}

static bool is_in_filter(const pr__reader_filter *filter, pr__span destination)
{
    for (size_t i = 0; i < filter->count; i++)
        if (strlen(filter->destinations[i]) == destination.size &&
            memcmp(filter->destinations[i], destination.text, destination.size) == 0)
            return true;
    return false;
}

bool pr__reader_takes(const pr__reader_filter *filter, const char *default_transport,
                      pr__span destination, pr__span type)
{
    if (filter->reader == PR_READER_RELAY)
        return destination.text ? !is_local(destination)
                                : !pr__text_equal(default_transport, PR_TRANSPORT_LOCAL);
    if (destination.text)
        return is_in_filter(filter, destination);
    char topic[TOPIC_SIZE];
    pr__format(topic, sizeof topic, "%s://topic/%.*s", default_transport, (int)type.size,
               type.text ? type.text : "");
    return is_in_filter(filter, (pr__span){topic, strlen(topic)});
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

pr_status pr__reader_spec_sort(const pr__reader_spec *spec, const char *origin, void **ret_sorted,
                               size_t *ret_count, pr_error *err)
{
    if (spec->name[0] == '$')
        return pr__fail(err, PR_E_INVALID, origin, "reader '%s': names with $ are our own",
                        spec->name);
    AUTO(void) copy = pr__alloc_array(spec->destination_count, sizeof(char *));
    if (!copy)
        return pr__fail_nomem(err, origin);
    const char **sorted = copy;
    for (size_t i = 0; i < spec->destination_count; i++) {
        if (pr__text_empty(spec->destinations[i]))
            return pr__fail(err, PR_E_INVALID, origin, "destination %zu of reader '%s' is empty", i,
                            spec->name);
        sorted[i] = spec->destinations[i];
    }
    qsort(sorted, spec->destination_count, sizeof *sorted, compare_texts);
    size_t count = 0;
    for (size_t i = 0; i < spec->destination_count; i++)
        if (count == 0 || strcmp(sorted[count - 1], sorted[i]) != 0)
            sorted[count++] = sorted[i];
    *ret_sorted = TAKE(copy);
    *ret_count = count;
    return PR_OK;
}

pr_status pr__reader_gone(int64_t reader, const char *origin, pr_error *err)
{
    return pr__fail(err, PR_E_NOT_FOUND, origin,
                    "reader %lld is gone: it was dropped, or it expired", (long long)reader);
}

pr_status pr__reader_unknown(int64_t reader, const char *origin, pr_error *err)
{
    return pr__fail(err, PR_E_NOT_FOUND, origin, "there is no reader %lld", (long long)reader);
}

pr_status pr__reader_conflict(const pr__reader_spec *spec, const char *origin, pr_error *err)
{
    return pr__fail(err, PR_E_CONFLICT, origin,
                    "subscription '%s' stands with other types: drop it, or use another name",
                    spec->name);
}
