/*
 * AMQP URIs: `amqp://user:password@host:port/vhost?query`, several joined by commas.
 */
#ifndef PR_TRANSPORT_AMQP_URI_H
#define PR_TRANSPORT_AMQP_URI_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <postroom/error.h>

#include "base/memory.h"

#define PR__AMQP_URIS_MAX           16
#define PR__AMQP_PORT               5672
#define PR__AMQP_PORT_TLS           5671
#define PR__AMQP_HEARTBEAT_S        10
#define PR__AMQP_CONNECT_TIMEOUT_MS 5000
#define PR__AMQP_CHANNEL_MAX        2047

typedef struct pr__amqp_uri {
    char *host; /* without the brackets of an IPv6 address */
    char *user;
    char *password; /* never in a message */
    char *vhost;
    char *cacertfile; /* NULL = the system's bundle */
    char *certfile;   /* client certificate and its key: both or none */
    char *keyfile;
    int port;
    int heartbeat_s; /* 0 = none */
    int channel_max;
    int64_t connect_timeout_ms;
    bool tls;
    bool verify;   /* chain and host name */
    bool external; /* SASL EXTERNAL: the certificate is the user */
} pr__amqp_uri;

/* Fixed once parsed, so that clones of a transport, in any thread, have one. */
typedef struct pr__amqp_uris {
    atomic_uint sharers;
    pr__amqp_uri items[PR__AMQP_URIS_MAX];
    size_t count;
} pr__amqp_uris;

/* CONTENT: what is wrong, never a password. Host, port and the name of a parameter may be shown. */
pr_status pr__amqp_uris_parse(const char *text, pr__amqp_uris **ret_uris, pr_error *err);
/* One more owner of the same; each frees it. */
pr__amqp_uris *pr__amqp_uris_share(pr__amqp_uris *uris);
void *pr__amqp_uris_free(pr__amqp_uris *uris); /* accepts NULL, returns NULL */
DEFINE_AUTO(pr__amqp_uris, pr__amqp_uris_free);

#endif
