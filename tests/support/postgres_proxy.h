/*
 * A proxy before a test's server that knows where a message of the protocol ends: it can do harm at
 * any one request of a client, before the server sees it or after the server has answered.
 *
 * A request is all that ends in a Query or a Sync of the client, with one ReadyForQuery as its
 * answer's end. The proxy is a child of its own; requests are counted over all connections since
 * it was armed.
 */
#ifndef PR_TESTS_POSTGRES_PROXY_H
#define PR_TESTS_POSTGRES_PROXY_H

#include "support/postgres_server.h"

typedef struct postgres_proxy postgres_proxy;

typedef enum proxy_harm {
    PROXY_NONE = 0,
    PROXY_CUT_REQUEST, /* the server never sees it; both connections end */
    PROXY_CUT_REPLY,   /* the server does it and answers; the client never hears it */
    PROXY_CUT_SYNC,    /* the server sees all of it but its Sync */
    PROXY_CUT_INSIDE,  /* the client hears of the first statement, and nothing of the others */
    PROXY_DELAY,       /* the answer comes late */
    PROXY_TERMINATE,   /* pg_terminate_backend before the server sees it */
    PROXY_CRASH        /* the server crashes before it sees it, and recovers */
} proxy_harm;

postgres_proxy *postgres_proxy_start(postgres_server *server);
void postgres_proxy_free(postgres_proxy *proxy); /* accepts NULL */
void postgres_proxy_uri(const postgres_proxy *proxy, const char *database,
                        char ret_uri[POSTGRES_CONNINFO_SIZE]);
/* Do harm at the at-th request from now on, once. */
void postgres_proxy_arm(postgres_proxy *proxy, proxy_harm harm, int at);
/* Requests since then, up to the harm; at INT_MAX it is never done. */
int postgres_proxy_requests(const postgres_proxy *proxy);
/* Was it done? Disarms. */
bool postgres_proxy_disarm(postgres_proxy *proxy);

#endif
