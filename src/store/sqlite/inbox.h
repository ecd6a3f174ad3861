/*
 * The inbox: marks and parked rows of consumers, in a unit's transaction; retries of the parked.
 */
#ifndef PR_STORE_SQLITE_INBOX_H
#define PR_STORE_SQLITE_INBOX_H

#include "port/store.h"

pr_status pr__sqlite_inbox_mark(pr_unit *unit, const pr__inbox_key *key,
                                const uint8_t hash[PR_CONTENT_HASH_SIZE], pr__mark *ret_mark,
                                pr_error *err);
pr_status pr__sqlite_inbox_look(pr_unit *unit, const pr__inbox_key *key,
                                const uint8_t hash[PR_CONTENT_HASH_SIZE], pr__mark *ret_mark,
                                pr_error *err);
pr_status pr__sqlite_inbox_unmark(pr_unit *unit, const pr__inbox_key *key, pr_error *err);
pr_status pr__sqlite_inbox_find(pr_unit *unit, const pr__inbox_key *key,
                                const uint8_t hash[PR_CONTENT_HASH_SIZE], bool *ret_found,
                                pr__inbox_row *ret_row, pr_error *err);
pr_status pr__sqlite_inbox_blocked(pr_unit *unit, const pr__inbox_key *key, const char *message_key,
                                   pr_order order, bool *ret_blocked, pr_error *err);
pr_status pr__sqlite_inbox_park(pr_unit *unit, const pr__inbox_key *key, const pr_message *message,
                                const pr__inbox_park *park, bool *ret_inserted, pr_error *err);
pr_status pr__sqlite_inbox_repark(pr_unit *unit, const pr__inbox_key *key, const char *token,
                                  const pr__inbox_park *park, bool *ret_changed, pr_error *err);
pr_status pr__sqlite_inbox_unpark(pr_unit *unit, const pr__inbox_key *key, const char *token,
                                  bool *ret_deleted, pr_error *err);

/* inbox_batch.c */
pr_status pr__sqlite_inbox_look_all(pr_unit *unit, const pr__inbox_visit *visits, size_t count,
                                    bool *ret_stands, pr_error *err);
pr_status pr__sqlite_inbox_mark_all(pr_unit *unit, const pr__inbox_visit *visits,
                                    const bool *marked, size_t count, bool *ret_all, pr_error *err);

pr_status pr__sqlite_inbox_claim(pr_store *store, const pr__inbox_claim_options *opt,
                                 pr__batch **ret_batch, pr_error *err);
pr_status pr__sqlite_inbox_due(pr_store *store, const char *consumer, pr_order order,
                               int64_t *ret_next_ms, pr_error *err);
pr_status pr__sqlite_inbox_release(pr_store *store, const char *consumer, pr__batch *batch,
                                   pr_error *err);
pr_status pr__sqlite_inbox_renew(pr_store *store, const char *consumer, pr__batch *batch,
                                 int64_t lease_ms, pr_error *err);

#endif
