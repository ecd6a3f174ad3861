/*
 * Steps of the inbox, for its suite: each in a transaction of its own unless it takes a unit. The
 * consumer is always the same; keys are without tenant.
 */
#ifndef PR_TESTS_INBOX_STEPS_H
#define PR_TESTS_INBOX_STEPS_H

#include "contract/store_fixture.h"

#define CONSUMER "billing"
#define LEASE_MS 10000

extern const pr__inbox_key inbox_base_key; /* of message m-1 */

pr__inbox_key inbox_key_of(const char *id);
pr_message inbox_message(const char *id, const char *key, const char *body);
void inbox_hash(const char *body, uint8_t ret_hash[PR_CONTENT_HASH_SIZE]);
pr__mark inbox_mark_in(pr_unit *unit, const pr__inbox_key *key, const char *body);
pr__mark inbox_mark_now(pr_store *store, const pr__inbox_key *key, const char *body);
bool inbox_park_message(pr_store *store, const pr__inbox_key *key, const pr_message *message,
                        const pr__inbox_park *park);
bool inbox_park_row(store_fixture *fix, const char *id, const char *message_key, pr_state state,
                    int64_t delay_ms);
bool inbox_find_row(pr_store *store, const char *id, pr__inbox_row *ret_row);
bool inbox_repark_row(pr_store *store, const char *id, const char *token,
                      const pr__inbox_park *park);
bool inbox_unpark_row(pr_store *store, const char *id, const char *token);
pr__batch *inbox_claim_as(pr_store *store, pr_order order, uint32_t max);
pr__batch *inbox_claim_all(pr_store *store);
int64_t inbox_due_ms(pr_store *store, pr_order order);
const char *inbox_ids(pr__batch *batch, char *out, size_t size);

#endif
