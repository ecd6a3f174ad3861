/*
 * Domain events of an aggregate: an object embeds a pr_event_source and raises events into it; the
 * unit that tracks it encodes and enqueues them at commit. They are never dispatched during a save.
 */
#ifndef POSTROOM_EVENT_SOURCE_H
#define POSTROOM_EVENT_SOURCE_H

#include <stddef.h>
#include <stdint.h>

#include <postroom/error.h>

typedef struct pr_event_source {
    uint32_t size;                  /* set by pr_event_source_init */
    uint32_t count;                 /* raised and not yet committed; read only */
    struct pr__raised_event *first; /* internal */
    struct pr__raised_event *last;  /* internal */
} pr_event_source;

PR_BEGIN_DECLS

/**
 * Make an embedded source ready.
 *
 * Owner   source is the caller's memory; end it with pr_event_source_done().
 * Since   0.1
 */
PR_API void pr_event_source_init(pr_event_source *source);

/**
 * Drop all events that are still raised.
 *
 * Owner   accepts NULL.
 * Since   0.1
 */
PR_API void pr_event_source_done(pr_event_source *source);

/**
 * Raise an event: an object of the contract (type, type_version), copied shallowly, so what its
 * fields point to must live until the unit has committed.
 *
 * Shape   key: the order scope, usually the aggregate's id; may be NULL.
 * Owner   type, key and event[0..event_size) are copied.
 * Errors  INVALID, LIMIT, NOMEM.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_event_source_raise(pr_event_source *source, const char *type,
                                                     uint32_t type_version, const char *key,
                                                     const void *event, size_t event_size,
                                                     pr_error *err);

PR_END_DECLS

#endif
