/*
 * Steps of operations, for their suites: messages brought into each state through the port, and
 * lists collected as text.
 */
#ifndef PR_TESTS_OPERATIONS_STEPS_H
#define PR_TESTS_OPERATIONS_STEPS_H

#include <postroom/operations.h>

#include "contract/store_fixture.h"

#define DESTINATION   "memory://in/books"
#define OPERATOR      "ada"
#define REASON        "mended"
#define LONG_LEASE_MS 3600000
#define IDS_SIZE      8192

typedef struct id_text {
    char id[37];
} id_text;

/* Enqueue one in a transaction of its own; key and destination may be NULL. */
id_text post(store_fixture *fix, const char *key, const char *destination);
id_text post_message(store_fixture *fix, const pr_message *message);

/* Claim everything that is pending, or parked and due, for the relay and settle it with one result,
   failed ones due after delay_ms. Returns how many there were. */
uint32_t settle_pending(store_fixture *fix, pr__result result, int64_t delay_ms);
uint32_t settle_parked(store_fixture *fix, pr__result result, int64_t delay_ms);
/* One message that is dead. */
id_text post_dead(store_fixture *fix, const char *key, const char *destination);

/* A message of a consumer's inbox, parked in a state. */
void park_at(store_fixture *fix, const char *consumer, const char *id, const char *key,
             pr_state state);

/* What a list gives, page by page, as "id,id,…"; the records' states must be what was asked for. */
const char *listed(store_fixture *fix, const pr_list_options *opt, char out[IDS_SIZE]);
pr_list_options list_of(pr_box box, pr_state state);

/* The only record of an id. */
typedef struct shown {
    uint32_t count;
    pr_record record; /* of the first; text is not kept */
    char body[64];
    char last_error[64];
    char unreadable[128];
} shown;
shown show(store_fixture *fix, const char *id);

pr_redrive_options redrive_one(const char *id);
pr_redrive_options redrive_where(const char *type, const char *destination);
uint64_t redrive(store_fixture *fix, const pr_redrive_options *opt, const char *label);
void check_redrive_refused(store_fixture *fix, const pr_redrive_options *opt, pr_status wanted,
                           const char *text, const char *label);
pr_explanation explain(store_fixture *fix, const char *id);

#endif
