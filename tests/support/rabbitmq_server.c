/*
 * The options of a broker as arguments of tools/rabbitmq-server, and what tests ask of it.
 */
#include "support/rabbitmq_server.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/server_child.h"

#define ARGUMENTS_MAX (4 + 2 * RABBITMQ_SETTINGS_MAX)

struct rabbitmq_server {
    server_child *child;
    int port, tls_port;
    char folder[160];
};

rabbitmq_server *rabbitmq_server_start(const rabbitmq_server_options *options)
{
    const char *arguments[ARGUMENTS_MAX] = {NULL};
    char ready[SERVER_LINE_SIZE];
    size_t count = 0;
    if (options && options->tls)
        arguments[count++] = "--tls";
    for (size_t i = 0; options && i < RABBITMQ_SETTINGS_MAX && options->settings[i]; i++) {
        arguments[count++] = "--set";
        arguments[count++] = options->settings[i];
    }
    rabbitmq_server *server = calloc(1, sizeof *server);
    if (!server)
        abort();
    server->child = server_child_start("POSTROOM_RABBITMQ_SERVER", arguments, ready);
    char *end = ready + strcspn(ready, " ");
    snprintf(server->folder, sizeof server->folder, "%.*s", (int)(end - ready), ready);
    server->port = (int)strtol(end, &end, 10);
    server->tls_port = (int)strtol(end, &end, 10);
    return server;
}

void rabbitmq_server_free(rabbitmq_server *server)
{
    if (!server)
        return;
    server_child_free(server->child);
    free(server);
}

void rabbitmq_server_do(rabbitmq_server *server, const char *command)
{
    server_child_ask(server->child, command, NULL, 0);
}

void rabbitmq_server_eval(rabbitmq_server *server, char *ret_value, size_t size, const char *format,
                          ...)
{
    char command[SERVER_LINE_SIZE] = "eval ";
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(command + 5, sizeof command - 6, format, arguments);
    va_end(arguments);
    server_child_ask(server->child, command, ret_value, size);
}

void rabbitmq_server_vhost(rabbitmq_server *server, const char *name)
{
    rabbitmq_server_eval(server, NULL, 0,
                         "V = <<\"%s\">>, U = <<\"test\">>, A = <<\".*\">>, "
                         "case rabbit_vhost:exists(V) of true -> rabbit_vhost:delete(V, U); "
                         "false -> ok end, rabbit_vhost:add(V, U), "
                         "rabbit_auth_backend_internal:"
                         "set_permissions(<<\"guest\">>, V, A, A, A, U)",
                         name);
}

void rabbitmq_server_vhost_remove(rabbitmq_server *server, const char *name)
{
    rabbitmq_server_eval(server, NULL, 0, "rabbit_vhost:delete(<<\"%s\">>, <<\"test\">>)", name);
}

long rabbitmq_server_depth(rabbitmq_server *server, const char *vhost, const char *queue)
{
    char value[64];
    rabbitmq_server_eval(
        server, value, sizeof value,
        "case rabbit_amqqueue:lookup(rabbit_misc:r(<<\"%s\">>, queue, <<\"%s\">>)) of "
        "{ok, Q} -> [{messages, N}] = rabbit_amqqueue:info(Q, [messages]), N; _ -> -1 end",
        vhost, queue);
    return strtol(value, NULL, 10);
}

const char *rabbitmq_server_folder(const rabbitmq_server *server)
{
    return server->folder;
}

int rabbitmq_server_port(const rabbitmq_server *server)
{
    return server->port;
}

int rabbitmq_server_tls_port(const rabbitmq_server *server)
{
    return server->tls_port;
}

void rabbitmq_server_uri(const rabbitmq_server *server, const char *vhost,
                         char ret_uri[RABBITMQ_URI_SIZE])
{
    snprintf(ret_uri, RABBITMQ_URI_SIZE, "amqp://guest:guest@localhost:%d/%s", server->port, vhost);
}
