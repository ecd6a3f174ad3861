/*
 * Records: rows of the log, of the parked tables and of the inbox as operations show them.
 *
 * They are gathered inside a read transaction and handed over after it, so that no callback of
 * somebody else runs while a transaction is open.
 */
#ifndef PR_STORE_SQLITE_RECORD_H
#define PR_STORE_SQLITE_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <postroom/operations.h>

#include "base/memory.h"
#include "store/sqlite/store.h"

/* The state that the views show of a parked row; the table has the alias t. */
#define PR__PARKED_STATE                                                                           \
    "CASE WHEN t.state = 'processing' THEN 'publishing' "                                          \
    "WHEN t.state = 'failed' AND t.attempts = 0 AND t.redriven_at IS NOT NULL THEN 'pending' "     \
    "ELSE t.state END"

/* The marks of a message id, without an index by id: one look for each (tenant, consumer). The
   expression is named m; ?1 is the id. */
#define PR__MARKS_OF_ID                                                                            \
    "WITH RECURSIVE pair (tenant, consumer) AS ("                                                  \
    "SELECT * FROM (SELECT tenant, consumer FROM {p}_inbox ORDER BY tenant, consumer LIMIT 1) "    \
    "UNION ALL SELECT "                                                                            \
    "(SELECT i.tenant FROM {p}_inbox AS i WHERE (i.tenant, i.consumer) > "                         \
    "(pair.tenant, pair.consumer) ORDER BY i.tenant, i.consumer LIMIT 1), "                        \
    "(SELECT i.consumer FROM {p}_inbox AS i WHERE (i.tenant, i.consumer) > "                       \
    "(pair.tenant, pair.consumer) ORDER BY i.tenant, i.consumer LIMIT 1) "                         \
    "FROM pair WHERE pair.tenant IS NOT NULL), "                                                   \
    "m AS (SELECT i.* FROM pair CROSS JOIN {p}_inbox AS i ON i.tenant = pair.tenant "              \
    "AND i.consumer = pair.consumer AND i.message_id = ?1) "

typedef struct pr__record_node pr__record_node;

typedef struct pr__records {
    pr__sqlite_store *store;
    pr__arena *arena; /* borrowed */
    pr__record_node *first, *last;
    uint32_t count;
    bool with_body;
} pr__records;

/* Append the row; *ret_found (may be NULL) false: it does not stand. */
pr_status pr__records_add_parked(pr__records *records, int64_t reader, int64_t log_id,
                                 bool *ret_found, pr_error *err);
/* A row of the log as a reader sees it, its parked copy included. A row that no reader takes is
   shown as the relay sees it: passed over, which is published. */
pr_status pr__records_add_log(pr__records *records, int64_t reader, int64_t log_id, pr_error *err);
pr_status pr__records_add_inbox(pr__records *records, int64_t place, pr_error *err);
pr_status pr__records_add_mark(pr__records *records, const char *tenant, const char *consumer,
                               const char *message_id, int64_t processed_at_us, pr_error *err);

/* Hand them over in order; returns how many were, the one that stopped it included. */
uint32_t pr__records_deliver(const pr__records *records, pr_record_callback callback, void *user);

#endif
