/*
 * The memory transport: topics and queues of one process, for tests and small programs. What was
 * not handled when the process ends is lost; the database transport (database.h) keeps it.
 */
#ifndef POSTROOM_MEMORY_H
#define POSTROOM_MEMORY_H

#include <postroom/transport.h>

typedef struct pr_memory_broker pr_memory_broker;

typedef struct pr_memory_options {
    uint32_t size;
    uint32_t window;             /* unconfirmed at most; <= 65,536; 0 = 256 */
    const char *name;            /* scheme in addresses; NULL = "memory" */
    const pr_observer *observer; /* borrowed; may be NULL */
    const pr_clock *clock;       /* borrowed; NULL = the system's */
    bool discard;                /* confirm everything and keep nothing: for benchmarks */
} pr_memory_options;

/* clang-format off */
#define PR_MEMORY_OPTIONS(...) {.size = (uint32_t)sizeof(pr_memory_options), __VA_ARGS__}
/* clang-format on */

PR_BEGIN_DECLS

/**
 * A broker in memory, shared by any number of transports and threads.
 *
 * Owner   *ret_broker is the caller's: pr_memory_broker_free(), after its transports.
 * Errors  NOMEM.
 * Thread  the broker may be used from any thread.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_memory_broker_new(pr_memory_broker **ret_broker, pr_error *err);

/**
 * Free a broker and all it holds.
 *
 * Owner   accepts NULL; returns NULL.
 * Since   0.1
 */
PR_API pr_memory_broker *pr_memory_broker_free(pr_memory_broker *broker);

/**
 * A transport onto a broker in memory.
 *
 * Owner   broker and what opt points to must outlive it; opt may be NULL. *ret_transport is the
 *         caller's: pr_transport_free().
 * Errors  INVALID: options, or a name that is no scheme. NOMEM.
 * Thread  one at a time; others clone it.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_memory_transport_new(pr_memory_broker *broker,
                                                       const pr_memory_options *opt,
                                                       pr_transport **ret_transport, pr_error *err);

PR_END_DECLS

#endif
