/*
 * What the tests of the PostgreSQL store share: a server, a fresh database with the schema in it,
 * stores on it, and children that work at the same time.
 *
 * A child is a fork with connections of its own; what it finds out goes into memory that is shared
 * with the test, or into its exit status.
 */
#ifndef PR_TESTS_POSTGRES_GROUND_H
#define PR_TESTS_POSTGRES_GROUND_H

#include <postroom/postgres.h>
#include <postroom/unit.h>

#include "port/store.h"
#include "support/postgres_db.h"

#define TYPE_PLACED "urn:message:shop:order-placed"
#define TO_BROKER   "broker://topic/urn:message:shop:order-placed"

typedef struct ground {
    char uri[POSTGRES_CONNINFO_SIZE];
    PGconn *db; /* other hands */
} ground;

/* A database with the schema; opt NULL = defaults. */
void ground_make(postgres_databases *on, const pr_migrate_options *opt, ground *ret_ground);
void ground_done(ground *of);
/* A store on it, or on another address. */
pr_store *ground_store(const char *uri);
void ground_migrate(const char *uri, const pr_migrate_options *opt);

/* Enqueue one message of this body in a unit of its own. */
void ground_post(pr_store *store, const char *key, const char *body);
/* Claim and publish until nothing is left; how many were published. See, if not NULL, is called for
   each. */
typedef void (*ground_see)(void *user, const pr__item *item);
size_t ground_drain(pr_store *store, int64_t lease_ms, ground_see see, void *user);

/* What the relay asks for, so many at most, with a lease of a second. */
pr__claim_options ground_claim_options(uint32_t batch_max);
/* Claim as the relay; NULL when there is nothing. A failure is the test's. */
pr__batch *ground_claim(pr_store *store, uint32_t batch_max);

void *shared_memory(size_t size); /* zero; stays until the end of the program */
typedef int (*child_work)(void *user, int n);
/* Run it in a child; a failed assertion there is a failure of child_wait. */
int child_start(child_work work, void *user, int n);
/* Its exit status must be wanted, in this time. */
void child_wait(int pid, int wanted, int64_t ms);
void sleep_ms(int64_t ms); /* a delay that a test is about, never a wait for a result */
int64_t now_ms(void);

/* Random numbers of a child: the same for the same seed. */
static inline uint32_t random_of(uint64_t *state, uint32_t below)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 33) % below;
}

#endif
