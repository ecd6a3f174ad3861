/*
 * The PostgreSQL store as a provider of the store suites: a database of its own for each case, on a
 * server that is the program's.
 */
#ifndef PR_TESTS_POSTGRES_WORLD_H
#define PR_TESTS_POSTGRES_WORLD_H

#include "contract/store_provider.h"
#include "support/postgres_db.h"

typedef struct postgres_world {
    char uri[POSTGRES_CONNINFO_SIZE];       /* the server's */
    char store_uri[POSTGRES_CONNINFO_SIZE]; /* the pooler's, where there is one */
    bool pooled;
    PGconn *db; /* other hands; opened on first use */
} postgres_world;

extern const store_provider postgres_provider;

/*
 * Start the server, run a suite, stop the server. By the environment's POSTROOM_POSTGRES_MODE:
 * hostile  the server has settings under which careless statements fail or say something else, and
 *          functions of the usual names stand in a schema that comes first
 * pooled   stores go through PgBouncer in transaction mode; the host's connection does not
 */
int postgres_suite_run(int (*suite)(void));

postgres_world *postgres_world_new(void);
void postgres_world_free(postgres_world *world);
PGconn *postgres_world_db(postgres_world *world);
/* The database's clock is moved on by ms. */
void postgres_world_pass(postgres_world *world, int64_t ms);
/* From now on it moves by postgres_world_pass alone. */
void postgres_world_stand_still(postgres_world *world);

#endif
