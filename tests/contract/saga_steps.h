/*
 * Steps of sagas, for their suite: each in a transaction of its own unless it takes a unit.
 */
#ifndef PR_TESTS_SAGA_STEPS_H
#define PR_TESTS_SAGA_STEPS_H

#include "contract/store_fixture.h"

#define SAGA_TYPE  "order"
#define INSTANCE_1 "019b0000-0000-7000-8000-000000000001"
#define INSTANCE_2 "019b0000-0000-7000-8000-000000000002"
#define TOKEN_1    "019b0000-0000-7000-8000-00000000000a"
#define TOKEN_2    "019b0000-0000-7000-8000-00000000000b"

pr__saga_key saga_key_of(const char *key);
bool saga_load_in(pr_unit *unit, const char *key, pr__arena *arena, pr__saga_row *ret_row);
/* In a transaction of its own; texts are lost with it, numbers and ids stay. */
bool saga_load_now(pr_store *store, const char *key, pr__saga_row *ret_row);
bool saga_insert_in(pr_unit *unit, const char *key, const char *instance_id);
bool saga_save_in(pr_unit *unit, const char *key, const pr__saga_save *save);
bool saga_save_now(pr_store *store, const char *key, const pr__saga_save *save);
pr__saga_save saga_state(const char *instance_id, int64_t version, const char *state);
/* Insert and save a first state. */
void saga_start(pr_store *store, const char *key, const char *instance_id, const char *state);
bool saga_lease_now(pr_store *store, const char *key, const char *token, int64_t lease_ms);
bool saga_renew_now(pr_store *store, const char *key, const char *token, int64_t lease_ms);
bool saga_unlease_now(pr_store *store, const char *key, const char *token);

#endif
