/*
 * What the cases of the store suite share: a world with a migrated store, messages, and the steps
 * of a holder.
 */
#ifndef PR_TESTS_LEDGER_FIXTURE_H
#define PR_TESTS_LEDGER_FIXTURE_H

#include "support/test.h"

#include "contract/ledger_provider.h"
#include "port/store.h"

#define TYPE_PLACED "urn:message:shop:order-placed"
#define TO_BROKER   "broker://topic/urn:message:shop:order-placed"
#define TO_LOCAL    "local://in/billing"
#define LEASE_MS    1000
#define STORES_MAX  6

typedef struct fixture {
    const ledger_provider *provider;
    void *world;
    pr_store *stores[STORES_MAX]; /* opened on first use; freed by the teardown */
    void *host;                   /* opened on first use */
    uint32_t random;              /* a fixed seed: a failure can be repeated */
    uint32_t made;                /* messages so far */
} fixture;

int fixture_setup(void **state);      /* 16 lanes */
int fixture_setup_lane(void **state); /* one lane */
int fixture_setup_bare(void **state); /* not migrated */
int fixture_teardown(void **state);

pr_store *store_at(fixture *fix, size_t index); /* another handle, as another process has it */
void *host_of(fixture *fix);
uint32_t random_below(fixture *fix, uint32_t limit);
void pass_ms(fixture *fix, int64_t ms);
int64_t count(fixture *fix, const char *sql); /* the value of a statement; {t} as in the provider */
void run(fixture *fix, const char *sql);
int64_t rows(fixture *fix, const char *table); /* of a whole table */
int64_t journal_rows(fixture *fix);
/* How many messages are in this state, in the view, for the reader. */
int64_t in_state(fixture *fix, int64_t reader, const char *state);

/* A message whose body is its number as text; key and destination may be NULL. */
typedef struct letter {
    char body[32];
    pr_message message;
} letter;
letter letter_to(fixture *fix, const char *destination, const char *key);

/* Enqueue in a unit of its own; its number, from 1. */
uint32_t post(fixture *fix, const char *destination, const char *key);
void post_many(fixture *fix, uint32_t number, const char *destination, const char *key);
void post_message(fixture *fix, const pr_message *message);
uint32_t number_of(const pr__item *item);

pr__claim_options claim_options(int64_t reader, uint32_t batch_max);
pr__batch *claim(fixture *fix, pr_store *store, int64_t reader, uint32_t batch_max); /* or NULL */
pr__batch *claim_some(fixture *fix, pr_store *store, int64_t reader, uint32_t batch_max);
pr__batch *claim_parked(fixture *fix, pr_store *store, int64_t reader, uint32_t batch_max);
void set_all(pr__batch *batch, pr__result result);
pr__item *item_of(pr__batch *batch, uint32_t number); /* fails when it is not there */
/* Close and settle; the report. The batch is freed by settle_free. */
pr__settle_report settle(fixture *fix, pr_store *store, pr__batch *batch);
pr__settle_report settle_free(fixture *fix, pr_store *store, pr__batch *batch);
int64_t due_ms(fixture *fix, pr_store *store, int64_t reader);

int64_t open_reader(fixture *fix, pr_store *store, const char *name, const char *destination,
                    pr_order order);

#endif
