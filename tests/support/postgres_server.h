/*
 * A PostgreSQL cluster of a test's own, by tools/postgres-server: started once a test program, on a
 * socket in its own folder, and gone afterwards however the program ends.
 *
 * No libpq here: who needs a connection takes the conninfo. The program's path and the file that
 * keeps the template come from the environment that Meson sets (postgres_test_env). Where no server
 * is installed the whole test is skipped, or fails when backends are required.
 */
#ifndef PR_TESTS_POSTGRES_SERVER_H
#define PR_TESTS_POSTGRES_SERVER_H

#include <stdbool.h>
#include <stddef.h>

#define POSTGRES_CONNINFO_SIZE 320
#define POSTGRES_SETTINGS_MAX  16

typedef struct postgres_server postgres_server;

typedef struct postgres_server_options {
    bool fsync;         /* flush to disk: crash tests */
    const char *locale; /* "de_DE": it speaks that language */
    bool fresh;         /* a system identifier of its own: takes 1 s more */
    const char *settings[POSTGRES_SETTINGS_MAX]; /* "name=value" */
} postgres_server_options;

/* Start one; options NULL = defaults. Ends the program when it cannot be done. */
postgres_server *postgres_server_start(const postgres_server_options *options);
/* Stop it and wait until its folder is gone. Accepts NULL. */
void postgres_server_free(postgres_server *server);

/* A command of tools/postgres-server, such as "restart immediate"; ends the program on an error. */
void postgres_server_do(postgres_server *server, const char *command);
/* The same; what came after "ok " in ret_answer. */
void postgres_server_ask(postgres_server *server, const char *command, char *ret_answer,
                         size_t size);

const char *postgres_server_folder(const postgres_server *server);
/* The address of a database of it, for libpq and --store. */
void postgres_server_uri(const postgres_server *server, const char *database,
                         char ret_uri[POSTGRES_CONNINFO_SIZE]);
/* The same for another folder with a server of the same port: a copy, a proxy, a pooler. */
void postgres_folder_uri(const char *folder, const char *database,
                         char ret_uri[POSTGRES_CONNINFO_SIZE]);
#define POSTGRES_SERVER_PORT 54399

#endif
