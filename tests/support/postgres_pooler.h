/*
 * PgBouncer in transaction mode before a test's server: every transaction may meet another session.
 *
 * It ends with the program that started it. Where it is not installed the whole test is skipped, or
 * fails when backends are required.
 */
#ifndef PR_TESTS_POSTGRES_POOLER_H
#define PR_TESTS_POSTGRES_POOLER_H

#include "support/postgres_server.h"

typedef struct postgres_pooler postgres_pooler;

/* sessions: how many the pooler opens to one database. */
postgres_pooler *postgres_pooler_start(const postgres_server *server, int sessions);
void postgres_pooler_free(postgres_pooler *pooler); /* accepts NULL */
/* The folder of its socket; its port is the server's. */
const char *postgres_pooler_folder(const postgres_pooler *pooler);

#endif
