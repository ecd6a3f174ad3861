/*
 * A RabbitMQ broker of a test's own, by tools/rabbitmq-server: started once a test program, on
 * ports of its own, and gone afterwards however the program ends. Virtual hosts keep cases apart.
 *
 * It takes 9 to 13 s to start: put many cases into one program. What rabbitmqctl would do in
 * seconds, an expression evaluated in the broker does in milliseconds.
 */
#ifndef PR_TESTS_RABBITMQ_SERVER_H
#define PR_TESTS_RABBITMQ_SERVER_H

#include <stdbool.h>
#include <stddef.h>

#define RABBITMQ_SETTINGS_MAX 8
#define RABBITMQ_URI_SIZE     256

typedef struct rabbitmq_server rabbitmq_server;

typedef struct rabbitmq_server_options {
    bool tls;                                    /* certificates, and a second port */
    const char *settings[RABBITMQ_SETTINGS_MAX]; /* lines of rabbitmq.conf */
} rabbitmq_server_options;

/* Start one; options NULL = defaults. Ends the program when it cannot be done. */
rabbitmq_server *rabbitmq_server_start(const rabbitmq_server_options *options);
/* Stop it and wait until its folder is gone. Accepts NULL. */
void rabbitmq_server_free(rabbitmq_server *server);

/* A command of tools/rabbitmq-server, such as "restart kill"; ends the program on an error. */
void rabbitmq_server_do(rabbitmq_server *server, const char *command);
/* Evaluate Erlang in the broker; ret_value (may be NULL) gets the value as text. */
void rabbitmq_server_eval(rabbitmq_server *server, char *ret_value, size_t size, const char *format,
                          ...) __attribute__((format(printf, 4, 5)));
/* A new virtual host with all rights for guest; an existing one of that name is removed first. */
void rabbitmq_server_vhost(rabbitmq_server *server, const char *name);
void rabbitmq_server_vhost_remove(rabbitmq_server *server, const char *name);
/* Messages in a queue, ready and unacknowledged; -1 when there is no such queue. */
long rabbitmq_server_depth(rabbitmq_server *server, const char *vhost, const char *queue);

const char *rabbitmq_server_folder(const rabbitmq_server *server);
int rabbitmq_server_port(const rabbitmq_server *server);
int rabbitmq_server_tls_port(const rabbitmq_server *server); /* 0 without TLS */
/* "amqp://guest:guest@localhost:PORT/vhost" */
void rabbitmq_server_uri(const rabbitmq_server *server, const char *vhost,
                         char ret_uri[RABBITMQ_URI_SIZE]);

#endif
