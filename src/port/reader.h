/*
 * Readers of the log, as far as no database is needed for them: which messages one takes, the form
 * of its filter, and the words for one that is not there.
 */
#ifndef PR_PORT_READER_H
#define PR_PORT_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/memory.h"
#include "port/route.h"
#include "port/store.h"

/* What the reader that was used last takes; a changed filter is another reader. */
typedef struct pr__reader_filter {
    int64_t reader; /* 0 = none */
    pr__arena *arena;
    const char **destinations;
    size_t count;
} pr__reader_filter;

/* Is a row of the log meant for that reader? destination.text may be NULL: the default transport's
   topic of the type. */
bool pr__reader_takes(const pr__reader_filter *filter, const char *default_transport,
                      pr__span destination, pr__span type);

/* The destinations sorted and without doubles, so that equal filters are written alike: an
   array of const char *, the caller's (pr__free()); the texts stay the spec's. INVALID: a name of
   our own, or an empty destination. */
pr_status pr__reader_spec_sort(const pr__reader_spec *spec, const char *origin, void **ret_sorted,
                               size_t *ret_count, pr_error *err);

/* NOT_FOUND: it stood there once, and was dropped or has expired. */
pr_status pr__reader_gone(int64_t reader, const char *origin, pr_error *err);
/* NOT_FOUND: there is none of that number. */
pr_status pr__reader_unknown(int64_t reader, const char *origin, pr_error *err);
/* CONFLICT: the name stands with another filter. */
pr_status pr__reader_conflict(const pr__reader_spec *spec, const char *origin, pr_error *err);

#endif
