/*
 * The inbox: marks and parked rows of consumers, in a unit's transaction; retries of the parked.
 */
#ifndef PR_STORE_POSTGRES_INBOX_H
#define PR_STORE_POSTGRES_INBOX_H

#include "port/store.h"
#include "store/postgres/unit.h"

pr_status pr__pg_inbox_mark(pr_unit *unit, const pr__inbox_key *key,
                            const uint8_t hash[PR_CONTENT_HASH_SIZE], pr__mark *ret_mark,
                            pr_error *err);
pr_status pr__pg_inbox_look(pr_unit *unit, const pr__inbox_key *key,
                            const uint8_t hash[PR_CONTENT_HASH_SIZE], pr__mark *ret_mark,
                            pr_error *err);
pr_status pr__pg_inbox_unmark(pr_unit *unit, const pr__inbox_key *key, pr_error *err);
pr_status pr__pg_inbox_find(pr_unit *unit, const pr__inbox_key *key,
                            const uint8_t hash[PR_CONTENT_HASH_SIZE], bool *ret_found,
                            pr__inbox_row *ret_row, pr_error *err);
pr_status pr__pg_inbox_blocked(pr_unit *unit, const pr__inbox_key *key, const char *message_key,
                               pr_order order, bool *ret_blocked, pr_error *err);
pr_status pr__pg_inbox_park(pr_unit *unit, const pr__inbox_key *key, const pr_message *message,
                            const pr__inbox_park *park, bool *ret_inserted, pr_error *err);
pr_status pr__pg_inbox_repark(pr_unit *unit, const pr__inbox_key *key, const char *token,
                              const pr__inbox_park *park, bool *ret_changed, pr_error *err);
pr_status pr__pg_inbox_unpark(pr_unit *unit, const pr__inbox_key *key, const char *token,
                              bool *ret_deleted, pr_error *err);

/* visit.c */
pr_status pr__pg_unit_enter(pr_store *store, const pr__inbox_visit *visit, pr_unit **ret_unit,
                            pr__inbox_facts *ret_facts, pr_error *err);
pr_status pr__pg_inbox_complete(pr_unit *unit, const pr__inbox_end *end, pr__inbox_check *ret_check,
                                pr_outcome *ret_outcome, pr_error *err);

/* inbox_batch.c */
pr_status pr__pg_inbox_enter_next(pr_unit *unit, pr__savepoint_step step,
                                  const pr__inbox_visit *visit, pr__inbox_facts *ret_facts,
                                  pr_error *err);
pr_status pr__pg_inbox_look_all(pr_unit *unit, const pr__inbox_visit *visits, size_t count,
                                bool *ret_stands, pr_error *err);
pr_status pr__pg_inbox_mark_all(pr_unit *unit, const pr__inbox_visit *visits, const bool *marked,
                                size_t count, bool *ret_all, pr_error *err);

/* The statements by which a message enters, to be run one after another in this order, and what
   their results say. $1 to $3 are the key; of the mark $4 is the hash; of `blocked` $4 is the
   message's key, and $5 whether dead ones block. */
extern const char pr__pg_sql_mark[];
extern const char pr__pg_sql_find[];
extern const char pr__pg_sql_blocked[];

/* Keep what the unit knows its transaction by, when the mark is a new one; else look at the one
   that stands. */
pr_status pr__pg_inbox_read_mark(pr__pg_unit *unit, const pr__inbox_key *key,
                                 const uint8_t hash[PR_CONTENT_HASH_SIZE], const PGresult *result,
                                 pr__mark *ret_mark, pr_error *err);
bool pr__pg_inbox_read_row(const PGresult *result, const uint8_t hash[PR_CONTENT_HASH_SIZE],
                           pr__inbox_row *ret_row);

pr_status pr__pg_inbox_claim(pr_store *store, const pr__inbox_claim_options *opt,
                             pr__batch **ret_batch, pr_error *err);
pr_status pr__pg_inbox_due(pr_store *store, const char *consumer, pr_order order,
                           int64_t *ret_next_ms, pr_error *err);
pr_status pr__pg_inbox_release(pr_store *store, const char *consumer, pr__batch *batch,
                               pr_error *err);
pr_status pr__pg_inbox_renew(pr_store *store, const char *consumer, pr__batch *batch,
                             int64_t lease_ms, pr_error *err);

#endif
