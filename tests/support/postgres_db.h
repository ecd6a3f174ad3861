/*
 * Plain libpq for tests: what other hands do beside the store. Each call fails the test with the
 * server's own words.
 */
#ifndef PR_TESTS_POSTGRES_DB_H
#define PR_TESTS_POSTGRES_DB_H

#include <libpq-fe.h>

#include "support/postgres_server.h"
#include "support/test.h"

/* What a test of the PostgreSQL store keeps between its cases: the server, and the number of the
   last database made on it. */
typedef struct postgres_databases {
    postgres_server *server;
    int made;
    bool hostile;      /* functions of the usual names stand in a schema evil */
    bool compatible;   /* databases take what the suites write in SQLite's words */
    char migrated[40]; /* a database that others are copies of; "" = none yet */
} postgres_databases;

/* Make a database of its own; its address. It goes with the server. */
void postgres_database_make(postgres_databases *of, char ret_uri[POSTGRES_CONNINFO_SIZE]);
/* The same as a copy of one of this name, on which nobody is. */
void postgres_database_copy(postgres_databases *of, const char *name,
                            char ret_uri[POSTGRES_CONNINFO_SIZE]);
/* The connection that is the server's own, to make databases by and to look after others. */
PGconn *postgres_maintenance(const postgres_databases *of);

PGconn *db_open(const char *conninfo);
/* Run statements; what a caller expects to fail goes through db_try. */
void db_run(PGconn *db, const char *sql);
/* True when it went well; the SQLSTATE ("" when there is none) otherwise. */
bool db_try(PGconn *db, const char *sql, char ret_sqlstate[6]);
/* The first column of the first row, as a number; true is 1; -1 when there is no row or it is null.
 */
int64_t db_number(PGconn *db, const char *sql);
/* The same as text; "" when there is none. */
void db_text(PGconn *db, const char *sql, char *out, size_t size);
/* The same on a connection of its own. */
int64_t db_number_at(const char *conninfo, const char *sql);
void db_run_at(const char *conninfo, const char *sql);
/* Wait until the number is at least wanted, with a deadline. */
void db_wait(PGconn *db, const char *sql, int64_t wanted, const char *label);

/* Replace {t} and {p}_ by the tables' schema; the result is the caller's: free(). */
char *db_expand(const char *sql, const char *qualifier);

#endif
