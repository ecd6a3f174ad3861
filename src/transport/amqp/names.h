/*
 * Names: which exchange, queue and routing key stands for what. docs/wire.md has the table.
 */
#ifndef PR_TRANSPORT_AMQP_NAMES_H
#define PR_TRANSPORT_AMQP_NAMES_H

#include <stdbool.h>
#include <stddef.h>

#include <postroom/transport.h>

#include "port/route.h"

#define PR__AMQP_NAME_SIZE  256 /* a short string of AMQP 0-9-1 and a NUL */
#define PR__AMQP_PREFIX_MAX 100

/* Where a message is published to. */
typedef struct pr__amqp_target {
    char exchange[PR__AMQP_NAME_SIZE]; /* "" = the default exchange */
    char key[PR__AMQP_NAME_SIZE];
    bool mandatory;
} pr__amqp_target;

/* The names of one endpoint. */
typedef struct pr__amqp_names {
    char queue[PR__AMQP_NAME_SIZE];    /* <prefix><endpoint>, or <prefix>reply:<id> */
    char dead[PR__AMQP_NAME_SIZE];     /* <prefix><endpoint>.dead; "" for a temporary one */
    char exchange[PR__AMQP_NAME_SIZE]; /* <prefix>in:<endpoint>; "" for a temporary one */
} pr__amqp_names;

/* INVALID: too long, or characters that a name should not have. */
pr_status pr__amqp_prefix_check(const char *prefix, pr_error *err);

/* Errors are the message's: CONTENT (REFUSED), LIMIT (TOO_LARGE). */
pr_status pr__amqp_target_of(const pr_message *message, const char *scheme, const char *prefix,
                             pr__amqp_target *ret_target, pr_error *err);

/* CONTENT: the id is one that another name needs. LIMIT: too long with the prefix. */
pr_status pr__amqp_names_of(const pr_subscribe_options *options, const char *prefix,
                            pr__amqp_names *ret_names, pr_error *err);

/* The exchange of a type and the key that its queues are bound with, in any version. */
pr_status pr__amqp_binding_of(const char *type, const char *prefix, pr__amqp_target *ret_binding,
                              pr_error *err);

/* The set of types as one text: sorted, each once. It is an argument of the endpoint's exchange,
   so that the broker itself tells when another set is declared. */
pr_status pr__amqp_types_text(const pr_subscribe_options *options, const char *queue,
                              char out[PR__AMQP_NAME_SIZE], pr_error *err);

#endif
