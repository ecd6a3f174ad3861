/*
 * The options of a cluster as arguments of tools/postgres-server, and its addresses.
 */
#include "support/postgres_server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/server_child.h"

#define ARGUMENTS_MAX (8 + 2 * POSTGRES_SETTINGS_MAX)

struct postgres_server {
    server_child *child;
    char folder[160];
};

postgres_server *postgres_server_start(const postgres_server_options *options)
{
    const char *template = getenv("POSTROOM_POSTGRES_TEMPLATE");
    const char *arguments[ARGUMENTS_MAX] = {NULL};
    char ready[SERVER_LINE_SIZE];
    size_t count = 0;
    if (template) {
        arguments[count++] = "--template";
        arguments[count++] = template;
    }
    if (options && options->fsync)
        arguments[count++] = "--fsync";
    if (options && options->fresh)
        arguments[count++] = "--fresh";
    if (options && options->locale) {
        arguments[count++] = "--locale";
        arguments[count++] = options->locale;
    }
    for (size_t i = 0; options && i < POSTGRES_SETTINGS_MAX && options->settings[i]; i++) {
        arguments[count++] = "--set";
        arguments[count++] = options->settings[i];
    }
    postgres_server *server = calloc(1, sizeof *server);
    if (!server)
        abort();
    server->child = server_child_start("POSTROOM_POSTGRES_SERVER", arguments, ready);
    snprintf(server->folder, sizeof server->folder, "%.*s", (int)strcspn(ready, " "), ready);
    return server;
}

void postgres_server_free(postgres_server *server)
{
    if (!server)
        return;
    server_child_free(server->child);
    free(server);
}

void postgres_server_ask(postgres_server *server, const char *command, char *ret_answer,
                         size_t size)
{
    server_child_ask(server->child, command, ret_answer, size);
}

void postgres_server_do(postgres_server *server, const char *command)
{
    postgres_server_ask(server, command, NULL, 0);
}

const char *postgres_server_folder(const postgres_server *server)
{
    return server->folder;
}

void postgres_folder_uri(const char *folder, const char *database,
                         char ret_uri[POSTGRES_CONNINFO_SIZE])
{
    snprintf(ret_uri, POSTGRES_CONNINFO_SIZE, "postgresql:///%s?host=%s&port=%d&user=postgres",
             database, folder, POSTGRES_SERVER_PORT);
}

void postgres_server_uri(const postgres_server *server, const char *database,
                         char ret_uri[POSTGRES_CONNINFO_SIZE])
{
    postgres_folder_uri(server->folder, database, ret_uri);
}
