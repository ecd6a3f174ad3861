/*
 * From words on the command line to stores and transports: the only place that names adapters.
 */
#ifndef PR_CLI_WIRING_H
#define PR_CLI_WIRING_H

#include <stdbool.h>
#include <stdint.h>

#include <postroom/observer.h>
#include <postroom/store.h>
#include <postroom/transport.h>

#include "base/memory.h"
#include "cli/options.h"

#define PR__STORE_ENVIRONMENT "POSTROOM_STORE"
#define PR__AMQP_ENVIRONMENT  "POSTROOM_AMQP"

typedef struct pr__store_request {
    const pr__common *common;
    bool create;                 /* make the file and open it whatever its schema: migrate only */
    bool schema_check_off;       /* open it whatever its schema, make nothing: doctor */
    uint64_t body_size_max;      /* 0 = the default */
    const pr_observer *observer; /* may be NULL */
} pr__store_request;

/* Open --store, or POSTROOM_STORE. INVALID: none given, or of a kind that is not there. NOT_FOUND,
   SCHEMA: with the command that mends it. */
pr_status pr__wiring_store(const pr__store_request *request, pr_store **ret_store, pr_error *err);

/* The name of the store as given, for texts. NULL: none given. */
const char *pr__wiring_store_name(const pr__common *common);

/* Which transport is meant: "[NAME=]STORE" or "[NAME=]amqp://…". */
typedef struct pr__link_request {
    const char *text;
    const char *name; /* when text has none; NULL = "database" or "rabbitmq" */
    const pr__common *common;
    const char *owner;           /* may be NULL */
    const pr_observer *observer; /* may be NULL */
    const char *exchange_prefix; /* RabbitMQ; may be NULL */
    uint32_t window;             /* RabbitMQ; 0 = the default */
    uint32_t amqp_flags;         /* PR_AMQP_… */
    uint32_t queue_kind;         /* pr_amqp_queue_kind */
} pr__link_request;

/* A transport with the store that it leads to. */
typedef struct pr__link {
    pr_store *store; /* NULL: it leads to a broker */
    pr_transport *transport;
    char name[32];
} pr__link;

/* Is this a broker: amqp://…, amqps://…, or amqp: for what POSTROOM_AMQP says? */
bool pr__wiring_is_amqp(const char *text);
/* Open a store and a transport onto it, or one onto a broker, which is not connected yet. */
pr_status pr__wiring_link(const pr__link_request *request, pr__link *ret_link, pr_error *err);
void pr__link_done(pr__link *link);

DEFINE_AUTO(pr_store, pr_store_free);

#endif
